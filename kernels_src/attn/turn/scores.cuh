/* attn/turn/scores.cuh - S = Q KV^T of a block in attn/turn/form.cuh, and P of them, which the warpgroup that made it keeps and gives to
 * the other one. Read next: attn/turn/outputs.cuh. */
#ifndef VERBATIM_TURN_SCORES_CUH
#define VERBATIM_TURN_SCORES_CUH
#include "attn/turn/layout.cuh"

/* P of a block as a multiplication wants it: [j][i] two tokens of row i % 2: 16 * j + 8 * (i / 2) + 2 * (lane % 4) and the next. */
typedef struct weights {
  u32 w[4][4];
} weights;

/* Asks for s = Q KV^T of the block in `set`, boxes as they come. */
NUM void ask_scores(const place &p, f32 (&s)[32], u32 set, u32 phase) {
  clear_scores(s);
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

/* Scales the scores in place; their tops. */
NUM void scale_scores(const mla_attn_args &a, const place &p, f32 (&s)[32], f32 (&top)[2], u32 set) {
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[i] = num_mul(s[i], a.scale_log2);
  mask_void(s, *(const uint2 *)(p.shared + AT_LIVE + set * 8u));
  find_tops(s, top);
}

/* m of the block in `set` from that of the block before and the scores' tops, for the other warpgroup, too. */
NUM void raise_maxima(const place &p, f32 (&m)[2], const f32 (&top)[2], u32 set) {
  m[0] = num_raise(m[0], top[0]);
  m[1] = num_raise(m[1], top[1]);
  if (threadIdx.x % 4u == 0) *(float2 *)(p.shared + AT_MAX + set * 256u + maxima_at()) = make_float2(m[0], m[1]);
}
NUM void take_maxima(const place &p, f32 (&m)[2], u32 set) {
  const float2 both = *(const float2 *)(p.shared + AT_MAX + set * 256u + maxima_at());
  m[0] = both.x;
  m[1] = both.y;
}

/* P of the block in `set`, which goes to the other warpgroup, too: to where a warp that is late may still multiply the columns behind V. */
NUM void make_weights(const place &p, const f32 (&s)[32], const f32 (&m)[2], weights &x, u32 set) {
  ptx_warps_sync(1u + set, 128);
  u8 *const to = p.shared + box_at(set, ROPE_BOX) + weights_at();
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    make_four(s, m, x.w[j], j);
    *(uint4 *)(to + j * 512u) = make_uint4(x.w[j][0], x.w[j][1], x.w[j][2], x.w[j][3]);
  }
  give(p, P_COME + set);
}

/* P that the other warpgroup made of the block in `set`; with it m has come. */
NUM void take_weights(const place &p, weights &x, u32 set, u32 phase) {
  wait_for(p, P_COME + set, phase);
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    const uint4 some = *(const uint4 *)(p.shared + box_at(set, ROPE_BOX) + weights_at() + j * 512u);
    x.w[j][0] = some.x;
    x.w[j][1] = some.y;
    x.w[j][2] = some.z;
    x.w[j][3] = some.w;
  }
  __syncwarp(); /* all lanes have read them */
  if (threadIdx.x % 32u == 0) give_free(p, FREE + set * GROUPS + GROUPS - 1u);
}

#endif
