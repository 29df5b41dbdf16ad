/* fp8_gemm_few.cuh - the form of fp8_gemm for few token rows (few.cuh, few_scaled.cuh).
 *
 * Grid: any number of blocks, one a multiprocessor is best; the tiles of n columns are dealt in turn. Rows beyond SPEC_TILE_ROWS take
 * another round over the weights. maps.w: k and n of w, boxes of 128 x SPEC_TILE_N; with blocks side by side 128 k, blocks and n, boxes of
 * 128 x 2 x SPEC_TILE_N. For Y_SILU gate and up are two matrices, and a box takes half of the rows from each. maps.x: k and launch rows of
 * x, boxes of 128 x SPEC_TILE_ROWS. Moves n * k bytes of weights, each once, and as many of them as the ring holds before the end of the
 * kernel before this one.
 * Bound: these bytes at 4.3 TB/s, or, for small matrices, the launch and the chains. On an H200, us, behind each other in a graph, at 1, 8,
 * 16 and 32 rows: 2112 x 7168 (bytes: 3.5) 5.8, 5.9, 6.4 and 7.7; 4096 x 7168 with silu (6.8) 7.8, 7.9, 9.1 and 10.6; 24576 x 1536 (8.8,
 * with results of 32 rows 9.2) 8.7, 9.2, 9.9 and 11.0; 7168 x 16384 (27.3) 26.3, 26.4, 27.5 and 28.6. Without products, unpaced beyond one
 * row: 2112 x 7168 4.8, 4.4, 4.6 and 5.1, 4096 x 7168 7.1, 7.5, 8.0 and 8.7.
 * One block to a multiplication in place of two side by side, with the same rings: 2112 x 7168 6.6, 6.2, 7.0 and 9.0 for 5.8, 5.6, 6.2 and
 * 8.3. Without a pace 8 to 32 rows of 8192 x 1536 and 7168 x 2048 take 0.3 to 0.8 more, 8 and 16 of 2112 x 7168 0.2 less. With k shared by
 * clusters of two and four, which send chains to the block that adds them, 2112 x 7168 took 8.9, 10.0 and 12.2 of 1, 16 and 32 rows, where
 * it took 6.9, 8.5 and 10.3 without. */
#ifndef VERBATIM_FP8_GEMM_FEW_CUH
#define VERBATIM_FP8_GEMM_FEW_CUH
#include "gemm/few_scaled.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void fp8_gemm(const __grid_constant__ fp8_gemm_args a,
                                                                    const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  if (a.order != ORDER_FIRST) ptx_grid_next();
  few_ring ring = few_start(shared, maps, FEW_SCALED_ARRIVALS, FEW_SCALED_ARRIVALS);
  const u32 warp = ptx_uniform(threadIdx.x / 32u), is_silu = a.y_kind == Y_SILU;
  const u32 columns = is_silu ? a.n / 2u : a.n, height = is_silu ? FEW_HALF : SPEC_TILE_N, blocks = a.k / FEW_BLOCK_K;
  const u32 tiles = (columns + height - 1u) / height;
  const u32 first = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), step = gridDim.x * gridDim.y * gridDim.z;
  const u32 *count_at = a.rows_kind == ROWS_TOKENS ? &a.step->token_count : &a.step->logit_count;
  if (warp == FEW_W_WARP) {
    u32 row0 = 0;
    do {
      for (u32 tile = first; tile < tiles; tile += step)
        few_copy_weights(ring, &maps.w, tile * height, 0, blocks, a.w_scale, few_find_groups(tile * height, columns, is_silu),
                         true);
      if (row0 == 0) ptx_grid_wait();
      row0 += SPEC_TILE_ROWS;
    } while (row0 < *count_at);
    return;
  }
  if (a.order != ORDER_BESIDE) ptx_grid_wait(); /* else the warp above does, behind its copies */
  if (a.order == ORDER_FIRST) ptx_grid_next();
  const u32 count = *count_at;
  u32 row0 = 0;
  do {
    const u32 rows = num_least(SPEC_TILE_ROWS, count - num_least(count, row0));
    for (u32 tile = first; tile < tiles; tile += step) {
      const u32 n0 = tile * height;
      if (warp == FEW_X_WARP) {
        few_copy_tokens(ring, &maps.x, a.x, a.x_scale, row0, rows, blocks);
        continue;
      }
      const u32 slot[2] = {few_slot(0, n0, is_silu), few_slot(1, n0, is_silu)};
      f32 sum[FEW_ACCUMULATORS];
      few_scaled_product(sum, ring, blocks, false, slot, shared);
      few_store(sum, a.y_kind, a.y, (u64)row0 * a.ldy, a.ldy, rows, n0, columns, ring, shared);
    }
    row0 += SPEC_TILE_ROWS;
  } while (row0 < count);
}

#endif
