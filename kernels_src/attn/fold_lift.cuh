/* fold_lift.cuh - mla_fold for one token that goes on to W_uv: H16 products with w_uv (gemm/small_m_plain.cuh) of what it has folded.
 *
 * Grid: any; the CTAs share the tiles of all heads. Every CTA of a head folds the head's units itself, so that it waits for no other
 * CTA: a math thread has four columns, and as many loads in flight as a group has units; groups follow each other. A token without units
 * is taken as the attention left it. maps.w: kv_lora_rank, v_dim and heads of w_uv, boxes of 64 x SPEC_TILE_N. The ring holds a whole
 * row, and leaves room for one CTA per multiprocessor: several would start late. Moves heads * v_dim * kv_lora_rank * 2 bytes of
 * weights, which are loaded before the wait, and in every CTA the units of a head: bound by a launch and one round trip to L2.
 * DeepSeek-V2-Lite on an H200: a step 13 us shorter than with two ops. tools/bench/history/2026-11-22-one-token-shared-attention.md */
#ifndef VERBATIM_ATTN_FOLD_LIFT_CUH
#define VERBATIM_ATTN_FOLD_LIFT_CUH
#include "gemm/small_m_plain.cuh"

static_assert(SPEC_TILE_ROWS == 1, "one token");
#define LIFT_AT_ONCE 8u /* units in flight */

/* Four columns of a head: folds its units by groups, in the order of NUMERICS.md. */
NUM fold<1> fold_head(const mla_fold_args &a, const attn_part &part, u32 head, u32 column, u32 per_group) {
  fold<1> total = {}, group = {};
  u32 in_group = 0;
#pragma unroll 1
  for (u32 first = 0; first < part.units; first += LIFT_AT_ONCE) {
    float4 o[LIFT_AT_ONCE];
    float2 ml[LIFT_AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < LIFT_AT_ONCE; i++) {
      const u64 row = (u64)(part.first + (first + i) * part.step) * a.heads + head;
      if (first + i >= part.units) break;
      ml[i] = ((const float2 *)a.partial_ml)[row];
      o[i] = *(const float4 *)(a.partial_o + row * a.kv_lora_rank + column);
    }
#pragma unroll
    for (u32 i = 0; i < LIFT_AT_ONCE; i++) {
      const fold<1> unit = {ml[i].x, ml[i].y, {o[i]}};
      if (first + i >= part.units) break;
      if (in_group > 0) fold_step(group, unit);
      else group = unit;
      if (++in_group < per_group && first + i + 1u < part.units) continue;
      if (first + i < per_group) total = group;
      else fold_step(total, group);
      in_group = 0;
    }
  }
  return total;
}

/* The thread's four columns of the row of token t and this head. writes: this CTA stores them. */
NUM uint2 fold_columns(const mla_fold_args &a, const attn_counts &counts, u32 t, u32 head, bool writes) {
  const u32 column = threadIdx.x * 4u, per_group = attn_group_units(counts.piece_chunks, a.group_chunks);
  u32 nth = 0;
  while (nth < counts.parts && a.parts[nth].token != t) nth++;
  uint2 *const out = (uint2 *)(a.out + ((u64)t * a.heads + head) * a.kv_lora_rank + column);
  const attn_part part = nth < counts.parts ? a.parts[nth] : attn_part{t, 0, 0, 0};
  ptx_settle(part.units + part.first);
  ptx_grid_wait();
  if (column >= a.kv_lora_rank) return make_uint2(0u, 0u);
  if (!part.units) return ptx_load_fresh(out);
  const fold<1> all = fold_head(a, part, head, column, per_group);
  const uint2 row = latent_of(all.o[0], num_div(1.0f, all.l));
  if (writes) *out = row;
  return row;
}

/* By the math threads: the row into the next stages of the ring. */
NUM void put_row(small_m_ring &r, uint2 columns, u32 blocks, u8 *shared) {
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 own = threadIdx.x / 16u;
    ptx_barrier_wait(small_m_empty(r, r.stage), r.parity ^ 1u);
    if (own >= block && own < num_least(block + SPEC_K_BLOCKS, blocks))
      *(uint2 *)(shared + (small_m_x(r) - ptx_shared(shared)) + (own - block) * 128u + threadIdx.x % 16u * 8u) = columns;
    ptx_fence_async();
    ptx_barrier_arrive(small_m_full(r));
    small_m_next(r);
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void mla_fold(const __grid_constant__ mla_fold_args a,
                                                                    const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  ptx_grid_next();
  small_m_ring ring = small_m_start(shared, maps, 128), row_ring = ring;
  const u32 warp = ptx_uniform(threadIdx.x / 32u), across = (a.v_dim + SPEC_TILE_N - 1u) / SPEC_TILE_N, blocks = a.kv_lora_rank / 64u;
  const u32 tiles = a.step->token_count * a.heads * across;
  if (warp == SMALL_M_W_WARP && threadIdx.x % 32u == 0)
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x)
      small_m_copy(ring, &maps.w, true, tile % across * SPEC_TILE_N, tile / across % a.heads, blocks);
  const attn_counts counts = *a.counts; /* written before all layers: attn_cut.cu */
  for (u32 tile = blockIdx.x; tile < tiles && warp < SMALL_M_W_WARP; tile += gridDim.x) {
    const u32 item = tile / across;
    put_row(row_ring, fold_columns(a, counts, item / a.heads, item % a.heads, tile % across == 0), blocks, shared);
    f32 acc[SMALL_M_ACCUMULATORS];
    small_m_product(acc, ring, blocks, false);
    small_m_store(acc, Y_BF16, a.value, (u64)item * a.v_dim, 0, 1, tile % across * SPEC_TILE_N, a.v_dim, ring, shared);
  }
  ptx_grid_wait();
}

#endif
