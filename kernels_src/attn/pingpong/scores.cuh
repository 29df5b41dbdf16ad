/* attn/pingpong/scores.cuh - S = Q KV^T and P of a block in the pingpong form. The warpgroup that made P keeps it and passes it to the
 * other one. Read next: attn/pingpong/values.cuh. */
#ifndef VERBATIM_ATTN_PINGPONG_SCORES_CUH
#define VERBATIM_ATTN_PINGPONG_SCORES_CUH
#include "attn/pingpong/layout.cuh"

/* P of a block as a wgmma operand: [j][i] two tokens of row i % 2: 16 * j + 8 * (i / 2) + 2 * (lane % 4) and the next. */
typedef struct probs {
  u32 w[4][4];
} probs;

/* Starts s = Q KV^T of the block in `set`, box by box as they arrive. */
NUM void start_scores(const cta &b, f32 (&s)[32], u32 set, u32 phase) {
  clear_scores(s);
#pragma unroll
  for (u32 x = 0; x < BOXES; x++) {
    if (x % 2u == 0) {
      wait_full(b, FULL + set * BOX_GROUPS + x / 2u, phase);
      if (!CODES) ptx_fence_async();
      ptx_multiply_fence();
    }
    const u64 q = ptx_operand(PTX_SWIZZLED, BASE + AT_Q + x * BOX_BYTES), key = ptx_operand(PTX_SWIZZLED, BASE + box_at(set, x));
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply(s, q + i * 2u, key + i * 2u);
  }
  ptx_multiply_commit();
}

/* Scales the scores in place; gives the rows' maxima. */
NUM void scale_scores(const mla_attn_args &a, const cta &b, f32 (&s)[32], f32 (&top)[2], u32 set) {
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[i] = num_mul(s[i], a.scale_log2);
  mask_invalid(s, *(const uint2 *)(b.shared + AT_VALID + set * 8u));
  row_max(s, top);
}

/* m of the block in `set`, from m of the block before and the scores' maxima; stored for the other warpgroup, too. */
NUM void raise_max(const cta &b, f32 (&m)[2], const f32 (&top)[2], u32 set) {
  m[0] = num_raise(m[0], top[0]);
  m[1] = num_raise(m[1], top[1]);
  if (threadIdx.x % 4u == 0) *(float2 *)(b.shared + AT_MAX + set * 256u + max_at()) = make_float2(m[0], m[1]);
}
NUM void load_max(const cta &b, f32 (&m)[2], u32 set) {
  const float2 both = *(const float2 *)(b.shared + AT_MAX + set * 256u + max_at());
  m[0] = both.x;
  m[1] = both.y;
}

/* P of the block in `set`, stored for the other warpgroup, too, in the rope box: hence the barrier, a late warp may still multiply it. */
NUM void make_probs(const cta &b, const f32 (&s)[32], const f32 (&m)[2], probs &x, u32 set) {
  ptx_warps_sync(1u + set, 128);
  u8 *const to = b.shared + box_at(set, ROPE_BOX) + probs_at();
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    probs_of_step(s, m, x.w[j], j);
    *(uint4 *)(to + j * 512u) = make_uint4(x.w[j][0], x.w[j][1], x.w[j][2], x.w[j][3]);
  }
  arrive_warp(b, P_FULL + set);
}

/* Loads P that the other warpgroup made of the block in `set`; m has come with it. */
NUM void load_probs(const cta &b, probs &x, u32 set, u32 phase) {
  wait_full(b, P_FULL + set, phase);
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    const uint4 some = *(const uint4 *)(b.shared + box_at(set, ROPE_BOX) + probs_at() + j * 512u);
    x.w[j][0] = some.x;
    x.w[j][1] = some.y;
    x.w[j][2] = some.z;
    x.w[j][3] = some.w;
  }
  __syncwarp(); /* all lanes have read them */
  if (threadIdx.x % 32u == 0) release(b, EMPTY + set * BOX_GROUPS + BOX_GROUPS - 1u);
}

#endif
