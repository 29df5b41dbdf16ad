/* small_m_plain.cuh - small_m.cuh for bf16 numbers: the loads of a stage and the MMAs of one.
 *
 * One fp32 accumulator per output, k ascending in steps of 16: every output is an H16 chain. Defines what the kernel bodies ask for:
 * SMALL_M_END_BYTES, SMALL_M_LOAD_ARRIVALS, small_m_load_weights, small_m_multiply, as small_m_scaled.cuh does. qkv_rope and mla_fold use
 * the parts on their own. Read next: small_m_dense.cuh, small_m_experts.cuh. */
#ifndef VERBATIM_SMALL_M_PLAIN_CUH
#define VERBATIM_SMALL_M_PLAIN_CUH
#include "gemm/small_m.cuh"

#define SMALL_M_END_BYTES SMALL_M_SCALES_AT
#define SMALL_M_LOAD_ARRIVALS 1u /* of the one thread of a producer warp */

/* By one thread: a tile's rows of weights, which are read once, or of tokens, from `row` of a matrix on, `blocks` blocks of k. paced: in
 * the first pass the ring fills no faster than 44 bytes a cycle, three times a block's share of the memory bandwidth. */
NUM void small_m_copy(small_m_ring &r, const tensor_map *map, bool weights, u32 row, u32 matrix, u32 blocks, bool paced = false) {
  const u64 policy = weights ? ptx_once() : ptx_often();
  const u32 bytes = weights ? SMALL_M_W_BYTES : SMALL_M_X_BYTES;
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks - block), to = weights ? small_m_w(r) : small_m_x(r);
    ptx_barrier_wait(small_m_empty(r, r.stage), r.parity ^ 1u);
    ptx_barrier_expect(small_m_full(r), count * bytes);
    for (u32 i = 0; i < count; i++) ptx_copy_box(to + i * bytes, map, (block + i) * SMALL_M_BLOCK_K, row, matrix, small_m_full(r), policy);
    if (paced && r.parity == 0) ptx_pause(count * bytes / 44u);
    small_m_next(r);
  }
}

/* By one thread, SPEC_TILE_ROWS 1: the token row at x. */
NUM void small_m_copy_row(small_m_ring &r, const bf16 *x, u32 blocks) {
  const u64 often = ptx_often();
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 bytes = num_least(SPEC_K_BLOCKS, blocks - block) * 128u;
    ptx_barrier_wait(small_m_empty(r, r.stage), r.parity ^ 1u);
    ptx_barrier_expect(small_m_full(r), bytes);
    ptx_copy_bulk(small_m_x(r), x + block * 64u, bytes, small_m_full(r), often);
    small_m_next(r);
  }
}

/* By the consumer warps: acc = the H16 sums of the next tile over `blocks` blocks of k. gathered: token rows were copied by threads, not by
 * TMA. */
NUM void small_m_product(f32 (&acc)[SMALL_M_ACCUMULATORS], small_m_ring &r, u32 blocks, bool gathered) {
  const u64 x_form = SPEC_TILE_ROWS == 1u ? PTX_ONE_ROW : PTX_SWIZZLED;
  u32 last = SPEC_STAGES;
#pragma unroll
  for (u32 i = 0; i < SMALL_M_ACCUMULATORS; i++) acc[i] = 0.0f;
  do {
    ptx_barrier_wait(small_m_full(r), r.parity);
    if (gathered) ptx_fence_async();
    u64 w = ptx_operand(PTX_SWIZZLED, small_m_w(r)), x = ptx_operand(x_form, small_m_x(r));
    if (blocks >= SPEC_K_BLOCKS) {
      ptx_multiply_fence();
#pragma unroll
      for (u32 i = 0; i < 4u * SPEC_K_BLOCKS; i++)
        ptx_multiply(acc, w + i / 4u * (SMALL_M_W_BYTES / 16u) + i % 4u * 2u, x + i / 4u * (SMALL_M_X_BYTES / 16u) + i % 4u * 2u);
      ptx_multiply_commit(); /* one group per stage, one in flight during the wait for the next stage: the chain never drains */
      blocks -= SPEC_K_BLOCKS;
    } else {
      do {
        ptx_multiply_fence();
#pragma unroll
        for (u32 i = 0; i < 4u; i++) ptx_multiply(acc, w + i * 2u, x + i * 2u);
        ptx_multiply_commit();
        w += SMALL_M_W_BYTES / 16u;
        x += SMALL_M_X_BYTES / 16u;
      } while (--blocks);
    }
    PTX_MULTIPLY_WAIT(1);
    if (last < SPEC_STAGES && threadIdx.x % 32u == 0) ptx_barrier_arrive(small_m_empty(r, last));
    last = r.stage;
    small_m_next(r);
  } while (blocks);
  PTX_MULTIPLY_WAIT(0);
#pragma unroll
  for (u32 i = 0; i < SMALL_M_ACCUMULATORS; i++) ptx_hold(acc[i]); /* keeps reads after the wait */
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(small_m_empty(r, last));
}

/* By one thread: the weights of the tile from column n0 on. */
template <class ARGS>
NUM void small_m_load_weights(small_m_ring &r, const ARGS &, const tensor_maps &maps, u32 n0, u32 matrix, u64, u32 is_silu, u32,
                              u32 blocks, bool paced) {
  small_m_copy(r, &maps.w, true, n0, matrix * (1u + is_silu), blocks, paced);
}

/* By the consumer warps: acc = the sums of the next tile. */
NUM void small_m_multiply(f32 (&acc)[SMALL_M_ACCUMULATORS], small_m_ring &r, u32, u32, u32 blocks, bool gathered, const u8 *) {
  small_m_product(acc, r, blocks, gathered);
}

#endif
