/* abi.h - the one argument struct of every op, shared by the host (C11) and the kernels (CUDA C under NVRTC).
 *
 * An op receives one struct by value. On the GPU backend pointers are device addresses, on the CPU backend host addresses; nothing else
 * differs, so both backends run the same op list. The structs hold everything that defines the result of an op; constants that only shape
 * a kernel (tiles, stages) are SPEC_* constants of the plan.
 * Shapes: T tokens of the step, R rows with logits, E experts, K experts per token, H hidden size. bf16 is its raw 16 bits.
 * Every struct is a multiple of 8 bytes without implicit padding. NUMERICS.md says what each op computes. */
#ifndef VERBATIM_ABI_H
#define VERBATIM_ABI_H

#include "abi_attn.h"
#include "abi_fp8.h"
#include "abi_grouped.h"
#include "abi_index.h"
#include "abi_ranks.h"
#include "step.h"

/* How a kernel overlaps its neighbours on the stream. FIRST: the next kernel starts once all kernels before this one are complete. BESIDE:
 * the previous kernel is FIRST, and neither of the two accesses memory that the other writes. */
enum op_order { ORDER_CHAIN = 0, ORDER_FIRST = 1, ORDER_BESIDE = 2 };

/* Rows of an op: this count times rows_mul. The kinds from ROWS_MADE on: launch rows of ops whose `step` is a part of the step (their own
 * arguments say ROWS_TOKENS); consecutive ops of ROWS_PROMPT run in turn for every piece of the step's contexts. ROWS_OWN: those of the
 * token rows that this rank owns; launch rows are the most of any rank. ROWS_BY_REQUESTS: all token rows of a step in which each rank
 * attends for the rows that it owns, with all heads; ROWS_BY_HEADS: those that attend in another step, ROWS_MADE or ROWS_TOKENS. */
enum rows_kind {
  ROWS_TOKENS = 0, ROWS_LOGITS = 1, ROWS_MADE = 2, ROWS_PROMPT = 3, ROWS_DRAFTS = 4, ROWS_OWN = 5, ROWS_BY_HEADS = 6, ROWS_BY_REQUESTS = 7,
  ROWS_KINDS = 8
};

typedef struct embed_args {
  const step_in *step;
  const i32 *token;    /* [T] id, or -1 - slot: read sampled[slot] */
  const i32 *sampled;  /* [max_seqs]; null: every token is an id   */
  const bf16 *table;   /* [vocab][hidden]                          */
  const u32 *position; /* [T]; null for drafts, as the next two and history */
  const u32 *seq;      /* [T]                                      */
  const u32 *block_table; /* [max_seqs][block_table_stride] page numbers */
  f32 *x;              /* [T][hidden] residual stream              */
  i32 *history;        /* [pages][64] token ids, paged as their KV rows; null: not written */
  u32 hidden, vocab, block_table_stride;
  f32 scale;           /* of the embedding                         */
} embed_args;

typedef struct rmsnorm_args {
  const step_in *step;
  const u32 *row_index; /* [rows] row of x and delta to read, or null: the row itself */
  const f32 *x;         /* [.][x_stride]; null, with experts only: zeros              */
  const f32 *delta;     /* [.][x_stride] added first, or null; with experts: that of the shared one, or null */
  const f32 *experts;   /* [T * top_k][dim] sorted rows, weighted and added first; or null, as the next two */
  const u32 *pair_row;  /* [T][top_k] sorted row of a token's k-th expert             */
  const f32 *topk_weight; /* [T][top_k]                                               */
  const f32 *gate;      /* [.][gate_stride], first column: gate of the shared expert, or null */
  f32 *x_out;           /* [.][x_stride] x + delta at the row read, or null           */
  const bf16 *weight;   /* [dim]; null: v is only rounded, not normalised             */
  void *y;              /* [rows][y_stride]                                           */
  u32 rows_kind, dim;
  u32 x_stride, y_stride; /* elements */
  f32 eps;
  f32 delta_scale;      /* of delta, before it is added                               */
  f32 y_scale;          /* of the result                                              */
  u32 top_k;            /* 0 without experts                                          */
  u32 y_kind;           /* Y_BF16 or Y_F32                                            */
  u32 gate_stride;
} rmsnorm_args;

typedef struct qkv_rope_args {
  const step_in *step;
  const f32 *q;          /* [T][q_stride]: per head nope_dim columns, then rope_dim         */
  const f32 *kv_in;      /* [T][kv_in_stride]: kv_lora_rank latent columns, then rope_dim   */
  const bf16 *weight;    /* [kv_lora_rank] kv_a_layernorm                                   */
  const f32 *cos_sin;    /* [max_len][rope_dim / 2][2]                                      */
  const u32 *position;   /* [T]                                                             */
  const u32 *seq;        /* [T]                                                             */
  const u32 *block_table; /* [max_seqs][block_table_stride] page numbers                    */
  const f32 *q_scale;    /* [max_len] scale of the query by position, or null               */
  const bf16 *w_uk;      /* [heads][kv_lora_rank][nope_dim] for the other columns of q_latent, or null */
  bf16 *q_nope;          /* [T][heads][nope_dim]                                            */
  bf16 *q_latent;        /* [T][heads][kv_lora_rank + rope_dim]: without w_uk the last rope_dim columns are written */
  void *kv;              /* [pages][64] rows of this layer, as kv_format says               */
  const f32 *kv_scale;   /* [1] of this layer for KV_FP8, else null                         */
  u32 q_stride, kv_in_stride, heads, nope_dim, rope_dim, kv_lora_rank, block_table_stride;
  f32 eps;
  u32 half_split;        /* pairs of rope columns: 0: (2i, 2i + 1), 1: (i, i + rope_dim / 2) */
  u32 absorbs;           /* 1: w_uk is given, for steps of one token                        */
  u32 kv_format;
  u32 scale_kind;        /* for KV_FP8_DS_MLA                                               */
  u32 pad;
} qkv_rope_args;

enum y_kind { /* the result that a product stores */
  Y_BF16 = 0, /* rounded once                                                                          */
  Y_F32 = 1,
  Y_SILU = 2, /* bf16(silu(gate) * up): the first n / 2 rows of w are the gate, the others the up projection; y has n / 2 columns */
};

/* y[b][row][n] = H16(x[b][row][:], w[b][n][:]) for every batch b, as y_kind says. */
typedef struct gemm_args {
  const step_in *step;
  const bf16 *x;          /* [batch][rows][ldx], k contiguous  */
  const bf16 *w;          /* [batch][n][k], k contiguous       */
  void *y;                /* [batch][rows][ldy]                */
  u64 x_batch, w_batch, y_batch; /* elements between batches   */
  u32 ldx, ldy;           /* elements between rows             */
  u32 n, k;               /* k a multiple of 64, n of 8 (16 for Y_SILU, 2 for Y_F32, as ldy) */
  u32 batches;            /* 1 for Y_SILU                      */
  u32 rows_kind;
  u32 y_kind;
  u32 order;              /* small M only */
} gemm_args;

/* gemm of one batch, with a number for each row of w that is added to its sums. */
typedef struct gemm_bias_args {
  const step_in *step;
  const bf16 *x;          /* [rows][ldx] */
  const bf16 *w;          /* [n][k]      */
  const bf16 *bias;       /* [n]         */
  void *y;                /* [rows][ldy] */
  u32 ldx, ldy, n, k, rows_kind, y_kind, order; /* as those of gemm */
  u32 pad;
} gemm_bias_args;

enum router_scoring { ROUTER_SOFTMAX = 0, ROUTER_SIGMOID = 1 };
enum router_group { ROUTER_GROUP_NONE = 0, ROUTER_GROUP_MAX = 1, ROUTER_GROUP_TOP2 = 2 };

typedef struct router_args {
  const step_in *step;
  const f32 *logits; /* [T][experts]                      */
  const f32 *bias;   /* [experts] added for the selection, or null */
  u32 *topk_id;      /* [T][top_k] ascending expert id    */
  f32 *topk_weight;  /* [T][top_k]                        */
  u32 *expert_first; /* these three as moe_sort leaves them, or null */
  u32 *row_token;
  u32 *pair_row;
  u32 experts, top_k, groups, top_groups;
  u32 scoring, group_mode;
  u32 normalise;     /* 1: weights divided by their sum + 1e-20 */
  f32 scale;         /* then multiplied by this           */
  u32 sorts;         /* 1: does the work of moe_sort, for at most ROUTER_SORTS_MAX tokens */
  u32 order;
} router_args;

/* Sorts the T * K (token, slot) pairs by expert, then token; with columns the tokens' rows too: x_sorted[row] = x[row_token[row]]. */
typedef struct moe_sort_args {
  const step_in *step;
  const u32 *topk_id;  /* [T][top_k]                                        */
  u32 *expert_first;   /* [experts + 1] first sorted row of each expert     */
  u32 *row_token;      /* [T * top_k] token of a sorted row                 */
  u32 *pair_row;       /* [T][top_k] sorted row of a pair                   */
  const bf16 *x;       /* [T][columns], or null                             */
  bf16 *x_sorted;      /* [T * top_k][columns], or null                     */
  u32 experts, top_k;
  u32 columns, pad;    /* a multiple of 8, or 0                             */
} moe_sort_args;

/* y[row][n] = H16(x[row_token ? row_token[row] : row][:], w[expert of row][n][:]), as y_kind says. */
typedef struct moe_gemm_args {
  const step_in *step;
  const u32 *expert_first; /* [experts + 1]           */
  const u32 *row_token;    /* [T * top_k] or null     */
  const bf16 *x;           /* [.][ldx]                */
  const bf16 *w;           /* [experts][n][k]         */
  void *y;                 /* [T * top_k][n], n / 2 for Y_SILU */
  u32 ldx, n, k, experts, top_k;
  u32 y_kind;              /* Y_F32 or Y_SILU         */
} moe_gemm_args;

/* y[t][i] = the weighted sum of the token's experts, plus delta, for some of the hidden columns: what rmsnorm with experts adds to x. */
#define MOE_FOLD_COLUMNS 512u /* per block */
typedef struct moe_fold_args {
  const step_in *step;
  const f32 *experts;     /* [T * top_k][columns] sorted rows               */
  const u32 *pair_row;    /* [T][top_k] sorted row of a token's k-th expert */
  const f32 *topk_weight; /* [T][top_k]                                     */
  const f32 *delta;       /* [T][delta_stride] of the shared expert, or null */
  const f32 *gate;        /* [T][gate_stride], first column: its gate, or null */
  f32 *y;                 /* [T][y_stride]                                  */
  u32 columns;            /* this and the strides of rows: multiples of 4   */
  u32 top_k, delta_stride, y_stride;
  u32 gate_stride, pad;
} moe_fold_args;

/* For rows with param.adjusted: a row of the logits after penalties, token list and bans. Other rows are not written. */
typedef struct adjust_args {
  const step_in *step;
  const f32 *logits;         /* [R][vocab]                              */
  const sample_param *param; /* [R]                                     */
  const token_bias *lists;   /* [max_seqs][TOKEN_LIST_MAX] by param.slot */
  const i32 *history;        /* [pages][64]                             */
  const u32 *block_table;    /* [max_seqs][block_table_stride]          */
  f32 *adjusted;             /* [R][vocab]; -Inf: cannot be chosen      */
  u32 vocab, block_table_stride;
} adjust_args;

/* For rows with param.mask: takes from the choice what the row's token mask lacks. Other rows are not written. */
typedef struct token_mask_args {
  const step_in *step;
  const sample_param *param; /* [R] those with a mask are adjusted rows     */
  const u32 *masks;          /* [masks][words] by param.mask - 1: bit i % 32 of word i / 32 says that token i can be chosen */
  f32 *adjusted;             /* [R][vocab]; the others become -Inf          */
  u32 vocab, words;
} token_mask_args;

typedef struct sample_args {
  const step_in *step;
  const f32 *logits;         /* [R][vocab]              */
  const f32 *adjusted;       /* [R][vocab]              */
  const sample_param *param; /* [R]                     */
  i32 *sampled;              /* [max_seqs]: sampled[param.slot] = token, unless it was scored */
  sample_result *result;     /* [R]                     */
  top_logprob *top;          /* [R][TOP_LOGPROBS_MAX]: the first param.top_count are written; null: no row has any */
  u32 vocab, pad;
} sample_args;

/* Which guesses of a step were right, and the inputs of the guesses that follow. Pass 1 computes the first draft of each of D sequences,
 * pass j the j-th one from the one before. */
typedef struct accept_args {
  const step_in *step;       /* [STEP_PARTS]                           */
  const i32 *token;          /* [T]                                    */
  const u32 *position;       /* [T]                                    */
  const u32 *logit_row;      /* [R] no token row twice                 */
  const sample_param *param; /* [R]                                    */
  const sample_result *result; /* [R]                                  */
  const i32 *next;           /* [T] id after the token, or -1: the one that the row chose */
  const step_draft *drafts;  /* [D]                                    */
  i32 *next_token;           /* [T] ids                                */
  u32 *source;               /* [D] token row whose result is the newest token */
  sample_param *draft_param; /* [draft_tokens][stride] of each pass    */
  i32 *draft_token;          /* [D] -1 - d, for `embed`; null with one pass, as the next three */
  u32 *draft_seq;            /* [D]                                    */
  u32 *draft_position;       /* [draft_tokens - 1][stride] of each pass but the first */
  attn_tile *draft_tiles;    /* [draft_tokens - 1][stride]             */
  u32 draft_tokens, stride;
} accept_args;

typedef struct row_digest_args {
  const step_in *step;
  const u32 *x;  /* [rows][stride] 32-bit words */
  u64 *digest;   /* [rows]                      */
  u32 rows_kind, words, stride;
  u32 of_ranks;  /* 1: of x, 2: of the head's input, both to compare ranks; 0: of logits */
} row_digest_args;

#endif
