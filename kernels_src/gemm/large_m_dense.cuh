/* large_m_dense.cuh - the tiles of gemm and fp8_gemm for large M, in the form of large_m.cuh.
 *
 * Grid: any number of clusters along y, best one block per multiprocessor. Where SPEC_TILE_ROWS is 256 the step's rows decide how wide a
 * tile is: the width whose tiles, dealt to the blocks there are, take the least time by a count of cycles. Tiles are dealt in bands of 1024
 * rows, rows first, so that concurrent tiles share operands in L2. A last tile of fixed width that would reach beyond the rows starts
 * earlier, and computes rows that another tile has too: TMA boxes that are partly outside of their matrix are loaded at half the rate.
 * maps.w: boxes of 128 bytes by TILE_N / CLUSTER_ROWS; of gate and up, groups of eight rows of each. maps.x: boxes of 128 bytes by
 * LARGE_M_BOX. Bound: see large_m.cuh; with few rows the weights' bytes. Studies: tools/bench/history, products-large-m and
 * sparse-pipeline. Read next: large_m_plain.cuh, large_m_scaled.cuh. */
#ifndef VERBATIM_LARGE_M_DENSE_CUH
#define VERBATIM_LARGE_M_DENSE_CUH
#include "gemm/large_m.cuh"

#define GEMM_ROWS (SPEC_TILE_ROWS * SPEC_CLUSTER_ROWS) /* of a cluster */
#define GEMM_BAND (1024u / GEMM_ROWS) /* rows of clusters in a band */
#define GEMM_TILE_CYCLES 2000u /* to store a tile and to start the pipeline */

template <class ARGS> struct gemm_tiles {
  const ARGS &a;
  u32 batches;
  u64 y_batch;
  u32 count, width, n_tiles, row_tiles; /* tiles: of clusters */

  NUM_MEMBER u32 x_matrix(const large_m_tile &tile, u32) const { return tile.matrix; }
  NUM_MEMBER u32 x_first(const large_m_tile &tile, u32 i) const { return tile.row + i; }

  NUM_MEMBER bool find(u32 index, large_m_tile &tile) const {
    const u32 each = n_tiles * row_tiles, batch = index / each, in = index % each;
    if (batch >= batches) return false;
    const u32 band = in / (GEMM_BAND * n_tiles), first = band * GEMM_BAND, place = in % (GEMM_BAND * n_tiles);
    const u32 height = row_tiles - first < GEMM_BAND ? row_tiles - first : GEMM_BAND;
    const u32 row0 = ((first + place % height) * SPEC_CLUSTER_ROWS + large_m_cluster_row()) * width;
    const u32 left = count > row0 ? count - row0 : 0u;
    const u32 even = SPEC_CLUSTER_ROWS > 1u ? width : (left + LARGE_M_STEP - 1u) / LARGE_M_STEP * LARGE_M_STEP;
    const u32 last = count > width ? count - width : 0u;
    const u32 tile_n = a.y_kind == Y_SILU ? SPEC_TILE_N / 2u : SPEC_TILE_N;
    tile.matrix = batch;
    tile.n0 = (place / height * CLUSTER_COLUMNS + large_m_cluster_column()) * tile_n;
    tile.width = even < width ? even : width;
    tile.row = LARGE_M_STEP == SPEC_TILE_ROWS && row0 > last ? last : row0;
    tile.rows = left == 0 ? 0u : count - tile.row < tile.width ? count - tile.row : tile.width;
    return true;
  }

  NUM_MEMBER large_m_result result(const large_m_tile &tile) const {
    const u64 first = tile.matrix * y_batch;
    return {(u8 *)a.y + first * (a.y_kind == Y_F32 ? 4u : 2u), a.ldy, a.y_kind == Y_SILU ? a.n / 2u : a.n, a.y_kind};
  }
};

NUM u32 gemm_row_tiles(u32 count, u32 width) { return (count + width * SPEC_CLUSTER_ROWS - 1u) / (width * SPEC_CLUSTER_ROWS); }

NUM u32 gemm_width(u32 count, u32 n_tiles, u32 batches, u32 k) {
  u32 best = 0, least = 0xffffffffu;
  for (u32 width = LARGE_M_STEP; width <= SPEC_TILE_ROWS; width += LARGE_M_STEP) {
    const u32 rounds = (n_tiles * gemm_row_tiles(count, width) * batches + large_m_clusters() - 1u) / large_m_clusters();
    const u32 cycles = rounds * (large_m_cycles(width) * (k / LARGE_M_K) + GEMM_TILE_CYCLES);
    if (cycles > least) continue;
    least = cycles;
    best = width;
  }
  return best;
}

/* The kernels' body. batches: products of one shape, y_batch elements of y apart. */
template <class ARGS> NUM void dense_run(const ARGS &a, u32 batches, u64 y_batch, const tensor_maps &maps, u8 *shared) {
  ptx_grid_next();
  const large_m_ring ring = large_m_start(shared);
  const u32 count = a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count;
  const u32 columns = (a.y_kind == Y_SILU ? SPEC_TILE_N / 2u : SPEC_TILE_N) * CLUSTER_COLUMNS; /* of a cluster */
  const u32 n_tiles = ((a.y_kind == Y_SILU ? a.n / 2u : a.n) + columns - 1u) / columns;
  const u32 width = gemm_width(count, n_tiles, batches, a.k);
  const gemm_tiles<ARGS> work = {a, batches, y_batch, count, width, n_tiles, gemm_row_tiles(count, width)};
  large_m_run(work, ring, maps, shared);
}

#endif
