/* fp8_gemm_few.cuh - the form of fp8_gemm for few token rows (few.cuh, few_scaled.cuh).
 *
 * Grid: any number of blocks, one a multiprocessor is best; the tiles of n columns are dealt in turn. Rows beyond SPEC_TILE_ROWS take
 * another round over the weights. maps.w: k and n of w, boxes of 128 x SPEC_TILE_N; for Y_SILU gate and up are two matrices, and a box
 * takes half of the rows from each. maps.x: k and launch rows of x, boxes of 128 x SPEC_TILE_ROWS. Moves n * k bytes of weights, each
 * once, and as many of them as the ring holds before the end of the kernel before this one.
 * Bound: these bytes at 4.3 TB/s, or, for small matrices, the launch and the chains. On an H200, us, behind each other in a graph: 2112 x
 * 7168 (bytes: 3.5) at 1, 8, 16 and 32 rows 6.6, 6.2, 7.0 and 9.0, where copies alone take 5.2 of 1 row and 5.6 of 16 and 32; 4096 x 7168
 * with silu (6.8) 8.3, 8.6, 9.4 and 10.9; 32 of 24576 x 1536 (8.8, with results 9.5) 11.2 to 11.6. The factors of a stage one by one, as
 * for 32 rows: 1 row of 4096 x 7168 8.5, 16 of 2112 x 7168 7.2; all at once 32 of 4096 x 7168 11.3.
 * Two chains at a time in place of four: 6.9, 8.5 and 10.3; those in rings of which two find room 6.3, 8.4 and 10.2, where copies alone
 * take 3.45, but 4096 x 7168 with silu takes 9.6 for 8.8; with k shared by clusters of two and four, which send chains to the block that
 * adds them, 8.9, 10.0 and 12.2. */
#ifndef VERBATIM_FP8_GEMM_FEW_CUH
#define VERBATIM_FP8_GEMM_FEW_CUH
#include "few_scaled.cuh"

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
                         SPEC_TILE_ROWS == 1u);
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
