/* gemm_few.cuh - the form of gemm for few token rows (few.cuh).
 *
 * Grid: any number of blocks, one a multiprocessor is best; the tiles of n columns and all batches are dealt in turn. Rows beyond
 * SPEC_TILE_ROWS take another round over the weights. maps.w: k, n and batches of w, boxes of 64 x SPEC_TILE_N; for Y_SILU gate and
 * up are two matrices, and a box takes half of the rows from each. maps.x: k, launch rows and batches of x, boxes of 64 x
 * SPEC_TILE_ROWS. Moves n * k * 2 bytes of weights, each once; the weights before the end of the kernel before this one. */
#ifndef VERBATIM_GEMM_FEW_CUH
#define VERBATIM_GEMM_FEW_CUH
#include "few.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void gemm(const __grid_constant__ gemm_args a,
                                                                const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  ptx_grid_next();
  few_ring ring = few_start(shared);
  const u32 warp = ptx_uniform(threadIdx.x / 32u), is_silu = a.y_kind == Y_SILU;
  const u32 columns = is_silu ? a.n / 2u : a.n, height = is_silu ? FEW_HALF : SPEC_TILE_N, blocks = a.k / 64u;
  const u32 across = (columns + height - 1u) / height, tiles = across * a.batches;
  const u32 first = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), step = gridDim.x * gridDim.y * gridDim.z;
  const u32 *count = a.rows_kind == ROWS_TOKENS ? &a.step->token_count : &a.step->logit_count;
  if (warp == FEW_W_WARP) {
    if (threadIdx.x % 32u != 0) return;
    u32 row0 = 0;
    do {
      for (u32 tile = first; tile < tiles; tile += step)
        few_copy_w(ring, &maps.w, tile % across * height, tile / across * (1u + is_silu), blocks);
      if (row0 == 0) ptx_grid_wait();
      row0 += SPEC_TILE_ROWS;
    } while (row0 < *count);
    return;
  }
  if (warp == FEW_X_WARP && threadIdx.x % 32u != 0) return;
  ptx_grid_wait();
  u32 row0 = 0;
  do {
    for (u32 tile = first; tile < tiles; tile += step) {
      const u32 batch = tile / across;
      if (warp == FEW_X_WARP) {
        if (SPEC_TILE_ROWS == 1u) few_copy_x_row(ring, a.x + batch * a.x_batch + (u64)row0 * a.ldx, blocks);
        else few_copy_x(ring, &maps.x, row0, batch, blocks);
        continue;
      }
      f32 acc[FEW_ACCUMULATORS];
      few_product(acc, ring, blocks);
      const u32 rows = few_least(SPEC_TILE_ROWS, *count - few_least(*count, row0));
      few_store(acc, a.y_kind, a.y, batch * a.y_batch + (u64)row0 * a.ldy, a.ldy, rows, tile % across * height, columns, ring, shared);
    }
    row0 += SPEC_TILE_ROWS;
  } while (row0 < *count);
}

#endif
