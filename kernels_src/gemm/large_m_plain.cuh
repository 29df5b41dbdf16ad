/* large_m_plain.cuh - the consumer warpgroups of large_m.cuh for bf16 numbers: a part of large_m.cuh.
 *
 * Weights are the 64-row operand, and the sums of a tile stay in registers from the first k to the last. Read next: large_m_store.cuh. */
#ifndef VERBATIM_LARGE_M_PLAIN_CUH
#define VERBATIM_LARGE_M_PLAIN_CUH
#include "gemm/large_m.cuh"

/* acc = the H16 sums over k of a tile of this width. meanwhile: work to overlap with the first MMAs. */
template <u32 WIDTH, class MEANWHILE>
NUM void large_m_product(large_m_sums &acc, large_m_ring &r, u32 group, u32 width, u32 blocks, MEANWHILE meanwhile) {
  if constexpr (WIDTH > LARGE_M_STEP) {
    if (width < WIDTH) {
      large_m_product<WIDTH - LARGE_M_STEP>(acc, r, group, width, blocks, meanwhile);
      return;
    }
  }
  const u32 left = large_m_release_barrier(r);
  u32 before = r.stage;
  for (u32 block = 0; block < blocks; block += SPEC_DEPTH) {
    const u32 at = r.stages + r.stage * LARGE_M_STAGE_BYTES;
    ptx_barrier_wait(large_m_full(r, r.stage), r.parity);
    u64 w = ptx_operand(PTX_SWIZZLED, at + group * 8192u), x = ptx_operand(PTX_SWIZZLED, at + SPEC_DEPTH * LARGE_M_W_BYTES);
    if (SPEC_DEPTH == 1u || blocks - block >= SPEC_DEPTH) {
      ptx_multiply_fence();
#pragma unroll
      for (u32 i = 0; i < 4u * SPEC_DEPTH; i++)
        ptx_multiply(reinterpret_cast<f32(&)[WIDTH / 2u]>(acc), w + i / 4u * (LARGE_M_W_BYTES / 16u) + i % 4u * 2u,
                     x + i / 4u * (LARGE_M_X_BYTES / 16u) + i % 4u * 2u);
      ptx_multiply_commit();
    } else {
#pragma unroll 1
      for (u32 i = block; i < blocks; i++) {
        ptx_multiply_fence();
#pragma unroll
        for (u32 j = 0; j < 4; j++) ptx_multiply(reinterpret_cast<f32(&)[WIDTH / 2u]>(acc), w + j * 2u, x + j * 2u);
        ptx_multiply_commit();
        w += LARGE_M_W_BYTES / 16u;
        x += LARGE_M_X_BYTES / 16u;
      }
    }
    if (block == 0) meanwhile();
    PTX_MULTIPLY_WAIT(1); /* the previous stage is done: it may be refilled */
    if (block > 0) large_m_release(left, before);
    before = r.stage;
    large_m_advance(r);
  }
  PTX_MULTIPLY_WAIT(0);
  large_m_release(left, before);
}

/* A consumer warpgroup. */
template <class WORK> NUM void large_m_multiply(WORK &work, large_m_ring r, const u8 *shared, u32 k) {
  const u32 group = ptx_uniform(threadIdx.x / 128u) - 1u, staging = r.staging + group * LARGE_M_CHUNK * 128u;
  u32 item = large_m_cluster();
  large_m_tile tile, next;
  ptx_grid_wait();
  for (bool more = work.find(item, tile); more; tile = next) {
    item += large_m_clusters();
    large_m_sums acc;
#pragma unroll
    for (u32 i = 0; i < LARGE_M_ACCUMULATORS; i++) acc[i] = 0.0f;
    large_m_product<SPEC_TILE_ROWS>(acc, r, group, tile.width, k / 64u, [&] { more = work.find(item, next); });
#if GEMM_BIAS
    large_m_add_bias(acc, work.a.bias, work.result(tile), tile, group);
#endif
    large_m_store(acc, work.result(tile), tile, group, shared, staging);
  }
}

#endif
