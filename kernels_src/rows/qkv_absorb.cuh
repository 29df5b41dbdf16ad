/* qkv_absorb.cuh - the form of qkv_rope for one token that makes the other columns of q_latent as well: H16 products with w_uk (few.cuh).
 *
 * Grid: the blocks of qkv_rope, and behind them others, which share the tiles of all heads; where there are none, all blocks do both.
 * What multiplies rounds the query itself, so that it waits for no other block. maps.w: nope_dim, kv_lora_rank and heads of w_uk, boxes of
 * 64 x SPEC_TILE_N. Moves heads * kv_lora_rank * nope_dim * 2 bytes of weights, which come before the wait: a launch and one round trip
 * to L2 bound it. In a step of DeepSeek-V2-Lite on an H200 2.5 us a layer instead of 4.3 by two ops, 22 to 30 us of 2,110; by fewer blocks
 * it is slower: 2,132 us with 32, 2,087 with 64, 2,078 with 128. */
#ifndef VERBATIM_QKV_ABSORB_CUH
#define VERBATIM_QKV_ABSORB_CUH
#include "gemm/few_plain.cuh"

/* One warp: a head's columns without rope, the only row of its product. */
NUM void absorb_copy_x(few_ring &r, const f32 *src, f32 scale, u32 blocks, u8 *shared) {
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 pairs = num_least(SPEC_K_BLOCKS, blocks - block) * 32u;
    ptx_barrier_wait(few_empty(r, r.stage), r.parity ^ 1u);
    u32 *to = (u32 *)(shared + (few_x(r) - ptx_shared(shared)));
    for (u32 i = threadIdx.x % 32u; i < pairs; i += 32u) {
      const f32 *v = src + block * 64u + 2u * i;
      to[i] = ptx_pack_bf16(num_mul(v[0], scale), num_mul(v[1], scale));
    }
    ptx_fence_async();
    ptx_barrier_arrive(few_full(r));
    few_next(r);
  }
}

/* Tiles first, first + step, ... of all tokens and heads, by a block. */
NUM void absorb(const qkv_rope_args &a, const tensor_maps &maps, u32 first, u32 step, u8 *shared) {
  few_ring ring = few_start(shared, maps, 32);
  const u32 warp = ptx_uniform(threadIdx.x / 32u), across = (a.kv_lora_rank + SPEC_TILE_N - 1u) / SPEC_TILE_N;
  const u32 tiles = a.step->token_count * a.heads * across, blocks = a.nope_dim / 64u;
  if (warp == FEW_W_WARP && threadIdx.x % 32u == 0)
    for (u32 tile = first; tile < tiles; tile += step)
      few_copy(ring, &maps.w, true, tile % across * SPEC_TILE_N, tile / across % a.heads, blocks);
  ptx_grid_wait();
  if (warp == FEW_W_WARP || warp > FEW_X_WARP) return;
  for (u32 tile = first; tile < tiles; tile += step) {
    const u32 item = tile / across, t = item / a.heads;
    if (warp == FEW_X_WARP) {
      const f32 scale = a.q_scale ? a.q_scale[a.position[t]] : 1.0f;
      absorb_copy_x(ring, a.q + (u64)t * a.q_stride + (u64)(item % a.heads) * (a.nope_dim + a.rope_dim), scale, blocks, shared);
      continue;
    }
    f32 acc[FEW_ACCUMULATORS];
    few_product(acc, ring, blocks, false);
    few_store(acc, Y_BF16, a.q_latent, (u64)item * (a.kv_lora_rank + a.rope_dim), 0, 1, tile % across * SPEC_TILE_N, a.kv_lora_rank, ring,
              shared);
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
