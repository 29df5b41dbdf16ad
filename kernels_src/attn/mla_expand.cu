/* mla_expand.cu - k and v of all heads for one piece of the contexts: y[row][n] = bf16(H16(kv row[0 .. rank), w[n][:])), followed by the kv
 * row's rope columns. NUMERICS.md, `mla_expand`.
 *
 * A large-M product (gemm/large_m.cuh). Row r of the workspace is row r % 64 of page number piece * piece_pages + r / 64; the pages of all
 * contexts are numbered in order, and the block table tells where they are; with SPEC_PIECES kv holds those of the piece in order. TMA
 * boxes never cross a page. Whole pages are expanded, also where a context ends inside one. Two warps of the producer warpgroup copy the
 * rope columns meanwhile. Grid: any number of CTAs, best one per multiprocessor. Bound: 2 * n * rank FLOPs per row at 790 TFLOP/s; moves
 * rank + rope columns per row in, n + rope out, and the weights once. H200: 555 to 587 TFLOP/s for rank 512 and 8,192 rows or more.
 * tools/bench/history/2026-11-22-prefill-expanded.md */
#include "spec.cuh"
#include "gemm/large_m.cuh"
#include "attn/contexts.h"

typedef struct expand_product { /* what large_m.cuh needs to know of a product */
  u32 y_kind, n, k;
} expand_product;

/* The KV page from which page number `slot` of the piece is made. */
#ifdef SPEC_PIECES
NUM u32 page_of(const mla_expand_args &, u32 slot) { return slot; }
#else
NUM u32 page_of(const mla_expand_args &a, u32 slot) {
  const u32 page = a.piece * a.piece_pages + slot;
  const step_context c = contexts_find(a.contexts, a.step->seq_count, page);
  return a.block_table[(u64)c.seq * a.block_table_stride + (page - c.first)];
}
#endif

#define TILE_PAGES (SPEC_TILE_ROWS / PAGE_TOKENS)

typedef struct expand_many {
  const mla_expand_args &args;
  const expand_product a;
  u32 rows, width, n_tiles;
  u32 page[TILE_PAGES]; /* of the tile found last */

  NUM_MEMBER u32 x_matrix(const large_m_tile &, u32 i) const {
    u32 chosen = page[0];
#pragma unroll
    for (u32 j = 1; j < TILE_PAGES; j++) chosen = i >= j * PAGE_TOKENS ? page[j] : chosen;
    return chosen;
  }
  NUM_MEMBER u32 x_first(const large_m_tile &, u32 i) const { return i % PAGE_TOKENS; }

  NUM_MEMBER bool find(u32 index, large_m_tile &tile) {
    const u32 row0 = index / n_tiles * width;
    if (row0 >= rows) return false;
    tile.matrix = 0;
    tile.n0 = index % n_tiles * SPEC_TILE_N;
    tile.row = row0;
    tile.width = tile.rows = rows - row0 < width ? rows - row0 : width;
#pragma unroll
    for (u32 j = 0; j < TILE_PAGES; j++)
      if (j * PAGE_TOKENS < tile.rows) page[j] = page_of(args, row0 / PAGE_TOKENS + j);
    return true;
  }

  NUM_MEMBER large_m_result result(const large_m_tile &) const { return {(u8 *)args.y, (u64)args.n + args.rope_dim, args.n, Y_BF16}; }
} expand_many;

/* Narrower tiles if there would be fewer of them than CTAs. */
NUM u32 expand_width(u32 rows, u32 n_tiles) {
  u32 width = SPEC_TILE_ROWS;
  while (width > PAGE_TOKENS && (rows + width - 1u) / width * n_tiles < large_m_clusters()) width /= 2u;
  return width;
}

/* By threads 64 .. 127 of all CTAs, which share the rows. */
NUM void copy_rope(const mla_expand_args &a, u32 rows) {
  const u32 pieces = a.rope_dim / 8u, all = rows * pieces;
  for (u32 i = large_m_cluster() * 64u + threadIdx.x - 64u; i < all; i += large_m_clusters() * 64u) {
    const u32 row = i / pieces, column = i % pieces * 8u;
    const u64 from = (u64)page_of(a, row / PAGE_TOKENS) * PAGE_TOKENS + row % PAGE_TOKENS;
    *(uint4 *)(a.y + (u64)row * (a.n + a.rope_dim) + a.n + column) =
        *(const uint4 *)(a.kv + from * (a.kv_lora_rank + a.rope_dim) + a.kv_lora_rank + column);
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void mla_expand(const __grid_constant__ mla_expand_args a,
                                                                      const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  ptx_grid_next();
  const large_m_ring ring = large_m_start(shared);
  const u32 rows = contexts_pages_in(a.contexts, a.step->seq_count, a.piece, a.piece_pages) * PAGE_TOKENS;
  const u32 n_tiles = (a.n + SPEC_TILE_N - 1u) / SPEC_TILE_N;
  expand_many work = {a, {Y_BF16, a.n, a.kv_lora_rank}, rows, expand_width(rows, n_tiles), n_tiles, {}};
  large_m_run(work, ring, maps, shared);
  if (threadIdx.x < 64u || threadIdx.x >= 128u) return;
  ptx_grid_wait();
  copy_rope(a, rows);
}
