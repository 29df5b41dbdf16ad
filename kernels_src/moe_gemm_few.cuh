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
#include "few.cuh"
#include "reduce.cuh"

#define FEW_GATHERS (SPEC_TILE_ROWS > 1u)
#define FEW_LANE_ROWS ((SPEC_TILE_ROWS + 3u) / 4u)

typedef struct few_deal { /* tiles of token rows, by lane: each lane has `share` experts */
  const u32 *first;       /* expert_first in shared memory                     */
  u32 experts, share;
  u32 upto, own;          /* tiles up to and with this lane's experts; of them */
} few_deal;

typedef struct few_expert { u32 expert, row, rows; } few_expert;

NUM u32 few_tiles(const few_deal &d, u32 expert) {
  return expert < d.experts ? (d.first[expert + 1] - d.first[expert] + SPEC_TILE_ROWS - 1u) / SPEC_TILE_ROWS : 0u;
}

/* By all threads, once. */
NUM few_deal few_make_deal(u32 *first, const u32 *expert_first, u32 experts) {
  for (u32 i = threadIdx.x; i <= experts; i += SPEC_THREADS) first[i] = ptx_load_fresh(expert_first + i);
  __syncthreads();
  few_deal d = {first, experts, (experts + 31u) / 32u, 0, 0};
  for (u32 i = 0; i < d.share; i++) d.own += few_tiles(d, threadIdx.x % 32u * d.share + i);
  d.upto = reduce_prefix_warp(d.own);
  return d;
}

NUM u32 few_deal_tiles(const few_deal &d) { return __shfl_sync(WARP_ALL, d.upto, 31); }

/* By a whole warp: the index-th tile, which exists. */
NUM few_expert few_find(const few_deal &d, u32 index) {
  const u32 lane = (u32)__ffs((i32)__ballot_sync(WARP_ALL, d.upto > index)) - 1u;
  u32 expert = lane * d.share, skip = index - (__shfl_sync(WARP_ALL, d.upto, lane) - __shfl_sync(WARP_ALL, d.own, lane));
  for (u32 tiles; skip >= (tiles = few_tiles(d, expert)); expert++) skip -= tiles;
  const u32 row = d.first[expert] + skip * SPEC_TILE_ROWS;
  return {expert, row, few_least(SPEC_TILE_ROWS, d.first[expert + 1] - row)};
}

/* By a whole warp: the token rows of a tile, 8 lanes a row. */
NUM void few_gather_x(few_ring &r, const moe_gemm_args &a, const few_expert &e, u32 blocks) {
  const u32 lane = threadIdx.x % 32u, piece = (lane % 8u ^ lane / 8u) * 16u;
  const bf16 *from[FEW_LANE_ROWS]; /* this lane's rows: every fourth; its 16 bytes of each */
#pragma unroll
  for (u32 i = 0; i < FEW_LANE_ROWS; i++) {
    const u32 row = lane / 8u + i * 4u;
    from[i] = a.x + (u64)(row >= e.rows ? 0u : a.row_token ? a.row_token[e.row + row] : e.row + row) * a.ldx + lane % 8u * 8u;
  }
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 count = few_least(SPEC_K_BLOCKS, blocks - block);
    ptx_barrier_wait(few_empty(r, r.stage), r.parity ^ 1u);
    for (u32 b = 0; b < count; b++)
#pragma unroll
      for (u32 i = 0; i < FEW_LANE_ROWS; i++)
        if (lane / 8u + i * 4u < e.rows)
          ptx_copy16(few_x(r) + b * FEW_X_BLOCK + (lane / 8u + i * 4u) * 128u + (piece ^ i % 2u * 64u), from[i] + (block + b) * 64u, 16u);
    ptx_barrier_arrive_copies(few_full(r));
    few_next(r);
  }
}

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
      if (FEW_GATHERS) few_gather_x(ring, a, e, blocks);
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
