/* moe_gemm_few.cuh - the form of moe_gemm for few rows an expert (few.cuh).
 *
 * Each expert has ceil(its rows / SPEC_TILE_ROWS) tiles of token rows, and each of these all tiles of n columns, dealt in turn to the
 * blocks of any grid: a block finds them from expert_first. Without row_token, x is what another moe_gemm of the step made, which every
 * form of it lets be followed only after its own wait: expert_first is complete then, and weights are copied before the wait. Token rows
 * are gathered by 16-byte copies of a warp (boxes of one row were tried: from 4 rows an expert on they take longer than its weights).
 * maps.w: k, n and experts of w as in gemm_few.cuh. Moves the weights of the experts in use once for each of their tiles of token rows;
 * bound: these bytes.
 *
 * On an H200 (CUDA 13.0, driver 580), gate and up with silu, then down, us in a graph of overlapping calls, in brackets the bytes of the
 * experts in use at 4.0 TB/s: 64 experts, 6 a token, 2048 x 1408: 30.4 for 1 token (26.0), 261 for 32 (268); 256 experts, 8 a token,
 * 7168 x 2048: 176 for 1 (176), 3,400 for 32 (3,721). In a step of one token the first one's blocks end up to 6 us apart, so what the
 * second one's ring holds counts: tiles of 32 rows in stages of 16 KB, 226 KB in all, take 2,053 us a step where 64 and 48 rows in 150 KB
 * take 2,087. Lost there, us a step: stages of 8 KB (+180), of 32 KB (+24), half the memory for each of the two so that both are there at
 * once (+21), tiles given out by a counter (+10), boxes without a word to L2 (+60) or by several lanes (+45). */
#ifndef VERBATIM_MOE_GEMM_FEW_CUH
#define VERBATIM_MOE_GEMM_FEW_CUH
#include "gemm/few_deal.cuh"
#include "gemm/few_plain.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void moe_gemm(const __grid_constant__ moe_gemm_args a,
                                                                    const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  few_ring ring = few_start(shared, maps, FEW_GATHERS ? 32u : 1u);
  const u32 warp = ptx_uniform(threadIdx.x / 32u), is_silu = a.y_kind == Y_SILU;
  const u32 columns = is_silu ? a.n / 2u : a.n, height = is_silu ? FEW_HALF : SPEC_TILE_N, blocks = a.k / 64u;
  const u32 across = (columns + height - 1u) / height;
  const u32 begin = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), step = gridDim.x * gridDim.y * gridDim.z;
  if (a.row_token) ptx_grid_wait();
  ptx_grid_next(); /* the kernel behind starts when all that was before this one is complete */
  const few_deal deal = few_make_deal((u32 *)(shared + (ring.base - ptx_shared(shared)) + FEW_END), a.expert_first, a.experts);
  const u32 tiles = few_deal_tiles(deal) * across;
  if (warp != FEW_W_WARP && !a.row_token) ptx_grid_wait();
  for (u32 tile = begin; tile < tiles; tile += step) {
    const few_expert e = few_find(deal, tile / across);
    const u32 n0 = tile % across * height;
    if (warp == FEW_W_WARP) {
      if (threadIdx.x % 32u == 0) few_copy(ring, &maps.w, true, n0, e.expert * (1u + is_silu), blocks);
      __syncwarp();
    } else if (warp == FEW_X_WARP) {
      if (FEW_GATHERS) few_gather_x(ring, a.x, 2ull * a.ldx, a.row_token, e, blocks, [](u32, u32) {});
      else if (threadIdx.x % 32u == 0)
        few_copy_x_row(ring, a.x + (u64)(a.row_token ? a.row_token[e.row] : e.row) * a.ldx, blocks);
      __syncwarp();
    } else {
      f32 acc[FEW_ACCUMULATORS];
      few_product(acc, ring, blocks, FEW_GATHERS);
      few_store(acc, a.y_kind, a.y, (u64)e.row * columns, columns, e.rows, n0, columns, ring, shared);
    }
  }
}

#endif
