/* graph_add.h - the building blocks of a graph: buffers, weights, ops, and the ops that every part has, norms and products.
 *
 * Holds the state of a plan whose ops are being added, in the order of the forward pass. Knows nothing of what a layer is. Only for
 * graph*.c. Read next: graph.c. */
#ifndef VERBATIM_GRAPH_ADD_H
#define VERBATIM_GRAPH_ADD_H
#include "abi.h"
#include "draft.h"
#include "model_config.h"
#include "profile.h"

typedef struct addend { /* buffers, or DRAFT_NONE: see rmsnorm_args */
  uint32_t delta, experts, pair_row, topk_weight, gate;
} addend;

typedef struct own_addend { /* the same of which a rank has columns, for launch rows 1 to `rows`: the norm exchanges them */
  addend adds;
  uint32_t part; /* columns of a rank */
  uint32_t rows; /* 0: none */
  uint32_t side; /* first op of the side branch that computes a part of it, or UINT32_MAX */
} own_addend;

#define GRAPH_GATE_COLUMNS 8u /* of a product with the gate of a shared expert: the least that a product has; all are the same */
#define GRAPH_NOTHING ((addend){DRAFT_NONE, DRAFT_NONE, DRAFT_NONE, DRAFT_NONE, DRAFT_NONE})

typedef struct graph_twin { /* a work buffer, and another that has the rows of it that a rank owns */
  uint32_t whole, own;
} graph_twin;
#define GRAPH_TWINS_MAX 16u

typedef struct attn_split { /* the split of contexts in steps of few rows */
  uint32_t heads;                 /* that a rank attends with */
  uint32_t tiles;                 /* buffer of its tiles */
  uint32_t counts, pieces, parts; /* buffers */
  uint32_t slots;                 /* room for this many partial results; 0: nothing is split */
} attn_split;

typedef struct graph {
  draft *plan;
  const profile *pins;
  const model_config *config;
  const plan_model *m;
  const plan_limits *l;
  uint32_t ranks, heads;     /* heads: of a rank */
  uint64_t rows, logit_rows; /* padded */
  uint64_t weight_bytes;     /* cursor in REGION_WEIGHTS */
  uint64_t gemm_workspace_bytes;
  uint32_t layer;            /* UINT32_MAX outside layers */
  uint32_t pass;             /* of the draft section, from 1 on; 0 before it. From the second on weights are those of the first. */
  uint32_t next_weight;      /* buffers before it are not of weights that the pass has yet to use */
  bool of_drafts;            /* rows of the ops being added are those of drafts, whatever kind the ops say */
  uint32_t own_tiles;        /* DRAFT_NONE unless some steps attend by requests */
  uint32_t step, token, position, seq, tiles, logit_row, sample, block_table; /* buffers of the step's inputs */
  uint64_t position_at, tiles_at; /* bytes before these */
  uint32_t next, drafts, draft; /* of the draft section, or DRAFT_NONE */
  uint32_t rank_table, inbox, exchange, rank_x, rank_head; /* of the exchange between ranks, or DRAFT_NONE */
  uint32_t exchanges;        /* so far */
  uint32_t masks; /* with has_masks */
  uint32_t lists, sampled, result, digest, top, cos_sin, q_scale, kv, history; /* q_scale: DRAFT_NONE if the model has none */
  uint64_t kv_layer_bytes;   /* KV rows of a layer */
  uint32_t kv_scale;         /* of the current layer, or DRAFT_NONE */
  uint32_t index;            /* pages of all indexers, or DRAFT_NONE */
  uint32_t meetings;         /* grid barriers of blocks that share a token, or DRAFT_NONE */
  uint32_t chosen;           /* the current layer's top-k lists, or DRAFT_NONE: it attends to all tokens */
  uint32_t prompt_tiles, contexts; /* DRAFT_NONE unless prompts have their own form of attention */
  uint32_t table, head;      /* the embedding; the head's weight */
  uint32_t x;                /* residual stream */
  attn_split split, request_split; /* the second: in steps that attend by requests */
  addend adds;               /* what the next norm adds to x, for launch rows above those of: */
  own_addend own;
  uint32_t branch;           /* of the ops being added: enum plan_branch */
  uint32_t point_order;      /* of these ops, or 0: that of the ops themselves */
  enum rows_kind token_rows; /* of the ops being added: ROWS_TOKENS, or the rows of a part of the step */
  uint32_t own_min;          /* steps in which a rank owns at least so many rows divide them (graph_rows.h); UINT32_MAX: none do */
  bool divides;              /* the ops being added are of a part whose rows they divide */
  uint32_t twin_count;
  graph_twin twins[GRAPH_TWINS_MAX]; /* of that part */
} graph;

typedef struct matrix { /* a GEMM operand, result or source: columns start at byte `offset` of the buffer */
  uint32_t buffer, stride; /* elements between rows */
  uint64_t offset;
  uint32_t part;        /* leading columns that only this rank has, more than there are: all of them; 0: all ranks have the same */
} matrix;

#define ARG(type, field, buffer_, offset_) \
  { .offset = (offset_), .buffer = (buffer_), .args_offset = (uint32_t)offsetof(type, field) }

typedef struct op_call { /* one op, before its alternatives are chosen */
  uint32_t kernel, rows_kind, rows_min, rows_max;
  uint32_t rank_columns; /* see plan_op */
  const char *what;
  const void *args;
  size_t args_bytes;
  const draft_ref *refs; /* buffer DRAFT_NONE: NULL */
  size_t ref_count;
  const void *own_args;  /* these two over the rows of a rank, where they differ, else NULL */
  const draft_ref *own_refs;
} op_call;

#define ADD_OP(g, kernel_, what_, args_, refs_, kind_)                                                                           \
  graph_add_op_rows((g), (op_call){.kernel = (kernel_), .what = (what_), .args = &(args_), .args_bytes = sizeof(args_),          \
                                   .refs = (refs_), .ref_count = ARRAY_LEN(refs_), .rows_kind = (kind_), .rows_min = 1,          \
                                   .rows_max = plan_rows_limit((g)->l, (kind_))})

/* A buffer of a region that is always alive, named after the current layer. */
uint32_t graph_add_fixed(graph *g, uint32_t region, uint64_t bytes, const char *what);

/* A work buffer; its lifetime is empty until an op uses it. */
uint32_t graph_add_work(graph *g, uint64_t bytes, const char *what);
matrix graph_add_matrix(graph *g, uint64_t rows, uint32_t columns, uint32_t element_bytes, const char *what);

/* Begins a weight buffer without bytes; tensors are appended to the one begun last. name: without "model.layers.N." inside a layer. */
uint32_t graph_add_weight_begin(graph *g, const char *what);
void graph_add_tensor(graph *g, const char *name, plan_tensor tensor);
static inline plan_tensor graph_whole(uint32_t rows, uint32_t cols) {
  return (plan_tensor){.dtype = DTYPE_BF16, .rows = rows, .cols = cols, .row_count = rows, .row_step = rows, .batches = 1};
}
uint32_t graph_add_weight(graph *g, const char *what, const char *name, uint32_t rows, uint32_t cols);

/* A buffer of fp32 numbers. */
uint32_t graph_add_vector(graph *g, const char *what, const char *name, uint32_t cols);

/* The bf16 weight of a module; scaled: e4m3 codes and their scales. */
void graph_add_module(graph *g, const char *module, bool is_scaled, plan_tensor tensor);

void graph_add_op_rows(graph *g, op_call call);

/* order: a member of the arguments, for steps of one token; larger steps have branches instead. */
void graph_add_op_ordered(graph *g, op_call call, uint32_t *order);

void graph_add_norm(graph *g, const char *what, matrix x, addend adds, uint32_t weight, matrix y, uint32_t dim, float eps, bool is_final);

/* The norm of hidden rows that leaves x as it is. row_index: buffer with the row of x for each row of y; DRAFT_NONE: the same. */
void graph_add_norm_of(graph *g, const char *what, matrix x, addend adds, uint32_t row_index, uint32_t weight, matrix y);

/* The norm of a block's output, as fp32. */
void graph_add_norm_behind(graph *g, const char *what, matrix x, uint32_t weight, matrix y);

/* The next op waits for the ops of the side branch, whose first is `first`. Buffers used by ops in between stay alive until then, so that
 * neither branch reuses bytes of the other. */
void graph_add_join(graph *g, uint32_t first);

/* Adds the last block's output to the residual stream and returns the block's input: its norm or, in a model with norms behind blocks
 * alone, the stream itself. */
matrix graph_add_block_norm(graph *g, const char *what, const char *name);

/* shape: what the operands do not determine. _from: for launch rows from rows_min on. */
void graph_add_gemm_from(graph *g, const char *what, matrix x, uint32_t weight, matrix y, gemm_args shape, uint32_t rows_min);
void graph_add_gemm(graph *g, const char *what, matrix x, uint32_t weight, matrix y, gemm_args shape);

#endif
