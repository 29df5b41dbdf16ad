/* many_plain.cuh - the multiplying side of many.cuh for bf16 numbers: a part of many.cuh.
 *
 * Weights are the 64-row operand, and a tile's sums stay in registers from the first k to the last. Read next: many_store.cuh. */
#ifndef VERBATIM_MANY_PLAIN_CUH
#define VERBATIM_MANY_PLAIN_CUH
#include "gemm/many.cuh"

/* acc = the H16 sums over k of a tile of this width. meanwhile: what there is to do beside the first multiplication. */
template <u32 WIDTH, class MEANWHILE>
NUM void many_product(many_sums &acc, many_ring &r, u32 group, u32 width, u32 blocks, MEANWHILE meanwhile) {
  if constexpr (WIDTH > MANY_STEP) {
    if (width < WIDTH) {
      many_product<WIDTH - MANY_STEP>(acc, r, group, width, blocks, meanwhile);
      return;
    }
  }
  const u32 left = many_left(r);
  u32 before = r.stage;
  for (u32 block = 0; block < blocks; block += SPEC_DEPTH) {
    const u32 at = r.stages + r.stage * MANY_STAGE_BYTES;
    ptx_barrier_wait(many_full(r, r.stage), r.parity);
    u64 w = ptx_operand(PTX_SWIZZLED, at + group * 8192u), x = ptx_operand(PTX_SWIZZLED, at + SPEC_DEPTH * MANY_W_BYTES);
    if (SPEC_DEPTH == 1u || blocks - block >= SPEC_DEPTH) {
      ptx_multiply_fence();
#pragma unroll
      for (u32 i = 0; i < 4u * SPEC_DEPTH; i++)
        ptx_multiply(reinterpret_cast<f32(&)[WIDTH / 2u]>(acc), w + i / 4u * (MANY_W_BYTES / 16u) + i % 4u * 2u,
                     x + i / 4u * (MANY_X_BYTES / 16u) + i % 4u * 2u);
      ptx_multiply_commit();
    } else {
#pragma unroll 1
      for (u32 i = block; i < blocks; i++) {
        ptx_multiply_fence();
#pragma unroll
        for (u32 j = 0; j < 4; j++) ptx_multiply(reinterpret_cast<f32(&)[WIDTH / 2u]>(acc), w + j * 2u, x + j * 2u);
        ptx_multiply_commit();
        w += MANY_W_BYTES / 16u;
        x += MANY_X_BYTES / 16u;
      }
    }
    if (block == 0) meanwhile();
    PTX_MULTIPLY_WAIT(1); /* the stage before this one is done: it may be filled */
    if (block > 0) many_leave(left, before);
    before = r.stage;
    many_advance(r);
  }
  PTX_MULTIPLY_WAIT(0);
  many_leave(left, before);
}

/* A multiplying warpgroup. */
template <class WORK> NUM void many_multiply(WORK &work, many_ring r, const u8 *shared, u32 k) {
  const u32 group = ptx_uniform(threadIdx.x / 128u) - 1u, turn = r.turn + group * MANY_CHUNK * 128u;
  u32 item = many_cluster();
  many_tile tile, next;
  ptx_grid_wait();
  for (bool more = work.find(item, tile); more; tile = next) {
    item += many_clusters();
    many_sums acc;
#pragma unroll
    for (u32 i = 0; i < MANY_ACCUMULATORS; i++) acc[i] = 0.0f;
    many_product<SPEC_TILE_ROWS>(acc, r, group, tile.width, k / 64u, [&] { more = work.find(item, next); });
    many_store(acc, work.result(tile), tile, group, shared, turn);
  }
}

#endif
