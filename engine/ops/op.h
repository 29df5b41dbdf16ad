/* op.h - the description of an op: what it reads and writes, what that costs, and which tensor maps its kernel takes.
 *
 * ops/<stem>.c states every operand of an op once, as a function of the op's arguments. Generic code derives the rest: trace points
 * (plan/points.c), inputs of an audit (traces/audit_inputs.c), costs (bench/cost.c), tensor maps (gpu/op_maps.c), and which arguments are
 * pointers (plan/plan.c). planner/checks/ reads kernels_src/abi.h a second time and shares nothing with this folder, on purpose:
 * tests/unit/ops/test_ops.c compares the two. Knows no plan and no backend. Read next: rmsnorm.c, kernels.h, kernels_src/abi.h. */
#ifndef VERBATIM_OP_H
#define VERBATIM_OP_H
#include "base/base.h"
#include "kernels_src/abi.h"
#include "kernels_src/ptx/tensor_map.h"

#define OP_OPERANDS_MAX 16u

enum op_type { OP_BYTES, OP_BF16, OP_F32, OP_U32 }; /* OP_BYTES: codes and structs, shown in a trace as 32-bit words */

enum op_kind {
  OP_POINT,     /* rows that are a function of the request alone: a trace point if written, an input of an audit if read */
  OP_CACHE,     /* the same, stored in pages from step to step                                                           */
  OP_WORKSPACE, /* passed between ops of a step, in an order or a number format that a trace does not show               */
  OP_WEIGHTS,
  OP_ENGINE     /* step inputs, tables made at start-up, results and state */
};

enum op_rows { /* which rows of a table a step uses                           */
  OP_TOKENS,  /* one for each launch row                                      */
  OP_LOGITS,  /* the same, for an op whose launch rows are logits rows        */
  OP_PAIRS,   /* `pairs` for each launch row, in the order of moe_sort        */
  OP_PAGED,   /* one for each launch row, in pages of 64 tokens               */
  OP_CONTEXT, /* one for each KV row that the sequences of the step attend to */
  OP_EXPERTS, /* one for each expert that has a token                         */
  OP_ONCE     /* a single row                                                 */
};

/* One pointer of the arguments. Row 0 consists of `segments` runs of `columns` elements, segment_stride apart. Units: elements. 0 or null
 * stands for the value in brackets. */
typedef struct operand {
  const char *name;    /* the field of the argument struct, and its offset */
  uint32_t field;
  bool is_write;
  bool is_free;        /* not counted as cost: the split of the work, or page numbers */
  bool is_replicated;  /* every rank computes all of it, whatever else of the op is divided among ranks */
  enum op_kind kind;
  enum op_rows rows;
  enum op_type type;
  uint32_t pairs;      /* table rows for each launch row [1]                */
  uint64_t first;      /* from the pointer to row 0                         */
  uint64_t columns;
  uint64_t row_stride; /* [columns]                                       */
  uint64_t page_stride; /* OP_PAGED: distance of pages [64 rows]          */
  uint64_t segments, segment_stride; /* [1], -                            */
  uint64_t cost_bytes; /* bytes of a row that count as cost [its elements] */
  const char *point;   /* a written point is called "<op> <point>" [<op>] */
  const char *gemm;    /* it is the point of this gemm, which is fused into the op [-] */
} operand;

typedef struct op_operands {
  const void *args;
  uint64_t present; /* bit i: pointer i of the arguments is not null */
  uint32_t count;
  operand list[OP_OPERANDS_MAX];
} op_operands;

typedef struct op_step { /* the part of a step that an op computes               */
  uint64_t rows;            /* launch rows                                       */
  const uint32_t *position; /* [rows]; undefined for an op over logits rows      */
  uint64_t kv_rows;         /* sum over the sequences of the rows they attend to */
  uint32_t experts_used;    /* experts that have a token                         */
} op_step;

typedef struct op_cost {
  uint64_t weight_bytes, kv_bytes, activation_bytes;
  double flops, e4m3_flops; /* e4m3_flops: the part that multiplies e4m3 numbers */
  uint64_t sent_bytes;      /* to all other ranks together                       */
} op_cost;

typedef struct op_variant { /* SPEC constants of a kernel variant that shape its maps; 0: it has no such constant */
  uint32_t tile_n, tile_rows, k_blocks, cluster, cluster_rows, rows;
  uint32_t launch_rows; /* at least 1 */
} op_variant;

enum op_family { OP_OF_PRODUCTS, OP_OF_EXPERTS, OP_OF_ATTENTION, OP_OF_LOGITS, OP_OF_ROWS }; /* groups of ops in a report */

/* A null function means that the op has nothing of the kind. */
typedef struct op_description {
  uint32_t pointers;      /* leading 8-byte pointer fields of the arguments             */
  uint32_t optional;      /* bit i: pointer i may be null                               */
  enum op_family family;
  bool is_product;        /* its FLOPs are of a product or of attention                                                  */
  bool is_e4m3;           /* of e4m3 numbers                                                                             */
  bool is_completed;      /* a later op may complete its rows; its points are then that op's points                      */
  bool completes_prior;   /* it is such a later op                                                                       */
  const struct op_description *prior;         /* the earlier op whose results it reads besides points [-]                */
  const struct op_description *alternative_of; /* its points are that op's, of which it is an alternative [-]          */
  void (*operands)(op_operands *o);           /* adds all operands but `step`, reads before writes                       */
  void (*cost)(const op_operands *o, const op_step *step, op_cost *sum); /* adds FLOPs, and bytes that no operand states */
  void (*window)(const void *args, uint32_t *first, uint32_t *count);    /* token rows it computes [all]                 */
  void (*maps)(const op_variant *v, const void *args, tensor_shape shapes[2]); /* shapes of tensor_maps.w and .x         */
} op_description;

/* Description of every stem of kernels.def. */
#define KERNEL(stem) extern const op_description ops_##stem;
#include "kernels_src/kernels.def"
#undef KERNEL

/* All operands of an op; present: see op_operands. */
void op_describe(const op_description *op, const void *args, uint64_t present, op_operands *out);

/* Bytes of an element. */
uint64_t op_type_bytes(enum op_type type);

/* For `operands`: appends one, with its defaults filled in. */
void op_add(op_operands *o, operand added);

/* Whether the pointer at this offset of the arguments is not null. */
static inline bool op_has(const op_operands *o, size_t field) { return o->present >> (field / 8) & 1; }

/* Arguments come from a file, so a product that overflows becomes UINT64_MAX. */
uint64_t op_times(uint64_t a, uint64_t b);
uint64_t op_plus(uint64_t a, uint64_t b);

#define OP_POINTER(stem, name) (1u << (offsetof(stem##_args, name) / 8))
#define READS(stem, f, ...) op_add(o, (operand){.name = #f, .field = offsetof(stem##_args, f), __VA_ARGS__})
#define WRITES(stem, f, ...) op_add(o, (operand){.name = #f, .field = offsetof(stem##_args, f), .is_write = true, __VA_ARGS__})

/* A row of the result of a product with n weight rows: y_kind of kernels_src/abi.h. */
typedef struct op_result {
  enum op_type type;
  uint64_t columns;
} op_result;
static inline op_result op_result_of(uint32_t n, uint32_t y_kind) {
  return (op_result){.type = y_kind == Y_F32 ? OP_F32 : OP_BF16, .columns = y_kind == Y_SILU ? n / 2 : n};
}

/* Rows of an op that has a rows_kind. */
static inline enum op_rows op_rows_of(uint32_t rows_kind) { return rows_kind == ROWS_LOGITS ? OP_LOGITS : OP_TOKENS; }

#endif
