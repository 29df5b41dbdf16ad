/* attn/scores.cuh - a thread's scores of a block in the 64-row forms of mla_attn: 64 (token, head) rows by 64 tokens or list entries.
 *
 * Element 4 * j + 2 * h + e is row h of the thread's two, token 8 * j + 2 * (lane % 4) + e. NUMERICS.md, `mla_attn`. Read next:
 * attn/cluster/scores.cuh, attn/pingpong/scores.cuh, attn/split/scores.cuh. */
#ifndef VERBATIM_ATTN_SCORES_CUH
#define VERBATIM_ATTN_SCORES_CUH
#include "ptx/ptx.cuh"

#define NO_MAX (-0x1p60f)
#define INFINITE __int_as_float(0x7f800000)

NUM void clear_scores(f32 (&s)[32]) {
#pragma unroll
  for (u32 i = 0; i < 32; i++) {
    s[i] = 0.0f;
    ptx_hold(s[i]);
  }
}

/* Scores of entries that hold no token become -Inf. valid: bit j: entry j holds a token. */
NUM void mask_invalid(f32 (&s)[32], uint2 valid) {
  if (valid.x == 0xffffffffu && valid.y == 0xffffffffu) return;
  const u32 word[2] = {valid.x >> threadIdx.x % 4u * 2u, valid.y >> threadIdx.x % 4u * 2u};
#pragma unroll
  for (u32 i = 0; i < 32; i++)
    if ((word[i / 16u] >> (i / 4u % 4u * 8u + i % 2u) & 1u) == 0) s[i] = -INFINITE;
}

/* The maxima of the thread's two rows, in all four lanes that share them. */
NUM void row_max(const f32 (&s)[32], f32 (&top)[2]) {
  top[0] = top[1] = -INFINITE;
#pragma unroll
  for (u32 i = 0; i < 32; i++) top[i / 2u % 2u] = fmaxf(top[i / 2u % 2u], s[i]);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    top[h] = fmaxf(top[h], __shfl_xor_sync(WARP_ALL, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(WARP_ALL, top[h], 2));
  }
}

/* Probabilities of the thread's two rows for 16 tokens as a wgmma operand: word i is row i % 2, tokens 16 * j + 8 * (i / 2) + 2 * (lane
 * % 4) and the next. */
NUM void probs_of_step(const f32 (&s)[32], const f32 (&m)[2], u32 (&w)[4], u32 j) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    const u32 e = j * 8u + i / 2u * 4u + i % 2u * 2u;
    w[i] = ptx_pack_bf16(num_exp2_bf16(num_sub(s[e], m[i % 2u])), num_exp2_bf16(num_sub(s[e + 1u], m[i % 2u])));
  }
}

#endif
