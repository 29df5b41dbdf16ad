/* abi_grouped.h - a part of abi.h: the argument structs of grouped-query attention.
 *
 * A token's KV row in a layer is, for each KV head, head_dim columns of its key and v_dim of its value. Query head h reads KV head
 * h / (heads / kv_heads). Contexts are split by attn_cut (abi_attn.h) with groups of one chunk. Read next: attn/attn.cu.
 */
#ifndef VERBATIM_ABI_GROUPED_H
#define VERBATIM_ABI_GROUPED_H
#include "step.h"

/* Bias, norm and rotation of queries and keys; queries as bf16, keys and values into the token's KV row. The source is the result of one
 * product, ordered by KV head, so that ranks can divide it: for each KV head the columns of its group's query heads, of its key and of its
 * value. The bias has the same order. */
typedef struct kv_rope_args {
  const step_in *step;
  const f32 *x;           /* [T][x_stride]: [kv_heads][(heads / kv_heads + 1) * head_dim + v_dim] */
  const bf16 *bias;       /* of the columns of x, or null                                  */
  const bf16 *q_norm;     /* [head_dim], or with norms_row [heads * head_dim]; null: no norm, and k_norm is null too */
  const bf16 *k_norm;     /* [head_dim], or with norms_row [kv_heads * head_dim]           */
  const f32 *cos_sin;     /* [max_len][rope_dim / 2][2]; null: nothing is rotated          */
  const u32 *position;    /* [T]                                                           */
  const u32 *seq;         /* [T]                                                           */
  const u32 *block_table; /* [max_seqs][block_table_stride] page numbers                   */
  bf16 *q_out;            /* [T][heads][head_dim]                                          */
  void *kv;               /* [pages][64][kv_heads][head_dim + v_dim] of this layer, bf16 or with KV_FP8 e4m3 codes */
  const f32 *kv_scale;    /* [1] of this layer for KV_FP8, else null                       */
  u32 x_stride, heads, kv_heads, head_dim, v_dim; /* dims: multiples of 16, at most HEAD_DIM_MAX */
  u32 rope_dim;           /* the first columns of a head, rotated; a multiple of 8, at most head_dim */
  u32 block_table_stride;
  f32 eps;                /* of the norms                                                  */
  u32 half_split;         /* pairs of rope columns: 0: (2i, 2i + 1), 1: (i, i + rope_dim / 2) */
  u32 norms_row;          /* 1: one norm of all heads' columns, 0: one of each head's      */
  u32 kv_format;          /* KV_BF16 or KV_FP8                                             */
  u32 pad;
} kv_rope_args;

typedef struct attn_args {
  const step_in *step;
  const attn_tile *tiles;
  const bf16 *q;          /* [T][heads][head_dim]                                          */
  const void *kv;         /* [pages][64][kv_heads][head_dim + v_dim] of this layer, as kv_format says */
  const f32 *kv_scale;    /* [1] of this layer for KV_FP8, else null                       */
  const u32 *block_table; /* [max_seqs][block_table_stride]                                */
  bf16 *out;              /* [T][heads][v_dim]: tiles that are not split                   */
  f32 *partial_o;         /* [slots_max][heads][v_dim]; null: no tile is split             */
  f32 *partial_ml;        /* [slots_max][heads][2] m, l; likewise, as the next two         */
  const attn_counts *counts;
  const attn_piece *pieces;
  f32 *scratch;           /* GPU: [grid][attn_grouped_floats], private to a block          */
  u32 heads, kv_heads, head_dim, v_dim, block_table_stride;
  u32 chunk_tokens;       /* S                                                             */
  u32 slots_max;          /* most partial results of a token that fit; 0: no tile is split */
  f32 scale_log2;         /* softmax scale * log2(e), one fp32 number                      */
  u32 kv_format;          /* KV_BF16 or KV_FP8                                             */
  u32 pad;
} attn_args;

/* Combines the partial results of split tiles, in ascending order. */
typedef struct attn_fold_args {
  const step_in *step;
  const attn_counts *counts;
  const attn_part *parts; /* [T]                                                           */
  const f32 *partial_o;   /* [slots_max][heads][v_dim]                                     */
  const f32 *partial_ml;  /* [slots_max][heads][2]                                         */
  bf16 *out;              /* [T][heads][v_dim]: tiles that are split                       */
  u32 heads, v_dim;
  u32 slots_max;          /* as in attn_args                                               */
  u32 pad;
} attn_fold_args;

#endif
