/* few_deal.cuh - tiles of token rows of experts, for the forms of few.cuh: which there are, who takes them, and the gathering of rows.
 *
 * Each expert has ceil(its rows / SPEC_TILE_ROWS) tiles. A block finds them from expert_first, which a warp holds by shares.
 * Read next: moe_gemm_few.cuh, fp8_moe_gemm_few.cuh. */
#ifndef VERBATIM_FEW_DEAL_CUH
#define VERBATIM_FEW_DEAL_CUH
#include "gemm/few.cuh"
#include "ptx/reduce.cuh"

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
  return {expert, row, num_least(SPEC_TILE_ROWS, d.first[expert + 1] - row)};
}

/* By a whole warp: the token rows of a tile, 8 lanes a row; x: rows of row_bytes. more(block, count) copies what else a stage has. */
template <class F>
NUM void few_gather_x(few_ring &r, const void *x, u64 row_bytes, const u32 *row_token, const few_expert &e, u32 blocks, F more) {
  const u32 lane = threadIdx.x % 32u, piece = (lane % 8u ^ lane / 8u) * 16u;
  const u8 *from[FEW_LANE_ROWS]; /* this lane's rows: every fourth; its 16 bytes of each */
#pragma unroll
  for (u32 i = 0; i < FEW_LANE_ROWS; i++) {
    const u32 row = lane / 8u + i * 4u;
    from[i] = (const u8 *)x + (row >= e.rows ? 0u : row_token ? row_token[e.row + row] : e.row + row) * row_bytes + lane % 8u * 16u;
  }
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks - block);
    ptx_barrier_wait(few_empty(r, r.stage), r.parity ^ 1u);
    for (u32 b = 0; b < count; b++)
#pragma unroll
      for (u32 i = 0; i < FEW_LANE_ROWS; i++)
        if (lane / 8u + i * 4u < e.rows)
          ptx_copy16(few_x(r) + b * FEW_X_BLOCK + (lane / 8u + i * 4u) * 128u + (piece ^ i % 2u * 64u), from[i] + (block + b) * 128u, 16u);
    more(block, count);
    ptx_barrier_arrive_copies(few_full(r));
    few_next(r);
  }
}

#endif
