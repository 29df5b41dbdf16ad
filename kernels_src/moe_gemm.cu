/* moe_gemm.cu - y[row][n] = H16(x[row_token ? row_token[row] : row][:], w[expert of row][n][:]). NUMERICS.md, `moe_gemm`.
 *
 * Sorted rows of one expert follow each other (expert_first [experts + 1]); x [.][ldx], w [experts][n][k], y [T * top_k][n], or n / 2
 * for Y_SILU. n a multiple of 8, k of 64, ldx of 8, pointers of 16 bytes. Two forms: with SPEC_K_BLOCKS that of moe_gemm_few.cuh, for few
 * rows an expert; else this one. Its grid: x over SPEC_TILE_N weight rows, y over tiles of SPEC_TILE_ROWS sorted rows: each expert has
 * ceil(rows of it / SPEC_TILE_ROWS) of them, dealt in expert order, and blocks beyond the last return. Experts without rows cost
 * nothing. Moves each used expert's weights once per tile. */
#include "spec.cuh"
#ifdef SPEC_K_BLOCKS
#include "few.cuh"
#include "moe_gemm_few.cuh"
#else
#include "tile.cuh"
#include "reduce.cuh"

typedef struct moe_tile {
  u32 expert, row, rows; /* rows 0: there is no such tile */
} moe_tile;

/* The index-th tile. Every warp looks for itself: no barrier. */
NUM moe_tile find_tile(const u32 *expert_first, u32 experts, u32 index) {
  const u32 lane = threadIdx.x % 32u;
  u32 before = 0;
  for (u32 e0 = 0; e0 < experts; e0 += 32u) {
    const u32 e = e0 + lane, inside = e < experts;
    const u32 first = inside ? expert_first[e] : 0u, count = inside ? expert_first[e + 1] - first : 0u;
    const u32 tiles = (count + SPEC_TILE_ROWS - 1u) / SPEC_TILE_ROWS, upto = before + reduce_prefix_warp(tiles);
    const u32 beyond = __ballot_sync(WARP_ALL, upto > index);
    if (beyond) {
      const u32 from = (u32)__ffs((i32)beyond) - 1u;
      const u32 skip = (index - (__shfl_sync(WARP_ALL, upto, from) - __shfl_sync(WARP_ALL, tiles, from))) * SPEC_TILE_ROWS;
      return {e0 + from, __shfl_sync(WARP_ALL, first, from) + skip, __shfl_sync(WARP_ALL, count, from) - skip};
    }
    before = __shfl_sync(WARP_ALL, upto, 31);
  }
  return {0, 0, 0};
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void moe_gemm(const __grid_constant__ moe_gemm_args a) {
  extern __shared__ u8 shared[];
  ptx_grid_wait();
  ptx_grid_next(); /* after the wait: see moe_gemm_few.cuh */
  const moe_tile tile = find_tile(a.expert_first, a.experts, blockIdx.y);
  if (tile.rows == 0) return;

  tile_source source;
  tile_weights(source, a.w + (u64)tile.expert * a.n * a.k, tile_first(a.y_kind), a.n, a.k, a.y_kind);
#pragma unroll
  for (u32 i = 0; i < TILE_X_COPIES; i++) {
    const u32 row = tile_row(i), inside = row < tile.rows;
    const u32 sorted = tile.row + (inside ? row : 0u), from = a.row_token ? a.row_token[sorted] : sorted;
    source.x_bytes[i] = inside ? 16u : 0u;
    source.x[i] = a.x + (u64)from * a.ldx + tile_column();
  }
  f32 acc[TILE_ACCUMULATORS];
  const u32 ring = tile_ring(shared), columns = a.y_kind == Y_SILU ? a.n / 2u : a.n;
  tile_product(acc, source, ring, a.k);
  tile_store(acc, a.y_kind, a.y, (u64)tile.row * columns, columns, tile.rows, a.n, ring, shared);
}
#endif
