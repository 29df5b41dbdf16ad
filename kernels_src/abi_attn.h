/* abi_attn.h - a part of abi.h: the argument structs of attention.
 *
 * The tiles, work items and counts that they point to are in step.h. Read next: attn/mla_attn.cu, NUMERICS.md "mla_attn". */
#ifndef VERBATIM_ABI_ATTN_H
#define VERBATIM_ABI_ATTN_H
#include "step.h"

/* Splits the contexts of a step's tiles into work items, once for all layers. */
typedef struct attn_cut_args {
  const step_in *step;
  const attn_tile *tiles;
  const u32 *block_table; /* [max_seqs][block_table_stride]                          */
  attn_counts *counts;
  attn_piece *pieces;     /* [T + slots_max] in the order in which workers take them */
  attn_part *parts;       /* [T]                                                     */
  u32 heads, block_table_stride;
  u32 chunk_tokens;       /* S */
  u32 group_chunks;       /* G */
  u32 workers;            /* blocks that the work items are dealt to                 */
  u32 slots_max;          /* most partial results of a token that fit                */
  u32 block_ns, stream_ns; /* estimates: a block of 64 tokens by one worker, and by the memory bandwidth of all */
  u32 slot_ns, split_ns;  /* estimates: one partial result of a token, any at all    */
  u32 piece_ns;           /* estimate: each work item of a worker but the first      */
  u32 list_max;           /* as in mla_attn_args                                     */
  u32 kv_heads;           /* each its own work items; 0: latent attention, where the heads share them */
  u32 all_late;           /* 1: the step has tiles beside these, whose pages it may write: no block is early */
} attn_cut_args;

typedef struct mla_attn_args {
  const step_in *step;
  const attn_tile *tiles;
  const bf16 *q;          /* [T][heads][kv_lora_rank + rope_dim]                  */
  const void *kv;         /* [pages][64] rows of this layer, as kv_format says    */
  const f32 *kv_scale;    /* [1] of this layer for KV_FP8, else null              */
  const u32 *lists;       /* [T][list_max] positions that a token attends to, ascending; null: all up to its own */
  const u32 *block_table; /* [max_seqs][block_table_stride]                       */
  bf16 *out;              /* [T][heads][kv_lora_rank]: tiles that are not split   */
  f32 *partial_o;         /* [slots_max][heads][kv_lora_rank]; null: no tile is split */
  f32 *partial_ml;        /* [slots_max][heads][2] m, l; likewise, as the next two */
  const attn_counts *counts;
  const attn_piece *pieces;
  f32 *scratch;           /* GPU: [grid][attn_block_floats], private to a block    */
  u32 *meetings;          /* GPU: [ATTN_MEETINGS] grid barriers of blocks that share a token, multiples of 32 between launches; or null */
  u32 heads, kv_lora_rank, rope_dim, block_table_stride;
  u32 chunk_tokens;       /* S */
  u32 group_chunks;       /* G */
  u32 slots_max;          /* most partial results of a token that fit; 0: no tile is split */
  f32 scale_log2;         /* softmax scale * log2(e), one fp32 number */
  u32 kv_format;
  u32 list_max;           /* 0 without lists; with them a tile has one token */
} mla_attn_args;

typedef struct mla_fold_args {
  const step_in *step;
  const attn_counts *counts;
  const attn_part *parts; /* [T] */
  f32 *partial_o;         /* undefined afterwards, unless lifts is set       */
  const f32 *partial_ml;
  bf16 *out;              /* [T][heads][kv_lora_rank]: tiles that are split  */
  const bf16 *w_uv;       /* [heads][v_dim][kv_lora_rank] for value, or null */
  bf16 *value;            /* [T][heads][v_dim] for all rows of out, or null  */
  u32 heads, kv_lora_rank, group_chunks, v_dim;
  u32 slots_max;          /* as in mla_attn_args                             */
  u32 lifts;              /* 1: w_uv is given, for steps of one token        */
} mla_fold_args;

/* One piece of the contexts: y[row][0 .. n) = bf16(H16(kv row[0 .. kv_lora_rank), w[.][:])), then the kv row's rope columns. Without a
 * block table page i of kv is page i of the piece, as kv_widen made it. */
typedef struct mla_expand_args {
  const step_in *step;          /* of the prompts                                       */
  const step_context *contexts; /* [max_seqs]                                           */
  const bf16 *kv;               /* [pages][64][kv_lora_rank + rope_dim] of this layer, or of kv_widen */
  const u32 *block_table;       /* [max_seqs][block_table_stride], or null              */
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

/* Dequantizes the KV rows of one piece of the contexts of a step's prompt tokens to bf16 in a workspace, whose page i is page number
 * piece * pages_max + i of all contexts. A context's row of the block table `table`, whose stride is 1, is that of its first page. */
typedef struct kv_widen_args {
  const step_in *step;          /* of the prompts                                       */
  const step_context *contexts; /* [max_seqs]                                           */
  const u8 *kv;                 /* [pages][64] rows of this layer, as kv_format says    */
  const f32 *kv_scale;          /* [1] of this layer for KV_FP8, else null              */
  const u32 *block_table;       /* [max_seqs][block_table_stride]                       */
  bf16 *y;                      /* [pages_max][64][kv_lora_rank + rope_dim]; rows after the end of a context are zeros */
  u32 *table;                   /* [pages_max]: i, for the pages in use; null for mla_expand, which takes pages in order */
  u32 kv_lora_rank, rope_dim, block_table_stride;
  u32 kv_format;                /* not KV_BF16                                          */
  u32 pages_max;                /* of the workspace: with a table, of all contexts; else of a piece of them */
  u32 piece;                    /* set for every launch; with a table 0                 */
} kv_widen_args;

#endif
