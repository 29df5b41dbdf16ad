/* large_m_experts.cuh - the tiles of moe_gemm and fp8_moe_gemm for a large M of each expert, whose rows are in sorted order, in the form of
 * large_m.cuh.
 *
 * Grid: any number of clusters along y, best one block per multiprocessor. Every block makes the same list of tiles: an expert's rows are
 * split into as few tiles as SPEC_TILE_ROWS allows, whose widths differ by LARGE_M_STEP at most; they are dealt with rows first, so that a
 * part of its weights is read from memory once. The blocks of a cluster have adjacent tiles of columns. Experts without rows have no tiles.
 * Bound: up to about 130 rows an expert the weights' bytes, above as large_m.cuh. On an H200, bf16, 64 experts, 6 a token, 2048 x 1408,
 * 8192 rows: 829 us for gate and up, 443 for down. Studies: tools/bench/history, products-large-m and sparse-pipeline.
 * Read next: large_m_plain.cuh, large_m_scaled.cuh. */
#ifndef VERBATIM_LARGE_M_EXPERTS_CUH
#define VERBATIM_LARGE_M_EXPERTS_CUH
#include "gemm/large_m.cuh"
#include "ptx/reduce.cuh"

/* Result columns of a block's tile. */
NUM u32 moe_columns(u32 y_kind) { return y_kind == Y_SILU ? SPEC_TILE_N / 2u : SPEC_TILE_N; }

/* Tiles into which an expert's rows are split. */
NUM u32 moe_cuts(u32 rows) { return (rows + SPEC_TILE_ROWS - 1u) / SPEC_TILE_ROWS; }

template <class ARGS> struct moe_tiles {
  const ARGS &a;
  const u32 *first, *items; /* [experts + 1], shared: first row of an expert; its first tile in the list */
  u32 expert;               /* of the last tile found: a block's tiles ascend */

  NUM_MEMBER u32 x_matrix(const large_m_tile &, u32) const { return 0; }
  NUM_MEMBER u32 x_first(const large_m_tile &tile, u32 i) const { return tile.row + i; }

  NUM_MEMBER bool find(u32 index, large_m_tile &tile) {
    if (index >= items[a.experts]) return false;
    while (index >= items[expert + 1u]) expert++;
    const u32 row0 = first[expert], all = first[expert + 1u] - row0, in = index - items[expert];
    const u32 steps = (all + LARGE_M_STEP - 1u) / LARGE_M_STEP, cuts = moe_cuts(all), cut = in % cuts;
    const u32 at = steps * cut / cuts * LARGE_M_STEP, end = steps * (cut + 1u) / cuts * LARGE_M_STEP;
    tile.matrix = expert;
    tile.n0 = (in / cuts * SPEC_CLUSTER + large_m_cluster_column()) * moe_columns(a.y_kind);
    tile.width = end - at;
    tile.rows = (end < all ? end : all) - at;
    tile.row = row0 + at;
    return true;
  }

  NUM_MEMBER large_m_result result(const large_m_tile &) const {
    const u32 n = a.y_kind == Y_SILU ? a.n / 2u : a.n;
    return {(u8 *)a.y, n, n, a.y_kind};
  }
};

/* items[e] = tiles of the experts before e. first and items are complete for all threads on return. */
template <class ARGS> NUM void moe_list(const ARGS &a, u32 *first, u32 *items) {
  const u32 n = a.y_kind == Y_SILU ? a.n / 2u : a.n, columns = moe_columns(a.y_kind) * SPEC_CLUSTER;
  const u32 n_tiles = (n + columns - 1u) / columns, t = threadIdx.x;
  for (u32 e = t; e <= a.experts; e += SPEC_THREADS) first[e] = a.expert_first[e];
  __syncthreads();
  if (t < 32u) {
    u32 before = 0;
    for (u32 e0 = 0; e0 < a.experts; e0 += 32u) {
      const u32 e = e0 + t, rows = e < a.experts ? first[e + 1u] - first[e] : 0u;
      const u32 tiles = moe_cuts(rows) * n_tiles;
      const u32 upto = before + reduce_prefix_warp(tiles);
      if (e < a.experts) items[e] = upto - tiles;
      before = __shfl_sync(WARP_ALL, upto, 31);
    }
    if (t == 0) items[a.experts] = before;
  }
  __syncthreads();
}

/* The kernels' body. */
template <class ARGS> NUM void experts_run(const ARGS &a, const tensor_maps &maps, u8 *shared) {
  const large_m_ring ring = large_m_start(shared);
  u32 *first = (u32 *)(shared + (ring.full + LARGE_M_BARRIER_BYTES - ptx_shared(shared))), *items = first + a.experts + 1u;
  ptx_grid_wait();
  ptx_grid_next(); /* not earlier: the next product reads expert_first before it waits */
  moe_list(a, first, items);
  moe_tiles<ARGS> work = {a, first, items, 0};
  large_m_run(work, ring, maps, shared);
}

#endif
