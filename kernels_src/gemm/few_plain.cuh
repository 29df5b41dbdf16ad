/* few_plain.cuh - what products of bf16 numbers add to few.cuh: the copies of a stage, and the multiplications of one.
 *
 * One fp32 accumulator per output, k ascending in steps of 16: every output is H16. Read next: gemm_few.cuh, moe_gemm_few.cuh. */
#ifndef VERBATIM_FEW_PLAIN_CUH
#define VERBATIM_FEW_PLAIN_CUH
#include "gemm/few.cuh"

/* One thread: the rows of a tile's weights, which are read once, or of its tokens, from `row` of a matrix on, `blocks` times FEW_BLOCK_K.
 * paced: the ring is filled no faster than 44 bytes a cycle at first, three times what the memory gives to all. */
NUM void few_copy(few_ring &r, const tensor_map *map, bool weights, u32 row, u32 matrix, u32 blocks, bool paced = false) {
  const u64 policy = weights ? ptx_once() : ptx_often();
  const u32 bytes = weights ? FEW_W_BLOCK : FEW_X_BLOCK;
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks - block), to = weights ? few_w(r) : few_x(r);
    ptx_barrier_wait(few_empty(r, r.stage), r.parity ^ 1u);
    ptx_barrier_expect(few_full(r), count * bytes);
    for (u32 i = 0; i < count; i++) ptx_copy_box(to + i * bytes, map, (block + i) * FEW_BLOCK_K, row, matrix, few_full(r), policy);
    if (paced && r.parity == 0) ptx_pause(count * bytes / 44u);
    few_next(r);
  }
}

/* One thread, SPEC_TILE_ROWS 1: the token row at x. */
NUM void few_copy_x_row(few_ring &r, const bf16 *x, u32 blocks) {
  const u64 often = ptx_often();
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 bytes = num_least(SPEC_K_BLOCKS, blocks - block) * 128u;
    ptx_barrier_wait(few_empty(r, r.stage), r.parity ^ 1u);
    ptx_barrier_expect(few_full(r), bytes);
    ptx_copy_bulk(few_x(r), x + block * 64u, bytes, few_full(r), often);
    few_next(r);
  }
}

/* By the warps that multiply: acc = the H16 sums of the next tile over `blocks` times 64 k. gathered: token rows came by copies of
 * threads, not of the copy engine. */
NUM void few_product(f32 (&acc)[FEW_ACCUMULATORS], few_ring &r, u32 blocks, bool gathered) {
  const u64 x_form = SPEC_TILE_ROWS == 1u ? PTX_ONE_ROW : PTX_SWIZZLED;
  u32 last = SPEC_STAGES;
#pragma unroll
  for (u32 i = 0; i < FEW_ACCUMULATORS; i++) acc[i] = 0.0f;
  do {
    ptx_barrier_wait(few_full(r), r.parity);
    if (gathered) ptx_fence_async();
    u64 w = ptx_operand(PTX_SWIZZLED, few_w(r)), x = ptx_operand(x_form, few_x(r));
    if (blocks >= SPEC_K_BLOCKS) {
      ptx_multiply_fence();
#pragma unroll
      for (u32 i = 0; i < 4u * SPEC_K_BLOCKS; i++)
        ptx_multiply(acc, w + i / 4u * (FEW_W_BLOCK / 16u) + i % 4u * 2u, x + i / 4u * (FEW_X_BLOCK / 16u) + i % 4u * 2u);
      ptx_multiply_commit(); /* one group a stage, and one in flight while the next stage is waited for: the chain never drains */
      blocks -= SPEC_K_BLOCKS;
    } else {
      do {
        ptx_multiply_fence();
#pragma unroll
        for (u32 i = 0; i < 4u; i++) ptx_multiply(acc, w + i * 2u, x + i * 2u);
        ptx_multiply_commit();
        w += FEW_W_BLOCK / 16u;
        x += FEW_X_BLOCK / 16u;
      } while (--blocks);
    }
    PTX_MULTIPLY_WAIT(1);
    if (last < SPEC_STAGES && threadIdx.x % 32u == 0) ptx_barrier_arrive(few_empty(r, last));
    last = r.stage;
    few_next(r);
  } while (blocks);
  PTX_MULTIPLY_WAIT(0);
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(few_empty(r, last));
}

#endif
