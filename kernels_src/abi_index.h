/* abi_index.h - a part of abi.h: the ops of the indexer, which select the tokens that sparse attention reads (DeepSeek-V3.2,
 * inference/model.py, class Indexer).
 *
 * A page of its cache: [64][128] e4m3 codes, then [64] fp32 scales. Read next: index/index_qk.cu. */
#ifndef VERBATIM_ABI_INDEX_H
#define VERBATIM_ABI_INDEX_H
#include "step.h"

#define INDEX_DIM 128u          /* columns of an indexer head */
#define INDEX_PAGE_BYTES (PAGE_TOKENS * (INDEX_DIM + 4u))
#define INDEX_TOPK_MAX 2048u
#define INDEX_NONE 0xffffffffu  /* in a list: no token */
#define INDEX_QK_ROWS 16u       /* heads and keys per block of index_qk */
#define INDEX_TOPK_FEW 32u         /* most rows for which index_topk uses clusters: all of them fit at once */
#define INDEX_TOPK_HELD 22528u     /* words of such a block for counts and scores: two blocks per multiprocessor */
#define INDEX_TOPK_HELD_MANY 56832u /* words of a block for more rows: one per multiprocessor */

/* Queries and keys of the indexer, normalised, rotated, through a Hadamard transform, as scaled e4m3; the heads' weights. */
typedef struct index_qk_args {
  const step_in *step;
  const f32 *q;           /* [T][q_stride]: per head 128 columns, the rope's first         */
  const f32 *k;           /* [T][k_stride]: 128 columns, likewise                          */
  const f32 *w;           /* [T][w_stride]: a number for each head                         */
  const f32 *gain, *bias; /* [128] k_norm                                                  */
  const f32 *cos_sin;     /* [max_len][rope_dim / 2][2]                                    */
  const u32 *position;    /* [T]                                                           */
  const u32 *seq;         /* [T]                                                           */
  const u32 *block_table; /* [max_seqs][block_table_stride] page numbers                   */
  u8 *q_codes;            /* [T][heads][128]                                               */
  f32 *w_out;             /* [T][heads]: w times head_scale, the query's scale, 128^-0.5   */
  u8 *cache;              /* [pages][INDEX_PAGE_BYTES] of this layer                       */
  u32 q_stride, k_stride, w_stride, heads, rope_dim, block_table_stride;
  u32 half_split;         /* pairs of rope columns: 0: (2i, 2i + 1), 1: (i, i + rope_dim / 2) */
  u32 scale_kind;
  f32 eps;                /* of k_norm                                                     */
  f32 head_scale;         /* fp32(heads^-0.5)                                              */
} index_qk_args;

/* scores[t - row_first][j], j up to the position of t, for the tokens t of row_first .. row_first + row_count - 1 whose position is at
 * least topk. */
typedef struct index_score_args {
  const step_in *step;
  const u8 *q_codes;      /* [T][heads][128]                        */
  const f32 *w;           /* [T][heads]                             */
  const u8 *cache;        /* [pages][INDEX_PAGE_BYTES]              */
  const u32 *position, *seq, *block_table;
  f32 *scores;            /* [row_count][stride]                    */
  u32 heads, block_table_stride;
  u32 topk, stride;       /* stride a multiple of 64, at least max_len */
  u32 row_first, row_count;
} index_score_args;

/* lists[t]: the positions of the topk best scores, ascending; all positions where there are at most topk. Rows as in index_score. */
typedef struct index_topk_args {
  const step_in *step;
  const f32 *scores;      /* [row_count][stride]                    */
  const u32 *position;    /* [T]                                    */
  u32 *lists;             /* [T][topk]; INDEX_NONE after the last   */
  u32 topk, stride;       /* topk a multiple of 64, at most INDEX_TOPK_MAX */
  u32 row_first, row_count;
} index_topk_args;

#endif
