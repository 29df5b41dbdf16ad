/* fp8_moe_gemm_few.cuh - the form of fp8_moe_gemm for few rows an expert (few.cuh, few_scaled.cuh, few_deal.cuh).
 *
 * Each expert has ceil(its rows / SPEC_TILE_ROWS) tiles of token rows, and each of these all tiles of n columns, dealt in turn to the
 * blocks of any grid: a block finds them from expert_first. Without row_token, x is what act_quant made of another fp8_moe_gemm's result,
 * which lets itself be followed only after its own wait: expert_first is complete then, and weights are copied before the wait. Token rows
 * are gathered by 16-byte copies of a warp, their scales by copies of four bytes. maps.w: k, n and experts of w as in fp8_gemm_few.cuh.
 * Moves the weights of the experts in use once for each of their tiles of token rows; bound: these bytes. Estimated for an H200: 256
 * experts, 8 a token, 7168 x 2048, gate and up, then down, with what is between them: 95 us for 1 token (bytes at 4.0 TB/s 88). */
#ifndef VERBATIM_FP8_MOE_GEMM_FEW_CUH
#define VERBATIM_FP8_MOE_GEMM_FEW_CUH
#include "gemm/few_deal.cuh"
#include "gemm/few_scaled.cuh"

/* By a whole warp: the scales of a tile's rows come with them, stage by stage. */
NUM void few_gather_tokens(few_ring &r, const fp8_moe_gemm_args &a, const few_expert &e, u32 blocks) {
  const u32 at = e.row + num_least(threadIdx.x % 32u, e.rows - 1u), source = a.row_token ? a.row_token[at] : at;
  few_gather_x(r, a.x, a.k, a.row_token, e, blocks,
               [&](u32 block, u32 count) { few_copy_scales(r, a.x_scale, source, e.rows, block, count, blocks); });
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void fp8_moe_gemm(const __grid_constant__ fp8_moe_gemm_args a,
                                                                        const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  few_ring ring = few_start(shared, maps, FEW_GATHERS ? 32u : FEW_SCALED_ARRIVALS, FEW_SCALED_ARRIVALS);
  const u32 warp = ptx_uniform(threadIdx.x / 32u), is_silu = a.y_kind == Y_SILU;
  const u32 columns = is_silu ? a.n / 2u : a.n, height = is_silu ? FEW_HALF : SPEC_TILE_N, blocks = a.k / FEW_BLOCK_K;
  const u32 across = (columns + height - 1u) / height, scale_rows = (a.n + SCALE_COLUMNS - 1u) / SCALE_COLUMNS;
  const u32 begin = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), step = gridDim.x * gridDim.y * gridDim.z;
  if (a.row_token) ptx_grid_wait();
  ptx_grid_next(); /* the kernel behind starts when all that was before this one is complete */
  const few_deal deal = few_make_deal((u32 *)(shared + (ring.base - ptx_shared(shared)) + FEW_SCALED_END), a.expert_first, a.experts);
  const u32 tiles = few_deal_tiles(deal) * across;
  if (warp != FEW_W_WARP && !a.row_token) ptx_grid_wait();
  for (u32 tile = begin; tile < tiles; tile += step) {
    const few_expert e = few_find(deal, tile / across);
    const u32 n0 = tile % across * height;
    if (warp == FEW_W_WARP) {
      const f32 *scales = a.w_scale + (u64)e.expert * scale_rows * blocks;
      few_copy_weights(ring, &maps.w, n0, e.expert * (1u + is_silu), blocks, scales, few_find_groups(n0, columns, is_silu), false);
    } else if (warp == FEW_X_WARP) {
      if (FEW_GATHERS) few_gather_tokens(ring, a, e, blocks);
      else few_copy_tokens(ring, &maps.x, a.x, a.x_scale, a.row_token ? a.row_token[e.row] : e.row, 1, blocks);
    } else {
      const u32 slot[2] = {few_slot(0, n0, is_silu), few_slot(1, n0, is_silu)};
      f32 sum[FEW_ACCUMULATORS];
      few_scaled_product(sum, ring, blocks, FEW_GATHERS, slot, shared);
      few_store(sum, a.y_kind, a.y, (u64)e.row * columns, columns, e.rows, n0, columns, ring, shared);
    }
  }
}

#endif
