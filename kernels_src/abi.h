/* abi.h - the one argument struct of every op, shared by the host (C11) and the kernels (CUDA C under NVRTC).
 *
 * An op receives one struct by value. On the GPU machine pointers are device addresses, on the CPU machine host
 * addresses; nothing else differs, so that both machines run the same op list. The structs carry everything that defines
 * an op's result; what only shapes a kernel (tiles, stages) comes as SPEC_* constants from the plan.
 * Shapes: T tokens of the step, R rows with logits, E experts, K experts per token, H hidden size. bf16 is its raw 16 bits.
 * Every struct is a multiple of 8 bytes without implicit padding. NUMERICS.md says what each op computes. */
#ifndef VERBATIM_ABI_H
#define VERBATIM_ABI_H

#include "step.h"

/* Rows of an op: that count times rows_mul. ROWS_MADE, ROWS_PROMPT: launch rows of ops whose `step` is a part of the step (their own
 * arguments say ROWS_TOKENS); ops of ROWS_PROMPT that follow each other run in turn for every piece of the step's contexts. */
enum rows_kind { ROWS_TOKENS = 0, ROWS_LOGITS = 1, ROWS_MADE = 2, ROWS_PROMPT = 3 };

typedef struct embed_args {
  const step_in *step;
  const i32 *token;    /* [T] id, or -1 - slot: take sampled[slot] */
  const i32 *sampled;  /* [max_seqs]                               */
  const bf16 *table;   /* [vocab][hidden]                          */
  const u32 *position; /* [T]                                      */
  const u32 *seq;      /* [T]                                      */
  const u32 *block_table; /* [max_seqs][block_table_stride] page numbers */
  f32 *x;              /* [T][hidden] residual stream              */
  i32 *history;        /* [pages][64] token ids, where their KV rows are */
  u32 hidden, vocab, block_table_stride;
  f32 scale;           /* of the embedding                         */
} embed_args;

typedef struct rmsnorm_args {
  const step_in *step;
  const u32 *row_index; /* [rows] row of x and delta to read, or null: the row itself */
  const f32 *x;         /* [.][x_stride]                                              */
  const f32 *delta;     /* [.][x_stride] added first, or null                         */
  f32 *x_out;           /* [.][x_stride] x + delta at the row read, or null           */
  const bf16 *weight;   /* [dim]                                                      */
  bf16 *y;              /* [rows][y_stride]                                           */
  u32 rows_kind, dim;
  u32 x_stride, y_stride; /* elements */
  f32 eps;
  f32 delta_scale;      /* of delta, before it is added                               */
  f32 y_scale;          /* of the result                                              */
  u32 pad;
} rmsnorm_args;

typedef struct kv_write_args {
  const step_in *step;
  const f32 *src;        /* [T][src_stride]: kv_lora_rank latent columns, then rope_dim */
  const bf16 *weight;    /* [kv_lora_rank] kv_a_layernorm                               */
  const f32 *cos_sin;    /* [max_len][rope_dim / 2][2]                                  */
  const u32 *position;   /* [T]                                                         */
  const u32 *seq;        /* [T]                                                         */
  const u32 *block_table; /* [max_seqs][block_table_stride] page numbers                */
  bf16 *kv;              /* [pages][64][kv_lora_rank + rope_dim] of this layer          */
  u32 src_stride, kv_lora_rank, rope_dim, block_table_stride;
  f32 eps;
  u32 half_split;        /* pairs of rope columns: 0: (2i, 2i + 1), 1: (i, i + rope_dim / 2) */
} kv_write_args;

typedef struct q_rope_args {
  const step_in *step;
  const f32 *src;       /* [T][src_stride]: per head nope_dim columns, then rope_dim */
  const f32 *cos_sin;   /* [max_len][rope_dim / 2][2]                                */
  const u32 *position;  /* [T]                                                       */
  const f32 *q_scale;   /* [max_len] of the whole query by position, or null         */
  bf16 *q_nope;         /* [T][heads][nope_dim]                                      */
  bf16 *q_latent;       /* [T][heads][kv_lora_rank + rope_dim]: the last rope_dim columns are written */
  u32 src_stride, heads, nope_dim, rope_dim, kv_lora_rank;
  u32 half_split;       /* as in kv_write_args */
} q_rope_args;

/* y[b][row][n] = H16(x[b][row][:], w[b][n][:]) for every batch b; fp32 or rounded once to bf16. */
typedef struct gemm_args {
  const step_in *step;
  const bf16 *x;          /* [batch][rows][ldx], k contiguous  */
  const bf16 *w;          /* [batch][n][k], k contiguous       */
  void *y;                /* [batch][rows][ldy] f32 or bf16    */
  u64 x_batch, w_batch, y_batch; /* elements between batches   */
  u32 ldx, ldy;           /* elements between rows             */
  u32 n, k;               /* k a multiple of 64, n of 8        */
  u32 batches;
  u32 rows_kind;
  u32 y_f32;              /* 1: y is f32, 0: bf16              */
  u32 pad;
} gemm_args;

typedef struct mla_attn_args {
  const step_in *step;
  const attn_tile *tiles;
  const bf16 *q;          /* [T][heads][kv_lora_rank + rope_dim]                  */
  const bf16 *kv;         /* [pages][64][kv_lora_rank + rope_dim] of this layer   */
  const u32 *block_table; /* [max_seqs][block_table_stride]                       */
  bf16 *out;              /* [T][heads][kv_lora_rank]; null when split            */
  f32 *partial_o;         /* [T][units_max][heads][kv_lora_rank]; null when whole */
  f32 *partial_ml;        /* [T][units_max][heads][2] m, l; null when whole       */
  f32 *scratch;           /* GPU, whole: fold state, [grid][2][64][kv_lora_rank + 2] */
  u32 heads, kv_lora_rank, rope_dim, block_table_stride;
  u32 chunk_tokens;       /* S */
  u32 group_chunks;       /* G */
  u32 unit_chunks;        /* split: chunks folded into one partial, 1 or G; 0: whole */
  u32 units_max;
  f32 scale_log2;         /* softmax scale * log2(e), one fp32 number */
  u32 pad;
} mla_attn_args;

typedef struct mla_fold_args {
  const step_in *step;
  const u32 *position;    /* [T] */
  const f32 *partial_o;
  const f32 *partial_ml;
  bf16 *out;              /* [T][heads][kv_lora_rank] */
  u32 heads, kv_lora_rank, chunk_tokens, group_chunks, unit_chunks, units_max;
} mla_fold_args;

/* One piece of the contexts: y[row][0 .. n) = bf16(H16(kv row[0 .. kv_lora_rank), w[.][:])), then the kv row's rope columns. */
typedef struct mla_expand_args {
  const step_in *step;          /* of the prompts                                       */
  const step_context *contexts; /* [max_seqs]                                           */
  const bf16 *kv;               /* [pages][64][kv_lora_rank + rope_dim] of this layer   */
  const u32 *block_table;       /* [max_seqs][block_table_stride]                       */
  const bf16 *w;                /* [n][kv_lora_rank]: per head nope_dim rows for k, then v_dim for v */
  bf16 *y;                      /* [piece_pages * 64][n + rope_dim]                     */
  u32 n, kv_lora_rank, rope_dim, block_table_stride;
  u32 piece_pages;
  u32 piece;                    /* set for every launch */
} mla_expand_args;

/* Attention of the prompt rows over one piece of the contexts. */
typedef struct mla_prefill_args {
  const step_in *step;          /* of the prompts                                       */
  const attn_tile *tiles;       /* seq: number of the context                           */
  const step_context *contexts; /* [max_seqs]                                           */
  const bf16 *q_nope;           /* [T][heads][nope_dim]                                 */
  const bf16 *q_rope;           /* [T][heads][q_rope_stride]: rope_dim columns are read */
  const bf16 *expanded;         /* [piece_pages * 64][heads * (nope_dim + v_dim) + rope_dim] */
  bf16 *out;                    /* [T][heads][v_dim]                                    */
  f32 *state;                   /* [T][heads][v_dim + 2]: O, m, l between pieces        */
  u32 heads, nope_dim, rope_dim, v_dim;
  u32 q_rope_stride;
  u32 piece_pages;
  u32 piece;                    /* set for every launch */
  f32 scale_log2;               /* softmax scale * log2(e), one fp32 number             */
} mla_prefill_args;

typedef struct silu_mul_args {
  const step_in *step;
  const f32 *gate_up; /* [rows][2 * inter]: gate columns, then up columns */
  bf16 *y;            /* [rows][inter]                                    */
  u32 rows_mul, inter; /* rows = T * rows_mul                             */
} silu_mul_args;

enum router_scoring { ROUTER_SOFTMAX = 0, ROUTER_SIGMOID = 1 };
enum router_group { ROUTER_GROUP_NONE = 0, ROUTER_GROUP_MAX = 1, ROUTER_GROUP_TOP2 = 2 };

typedef struct router_args {
  const step_in *step;
  const f32 *logits; /* [T][experts]                      */
  const f32 *bias;   /* [experts] added for the choice, or null */
  u32 *topk_id;      /* [T][top_k] ascending expert id    */
  f32 *topk_weight;  /* [T][top_k]                        */
  u32 experts, top_k, groups, top_groups;
  u32 scoring, group_mode;
  u32 normalise;     /* 1: weights divided by their sum + 1e-20 */
  f32 scale;         /* then multiplied by this           */
} router_args;

/* Orders the T * K (token, slot) pairs by expert, then token. */
typedef struct moe_sort_args {
  const step_in *step;
  const u32 *topk_id;  /* [T][top_k]                                        */
  u32 *expert_first;   /* [experts + 1] first sorted row of each expert     */
  u32 *row_token;      /* [T * top_k] token of a sorted row                 */
  u32 *pair_row;       /* [T][top_k] sorted row of a pair                   */
  u32 experts, top_k;
} moe_sort_args;

/* y[row][n] = H16(x[row_token ? row_token[row] : row][:], w[expert of row][n][:]), fp32. */
typedef struct moe_gemm_args {
  const step_in *step;
  const u32 *expert_first; /* [experts + 1]           */
  const u32 *row_token;    /* [T * top_k] or null     */
  const bf16 *x;           /* [.][ldx]                */
  const bf16 *w;           /* [experts][n][k]         */
  f32 *y;                  /* [T * top_k][n]          */
  u32 ldx, n, k, experts, top_k, pad;
} moe_gemm_args;

typedef struct moe_combine_args {
  const step_in *step;
  const f32 *y;           /* [T * top_k][hidden] sorted rows */
  const u32 *pair_row;    /* [T][top_k]                      */
  const f32 *topk_weight; /* [T][top_k]                      */
  const f32 *shared;      /* [T][hidden] or null             */
  f32 *out;               /* [T][hidden]                     */
  u32 hidden, top_k;
} moe_combine_args;

/* For rows with param.adjusted: the logits after penalties, token list and bans, in a row of their own. Others are left alone. */
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

typedef struct sample_args {
  const step_in *step;
  const f32 *logits;         /* [R][vocab]              */
  const f32 *adjusted;       /* [R][vocab]              */
  const sample_param *param; /* [R]                     */
  i32 *sampled;              /* [max_seqs]: sampled[param.slot] = token, unless it was scored */
  sample_result *result;     /* [R]                     */
  top_logprob *top;          /* [R][TOP_LOGPROBS_MAX]: param.top_count are written */
  u32 vocab, pad;
} sample_args;

typedef struct row_digest_args {
  const step_in *step;
  const u32 *x;  /* [rows][stride] 32-bit words */
  u64 *digest;   /* [rows]                      */
  u32 rows_kind, words, stride, pad;
} row_digest_args;

#endif
