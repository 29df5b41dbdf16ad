/* attn/pingpong/values.cuh - the values of a math warpgroup of the pingpong form: O += P V and l += P 1 for half of the columns.
 *
 * Both warpgroups add all blocks in the order of the list; while one computes P the other multiplies. Over codes, warpgroup 1 adds an
 * even block before it scores the odd one, which may not have arrived: boxes are released in the order in which they are filled, else
 * everyone waits for the slowest way around. bf16 rows arrive sooner and need the opposite order: m of an even block is sent before its
 * P, so that P of the odd one is computed during its products. The boxes of the next scores are waited for after all products. Between
 * the first and the last wgmma of a group there may be no branch: the compiler would wait after every wgmma. Read next:
 * attn/pingpong/epilogue.cuh. */
#ifndef VERBATIM_ATTN_PINGPONG_VALUES_CUH
#define VERBATIM_ATTN_PINGPONG_VALUES_CUH
#include "attn/pingpong/scores.cuh"

/* Element 4 * j + 2 * h + e of both halves of O: head h of the thread's two, column 8 * j + e; l in elements 0 and 2. */
typedef struct output {
  f32 m[2], l[4], o[2][64];
} output;

NUM void clear(output &out) {
  out.m[0] = out.m[1] = NO_MAX;
#pragma unroll
  for (u32 i = 0; i < 4; i++) out.l[i] = 0.0f;
#pragma unroll
  for (u32 i = 0; i < 128; i++) out.o[i / 64u][i % 64u] = 0.0f;
}

/* Rescales the sums from out.m to m, which most blocks leave unchanged. */
template <u32 G> NUM void rescale(output &out, const f32 (&m)[2]) {
  if (__ballot_sync(WARP_ALL, m[0] != out.m[0] || m[1] != out.m[1])) {
    const f32 factor[2] = {num_exp2_int(num_sub(out.m[0], m[0])), num_exp2_int(num_sub(out.m[1], m[1]))}; /* 1 if m is unchanged */
#pragma unroll
    for (u32 i = 0; i < 4 && G == 0; i++) out.l[i] = num_mul(out.l[i], factor[i / 2u]);
#pragma unroll
    for (u32 i = 0; i < 128; i++) out.o[i / 64u][i % 64u] = num_mul(out.o[i / 64u][i % 64u], factor[i / 2u % 2u]);
  }
  out.m[0] = m[0];
  out.m[1] = m[1];
}

/* Starts O += P V of warpgroup G's columns and, for G = 0, l += P 1: in two groups, so that half of the boxes are released early. */
template <u32 G> NUM void start_values(output &out, const probs &x, u32 set) {
  const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), BASE + box_at(set, G * HALF)), ones = ptx_operand(PTX_PLAIN, BASE + AT_ONES);
#pragma unroll
  for (u32 i = 0; i < 128; i++) ptx_hold(out.o[i / 64u][i % 64u]);
#pragma unroll
  for (u32 i = 0; i < 4 && G == 0; i++) ptx_hold(out.l[i]);
  ptx_multiply_fence();
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply_across(out.o[h], x.w[i], v + i * 128u + h * (2u * BOX_BYTES >> 4));
#pragma unroll
    for (u32 i = 0; i < 4 && h && G == 0; i++) ptx_multiply(out.l, x.w[i], ones);
    ptx_multiply_commit();
  }
}

/* Releases the values of warpgroup G as their products are done. */
template <u32 G> NUM void release_values(const cta &b, u32 set) {
  PTX_MULTIPLY_WAIT(1);
  if (threadIdx.x % 32u == 0) release(b, EMPTY + set * BOX_GROUPS + G * 2u);
  PTX_MULTIPLY_WAIT(0);
  if (threadIdx.x % 32u == 0) release(b, EMPTY + set * BOX_GROUPS + G * 2u + 1u);
}

#endif
