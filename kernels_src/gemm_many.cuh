/* gemm_many.cuh - gemm for many rows, in the form of many.cuh.
 *
 * Grid: any number of clusters along y; the best is one block per multiprocessor. The blocks of a cluster have tiles side by side, which
 * share tokens. The rows of the step decide how wide a tile is: the width whose tiles, dealt to the blocks there are, take the least time
 * by a count of cycles. Tiles are dealt in bands of GEMM_BAND row tiles, rows first, so that what is under way at the same time shares
 * operands in L2. */
#ifndef VERBATIM_GEMM_MANY_CUH
#define VERBATIM_GEMM_MANY_CUH
#include "many.cuh"

#define GEMM_BAND (1024u / SPEC_TILE_ROWS) /* row tiles */
#define GEMM_LOAD_CYCLES 3u    /* a multiprocessor's 128 bytes from L2   */
#define GEMM_TILE_CYCLES 2000u /* a tile's results, and the pipeline's start */

typedef struct gemm_many {
  const gemm_args &a;
  u32 count, width, n_tiles, row_tiles;

  NUM_MEMBER u32 x_matrix(const many_tile &tile, u32) const { return tile.matrix; }
  NUM_MEMBER u32 x_first(const many_tile &tile, u32 i) const { return tile.row + i; }

  NUM_MEMBER bool find(u32 index, many_tile &tile) const {
    const u32 each = n_tiles * row_tiles, batch = index / each, in = index % each;
    if (batch >= a.batches) return false;
    const u32 band = in / (GEMM_BAND * n_tiles), first = band * GEMM_BAND, place = in % (GEMM_BAND * n_tiles);
    const u32 height = row_tiles - first < GEMM_BAND ? row_tiles - first : GEMM_BAND;
    const u32 row0 = (first + place % height) * width, left = count - row0;
    const u32 even = (left + MANY_STEP - 1u) / MANY_STEP * MANY_STEP;
    const u32 tile_n = a.y_kind == Y_SILU ? SPEC_TILE_N / 2u : SPEC_TILE_N;
    tile.matrix = batch;
    tile.n0 = (place / height * SPEC_CLUSTER + many_rank()) * tile_n;
    tile.width = even < width ? even : width;
    tile.row = row0;
    tile.rows = left < tile.width ? left : tile.width;
    return true;
  }

  NUM_MEMBER many_result result(const many_tile &tile) const {
    const u64 first = tile.matrix * a.y_batch;
    return {(u8 *)a.y + first * (a.y_kind == Y_F32 ? 4u : 2u), a.ldy, a.y_kind == Y_SILU ? a.n / 2u : a.n, a.y_kind};
  }
} gemm_many;

NUM u32 gemm_row_tiles(u32 count, u32 width) { return (count + width - 1u) / width; }

NUM u32 gemm_width(const gemm_args &a, u32 count, u32 n_tiles) {
  u32 best = 0, least = 0xffffffffu;
  for (u32 width = MANY_BOX; width <= SPEC_TILE_ROWS; width += MANY_BOX) {
    const u32 rounds = (n_tiles * gemm_row_tiles(count, width) * a.batches + many_clusters() - 1u) / many_clusters();
    const u32 multiply = width * (SPEC_TILE_N / 32u), load = (SPEC_TILE_N + width) * GEMM_LOAD_CYCLES;
    const u32 cycles = rounds * ((multiply > load ? multiply : load) * (a.k / 64u) + GEMM_TILE_CYCLES);
    if (cycles > least) continue;
    least = cycles;
    best = width;
  }
  return best;
}

extern "C" __global__ __cluster_dims__(1, SPEC_CLUSTER, 1) __launch_bounds__(SPEC_THREADS)
    void gemm(const __grid_constant__ gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  ptx_grid_next();
  const many_ring ring = many_start(shared);
  const u32 count = a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count;
  const u32 columns = (a.y_kind == Y_SILU ? SPEC_TILE_N / 2u : SPEC_TILE_N) * SPEC_CLUSTER; /* of the blocks' tiles side by side */
  const u32 n_tiles = ((a.y_kind == Y_SILU ? a.n / 2u : a.n) + columns - 1u) / columns;
  const u32 width = gemm_width(a, count, n_tiles);
  const gemm_many work = {a, count, width, n_tiles, gemm_row_tiles(count, width)};
  many_run(work, ring, maps, shared);
}

#endif
