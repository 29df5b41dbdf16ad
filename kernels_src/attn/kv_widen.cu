/* kv_widen.cu - KV rows of the contexts that a step's prompt tokens attend to, dequantized to bf16 in a workspace. NUMERICS.md, `kv_widen`.
 *
 * Attention of many heads, where every query would dequantize its rows anew, reads rows that are dequantized once a step. Page i of the
 * workspace is page number i of all contexts; `table`, the identity, is their block table. With SPEC_PIECES, for mla_expand, the workspace
 * holds one piece of the contexts, and there is no table. A share is 16 rows: a thread has nine pieces of eight columns, and loads all of
 * them before it converts the first. Grid: any number of CTAs. Moves KV_ROW_BYTES in and 2 * (rank + rope) bytes out per row. Bound: these
 * bytes at 4.3 TB/s, for few rows the launch and two round trips. H200, KV_FP8_DS_MLA, 65,536 rows: 35.9 us (3.3 TB/s).
 * tools/bench/history/2026-11-22-sparse-pipeline.md */
#include "spec.cuh"
#include "attn/contexts.h"
#include "attn/kv_codes.cuh"

#define PIECE 8u                          /* columns */
#define SHARE_ROWS 16u
#define SHARES (PAGE_TOKENS / SHARE_ROWS) /* of a page */
#define AT_ONCE 9u                        /* pieces of a thread */

#ifdef SPEC_PIECES
#define FIRST_PAGE(a) ((a).piece * (a).pages_max)
#define PIECE_NUMBER(a) (a).piece
#else
#define FIRST_PAGE(a) 0u
#define PIECE_NUMBER(a) 0u
#endif

typedef struct row_shape {
  u32 columns, coded;          /* the first `coded` columns are codes, the others bf16 numbers */
  u32 bytes, scales_at, rope_at;
  u32 step_rows, step_columns; /* between the pieces of a thread */
  bool has_scales;             /* per SCALE_COLUMNS; else per layer */
} row_shape;

NUM row_shape shape_of(const kv_widen_args &a) {
  const u32 columns = a.kv_lora_rank + a.rope_dim;
  const bool has_scales = a.kv_format == KV_FP8_DS_MLA;
  return {columns, has_scales ? a.kv_lora_rank : columns, KV_ROW_BYTES(a.kv_format, a.kv_lora_rank, a.rope_dim), a.kv_lora_rank,
          a.kv_lora_rank + a.kv_lora_rank / SCALE_COLUMNS * 4u, SPEC_THREADS * PIECE / columns, SPEC_THREADS * PIECE % columns, has_scales};
}

typedef struct piece { /* as it is in memory */
  uint4 v;
  f32 scale; /* of codes, which are in v.x and v.y */
} piece;

NUM piece take_piece(const row_shape &s, const u8 *row, u32 column, f32 layer_scale) {
  piece p = {make_uint4(0, 0, 0, 0), layer_scale};
  if (column >= s.coded) {
    p.v = *(const uint4 *)(row + s.rope_at + (column - s.coded) * 2u);
    return p;
  }
  const uint2 codes = *(const uint2 *)(row + column);
  p.v.x = codes.x;
  p.v.y = codes.y;
  if (s.has_scales) p.scale = *(const f32 *)(row + s.scales_at + column / SCALE_COLUMNS * 4u);
  return p;
}

typedef struct cursor { /* of a thread in a share; its pieces are SPEC_THREADS apart */
  u32 row, column;
} cursor;

NUM void advance(const row_shape &s, cursor &c) {
  const u32 column = c.column + s.step_columns;
  const bool wraps = column >= s.columns;
  c.row += s.step_rows + (wraps ? 1u : 0u);
  c.column = column - (wraps ? s.columns : 0u);
}

/* Dequantizes SHARE_ROWS rows; those from `live` on become zeros. */
NUM void widen_share(const row_shape &s, cursor c, const u8 *from, bf16 *to, u32 live, f32 layer_scale) {
#pragma unroll 1
  while (c.row < SHARE_ROWS) {
    piece p[AT_ONCE];
    cursor next = c;
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      p[i] = {make_uint4(0, 0, 0, 0), 0.0f};
      if (next.row < live) p[i] = take_piece(s, from + (u64)next.row * s.bytes, next.column, layer_scale);
      advance(s, next);
    }
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      const uint4 wide = c.column < s.coded ? kv_codes_widen(make_uint2(p[i].v.x, p[i].v.y), p[i].scale) : p[i].v;
      if (c.row < SHARE_ROWS) *(uint4 *)(to + c.row * s.columns + c.column) = wide;
      advance(s, c);
    }
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 6) void kv_widen(const __grid_constant__ kv_widen_args a) {
  ptx_grid_next();
  const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), blocks = gridDim.x * gridDim.y * gridDim.z;
  const u32 count = a.step->seq_count, shares = contexts_pages_in(a.contexts, count, PIECE_NUMBER(a), a.pages_max) * SHARES;
  const row_shape s = shape_of(a);
  const f32 layer_scale = s.has_scales ? 0.0f : *a.kv_scale;
  const cursor begin = {threadIdx.x * PIECE / s.columns, threadIdx.x * PIECE % s.columns};
#pragma unroll 1
  for (u32 share = block; share < shares; share += blocks) {
    const u32 slot = share / SHARES, first = share % SHARES * SHARE_ROWS, page = FIRST_PAGE(a) + slot;
    const step_context c = contexts_find(a.contexts, count, page);
    const u32 number = a.block_table[(u64)c.seq * a.block_table_stride + (page - c.first)];
    const u32 end = c.tokens - (page - c.first) * PAGE_TOKENS, left = end > first ? end - first : 0u;
    ptx_settle(number + left); /* inputs of the step, known before the rows are */
    ptx_grid_wait();
#ifndef SPEC_PIECES
    if (first == 0 && threadIdx.x == 0) a.table[page] = page;
#endif
    widen_share(s, begin, a.kv + ((u64)number * PAGE_TOKENS + first) * s.bytes, a.y + ((u64)slot * PAGE_TOKENS + first) * s.columns,
                left < SHARE_ROWS ? left : SHARE_ROWS, layer_scale);
  }
  ptx_grid_wait(); /* without work as well: a CTA that ended early would let the next kernel overtake the one before */
}
