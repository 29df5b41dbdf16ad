/* gemm_few.cuh - the form of gemm for few token rows (few.cuh).
 *
 * Grid: any number of blocks, one a multiprocessor is best; the tiles of n columns and all batches are dealt in turn. Rows beyond
 * SPEC_TILE_ROWS take another round over the weights. maps.w: k, n and batches of w, boxes of 64 x SPEC_TILE_N; for Y_SILU gate and
 * up are two matrices, and a box takes half of the rows from each. maps.x: k, launch rows and batches of x, boxes of 64 x
 * SPEC_TILE_ROWS. Moves n * k * 2 bytes of weights, each once, and as many of them as the ring holds before the end of the kernel
 * before this one. Bound: these bytes at 4.3 TB/s, or, for small matrices, the launch (1.6 us) and the chain (18 cycles for 16 k).
 * a.order: a product beside the one before it starts about 1 us after that one's wait and takes no part of its time.
 *
 * On an H200 (CUDA 13.0, driver 580), in a graph of overlapping calls over other weights, us at 1, 8 and 32 rows, in brackets the floor
 * and cuBLASLt's best of its first 24 algorithms, split-K included, at 1 and 32 rows:
 *   2048 x 2048 3.8, 3.9, 4.6 (2.0; 5.8, 5.7)           3648 x 2048 4.8, 5.5, 5.8 (3.5; 6.3, 6.5)
 *   2048 x 10944 12.6, 12.3, 13.6 (10.4; 14.4, 15.4)    21888 x 2048 21.5, 21.9, 22.9 (20.9; 23.8, 24.7)
 *   2112 x 7168 9.0, 9.0, 9.9 (7.0; 11.6, 12.1)         24576 x 1536 17.9, 18.4, 19.6 (17.6; 19.8, 20.7)
 *   7168 x 16384 56.0, 55.9, 55.8 (54.6; 60.7, 63.9)    129280 x 7168 428, 431, 439 (431; 407, 422)
 * Lost: elected threads as in many.cuh (0 to 8 % slower); stages of 128 k of 16 weight rows (2048 x 2048 5.1 us); rings so small that two
 * blocks share a multiprocessor (there 4.8 us); all code run once before the wait (+19 us in a step of 2,322).
 * One row is paced (few_copy): a norm beside a ring that asks for all at once takes up to twice its time. A step of DeepSeek-V2-Lite, us:
 * without 2,053, with 120 cycles for 16 KB 2,034, with 200 to 420 2,011 to 2,021, with 700 2,063, with 1,000 2,170. A stage costs 0.13 us
 * beside its 10 ns for 16 k: with one row stages are 36 KB, 10 to 20 us a step less than 28; with 52, of which there are fewer, 78
 * more. Rings just large enough, which let blocks come earlier, in twos (+124) or one a multiprocessor (+72), lost:
 * two on one multiprocessor share its shared memory, which bounds the chain.
 * Weights tiled anew, so that a stage is one contiguous piece, were 5 to 8 % faster in a run of their own, and are a second layout. */
#ifndef VERBATIM_GEMM_FEW_CUH
#define VERBATIM_GEMM_FEW_CUH
#include "gemm/few_plain.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void gemm(const __grid_constant__ gemm_args a,
                                                                const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  if (a.order != ORDER_FIRST) ptx_grid_next();
  few_ring ring = few_start(shared, maps, 1);
  const u32 warp = ptx_uniform(threadIdx.x / 32u), is_silu = a.y_kind == Y_SILU;
  const u32 columns = is_silu ? a.n / 2u : a.n, height = is_silu ? FEW_HALF : SPEC_TILE_N, blocks = a.k / 64u;
  const u32 across = (columns + height - 1u) / height, tiles = across * a.batches;
  const u32 first = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), step = gridDim.x * gridDim.y * gridDim.z;
  const u32 *count_at = a.rows_kind == ROWS_TOKENS ? &a.step->token_count : &a.step->logit_count;
  if (warp == FEW_W_WARP) {
    if (threadIdx.x % 32u != 0) return;
    u32 row0 = 0;
    do {
      for (u32 tile = first; tile < tiles; tile += step)
        few_copy(ring, &maps.w, true, tile % across * height, tile / across * (1u + is_silu), blocks, SPEC_TILE_ROWS == 1u);
      if (row0 == 0) ptx_grid_wait();
      row0 += SPEC_TILE_ROWS;
    } while (row0 < *count_at);
    return;
  }
  if (warp == FEW_X_WARP && threadIdx.x % 32u != 0) return;
  if (a.order != ORDER_BESIDE) ptx_grid_wait(); /* else the thread above does, behind its copies */
  if (a.order == ORDER_FIRST) ptx_grid_next();
  const u32 count = *count_at; /* on its way while the product runs */
  u32 row0 = 0;
  do {
    for (u32 tile = first; tile < tiles; tile += step) {
      const u32 batch = tile / across;
      if (warp == FEW_X_WARP) {
        if (SPEC_TILE_ROWS == 1u) few_copy_x_row(ring, a.x + batch * a.x_batch + (u64)row0 * a.ldx, blocks);
        else few_copy(ring, &maps.x, false, row0, batch, blocks);
        continue;
      }
      f32 acc[FEW_ACCUMULATORS];
      few_product(acc, ring, blocks, false);
      const u32 rows = num_least(SPEC_TILE_ROWS, count - num_least(count, row0));
      few_store(acc, a.y_kind, a.y, batch * a.y_batch + (u64)row0 * a.ldy, a.ldy, rows, tile % across * height, columns, ring, shared);
    }
    row0 += SPEC_TILE_ROWS;
  } while (row0 < count);
}

#endif
