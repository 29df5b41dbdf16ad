/* turn_scores.cuh - S = Q KV^T of a block in mla_turn.cuh, and P of them, which the warpgroup that made it keeps and gives to the other
 * one. Read next: turn_outputs.cuh. */
#ifndef VERBATIM_TURN_SCORES_CUH
#define VERBATIM_TURN_SCORES_CUH
#include "turn_layout.cuh"

/* P of a block as a multiplication wants it: [j][i] two tokens of row i % 2: 16 * j + 8 * (i / 2) + 2 * (lane % 4) and the next. */
typedef struct weights {
  u32 w[4][4];
} weights;

/* Asks for s = Q KV^T of the block in `set`, boxes as they come. */
NUM void ask_scores(const place &p, f32 (&s)[32], u32 set, u32 phase) {
#pragma unroll
  for (u32 i = 0; i < 32; i++) {
    s[i] = 0.0f;
    ptx_hold(s[i]);
  }
#pragma unroll
  for (u32 x = 0; x < BOXES; x++) {
    if (x % 2u == 0) {
      wait_for(p, COME + set * GROUPS + x / 2u, phase);
      if (!CODES) ptx_fence_async();
      ptx_multiply_fence();
    }
    const u64 q = ptx_operand(PTX_SWIZZLED, BASE + AT_Q + x * BOX_BYTES), key = ptx_operand(PTX_SWIZZLED, BASE + box_at(set, x));
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply(s, q + i * 2u, key + i * 2u);
  }
  ptx_multiply_commit();
}

/* Scores of places that hold no token. */
NUM void mask_void(const place &p, f32 (&s)[32], u32 set) {
  const uint2 live = *(const uint2 *)(p.shared + AT_LIVE + set * 8u);
  if (live.x == 0xffffffffu && live.y == 0xffffffffu) return;
  const u32 word[2] = {live.x >> threadIdx.x % 4u * 2u, live.y >> threadIdx.x % 4u * 2u};
#pragma unroll
  for (u32 i = 0; i < 32; i++)
    if ((word[i / 16u] >> (i / 4u % 4u * 8u + i % 2u) & 1u) == 0) s[i] = -INFINITE;
}

/* Scales the scores in place; m of the block from theirs and that of the block before. */
NUM void raise_maxima(const mla_attn_args &a, const place &p, f32 (&s)[32], f32 (&m)[2], u32 set) {
  f32 top[2] = {-INFINITE, -INFINITE};
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[i] = num_mul(s[i], a.scale_log2);
  mask_void(p, s, set);
#pragma unroll
  for (u32 i = 0; i < 32; i++) top[i / 2u % 2u] = fmaxf(top[i / 2u % 2u], s[i]);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    top[h] = fmaxf(top[h], __shfl_xor_sync(WARP_ALL, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(WARP_ALL, top[h], 2));
    m[h] = num_raise(m[h], top[h]);
  }
}

/* P of the block in `set`; m: of the block before, becomes this one's. P and m go to the other warpgroup, P to where a warp that is late
 * may still multiply the columns behind V. */
NUM void make_weights(const mla_attn_args &a, const place &p, f32 (&s)[32], f32 (&m)[2], weights &x, u32 set) {
  raise_maxima(a, p, s, m, set);
  ptx_warps_sync(1u + set, 128);
  u8 *const to = p.shared + box_at(set, ROPE_BOX) + weights_at();
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
      const u32 e = j * 8u + i / 2u * 4u + i % 2u * 2u;
      x.w[j][i] = ptx_pack_bf16(num_exp2_bf16(num_sub(s[e], m[i % 2u])), num_exp2_bf16(num_sub(s[e + 1u], m[i % 2u])));
    }
    *(uint4 *)(to + j * 512u) = make_uint4(x.w[j][0], x.w[j][1], x.w[j][2], x.w[j][3]);
  }
  if (threadIdx.x % 4u == 0) *(float2 *)(p.shared + AT_MAX + set * 256u + maxima_at()) = make_float2(m[0], m[1]);
  __syncwarp(); /* the warp's rows are whole */
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, P_COME + set));
}

/* P and m that the other warpgroup made of the block in `set`. */
NUM void take_weights(const place &p, f32 (&m)[2], weights &x, u32 set, u32 phase) {
  wait_for(p, P_COME + set, phase);
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    const uint4 some = *(const uint4 *)(p.shared + box_at(set, ROPE_BOX) + weights_at() + j * 512u);
    x.w[j][0] = some.x;
    x.w[j][1] = some.y;
    x.w[j][2] = some.z;
    x.w[j][3] = some.w;
  }
  const float2 both = *(const float2 *)(p.shared + AT_MAX + set * 256u + maxima_at());
  m[0] = both.x;
  m[1] = both.y;
  __syncwarp(); /* all lanes have read them */
  if (threadIdx.x % 32u == 0) give_free(p, FREE + set * GROUPS + GROUPS - 1u);
}

#endif
