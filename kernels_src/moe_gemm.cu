/* moe_gemm.cu - y[row][n] = H16(x[row_token ? row_token[row] : row][:], w[expert of row][n][:]). NUMERICS.md, `moe_gemm`.
 *
 * Sorted rows of one expert follow each other (expert_first [experts + 1]); x [.][ldx], w [experts][n][k], y [T * top_k][n]
 * fp32. n a multiple of 8, k of 64, ldx of 8, pointers of 16 bytes. Grid: x over SPEC_TILE_N weight rows, y over tiles of
 * SPEC_TILE_ROWS sorted rows: each expert has ceil(rows of it / SPEC_TILE_ROWS) of them, dealt in expert order, and
 * blocks beyond the last return. Experts without rows cost nothing. Moves each used expert's weights once per tile. */
#include "spec.cuh"
#ifdef SPEC_CLUSTER
#include "moe_gemm_many.cuh"
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
  ptx_grid_next();
  ptx_grid_wait();
  const moe_tile tile = find_tile(a.expert_first, a.experts, blockIdx.y);
  if (tile.rows == 0) return;
  const u32 n0 = blockIdx.x * SPEC_TILE_N;

  tile_source source;
  tile_weights(source, a.w + (u64)tile.expert * a.n * a.k, n0, a.n, a.k);
#pragma unroll
  for (u32 i = 0; i < TILE_X_COPIES; i++) {
    const u32 row = tile_row(i), inside = row < tile.rows;
    const u32 sorted = tile.row + (inside ? row : 0u), from = a.row_token ? a.row_token[sorted] : sorted;
    source.x_bytes[i] = inside ? 16u : 0u;
    source.x[i] = a.x + (u64)from * a.ldx + tile_column();
  }
  f32 acc[TILE_ACCUMULATORS];
  tile_product(acc, source, tile_ring(shared), a.k);
  tile_store_f32(acc, (f32 *)a.y + (u64)tile.row * a.n, a.n, tile.rows, n0, a.n);
}
#endif
