/* qkv_absorb.cuh - the form of qkv_rope for one token that also computes the other columns of q_latent: H16 products with w_uk, by
 * small_m.cuh.
 *
 * Grid: the blocks of qkv_rope, then others, which share the tiles of all heads; where there are none, all blocks do both. The consumer
 * rounds the query itself, so that it waits for no other block. maps.w: nope_dim, kv_lora_rank and heads of w_uk, boxes of 64 x
 * SPEC_TILE_N. Moves heads * kv_lora_rank * nope_dim * 2 bytes of weights, loaded before the wait: a launch and one round trip to L2 bound
 * it. On an H200, DeepSeek-V2-Lite: 2.5 us a layer, 4.3 as two ops. Study: tools/bench/history, one-token-shared-attention. */
#ifndef VERBATIM_QKV_ABSORB_CUH
#define VERBATIM_QKV_ABSORB_CUH
#include "gemm/small_m_plain.cuh"

/* By one warp: a head's columns without rope as the one token row of its product. */
NUM void absorb_copy_x(small_m_ring &r, const f32 *src, f32 scale, u32 blocks, u8 *shared) {
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 pairs = num_least(SPEC_K_BLOCKS, blocks - block) * 32u;
    ptx_barrier_wait(small_m_empty(r, r.stage), r.parity ^ 1u);
    u32 *to = (u32 *)(shared + (small_m_x(r) - ptx_shared(shared)));
    for (u32 i = threadIdx.x % 32u; i < pairs; i += 32u) {
      const f32 *v = src + block * 64u + 2u * i;
      to[i] = ptx_pack_bf16(num_mul(v[0], scale), num_mul(v[1], scale));
    }
    ptx_fence_async();
    ptx_barrier_arrive(small_m_full(r));
    small_m_next(r);
  }
}

/* By a block: tiles first, first + step, ... of all tokens and heads. */
NUM void absorb(const qkv_rope_args &a, const tensor_maps &maps, u32 first, u32 step, u8 *shared) {
  small_m_ring ring = small_m_start(shared, maps, 32);
  const u32 warp = ptx_uniform(threadIdx.x / 32u), across = (a.kv_lora_rank + SPEC_TILE_N - 1u) / SPEC_TILE_N;
  const u32 tiles = a.step->token_count * a.heads * across, blocks = a.nope_dim / 64u;
  if (warp == SMALL_M_W_WARP && threadIdx.x % 32u == 0)
    for (u32 tile = first; tile < tiles; tile += step)
      small_m_copy(ring, &maps.w, true, tile % across * SPEC_TILE_N, tile / across % a.heads, blocks);
  ptx_grid_wait();
  if (warp == SMALL_M_W_WARP || warp > SMALL_M_X_WARP) return;
  for (u32 tile = first; tile < tiles; tile += step) {
    const u32 item = tile / across, t = item / a.heads;
    if (warp == SMALL_M_X_WARP) {
      const f32 scale = a.q_scale ? a.q_scale[a.position[t]] : 1.0f;
      absorb_copy_x(ring, a.q + (u64)t * a.q_stride + (u64)(item % a.heads) * (a.nope_dim + a.rope_dim), scale, blocks, shared);
      continue;
    }
    f32 acc[SMALL_M_ACCUMULATORS];
    small_m_product(acc, ring, blocks, false);
    small_m_store(acc, Y_BF16, a.q_latent, (u64)item * (a.kv_lora_rank + a.rope_dim), 0, 1, tile % across * SPEC_TILE_N, a.kv_lora_rank,
                  ring, shared);
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void qkv_rope(const __grid_constant__ qkv_rope_args a,
                                                                    const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  __shared__ f32 partial[SPEC_THREADS];
  ptx_grid_next();
  const u32 parts = 1u + (a.heads + WARPS - 1u) / WARPS, all = a.step->token_count * parts;
  const u32 block = blockIdx.x + gridDim.x * blockIdx.y, count = gridDim.x * gridDim.y;
  const u32 apart = count > all ? all : 0u; /* blocks that only rotate and write */
  for (u32 i = block; i < all && (block < apart || !apart); i += count) {
    take_part(a, i / parts, i % parts, parts, partial);
    __syncthreads();
  }
  if (block >= apart) absorb(a, maps, block - apart, count - apart, shared);
}

#endif
