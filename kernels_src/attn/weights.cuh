/* attn/weights.cuh - a thread's scores of a page of 64 tokens as softmax weights, in mla_prefill and attn. NUMERICS.md, `mla_prefill`.
 *
 * A math warpgroup has 64 operand rows; element 4 * j + 2 * h + e of a thread's scores is row h of its two, token 8 * j + 2 * (lane % 4) +
 * e. A page that leaves m unchanged and has no very small score (is_plain) needs no more than the weights themselves. The includer defines
 * PAGES, the pages of a stage, and OUTPUTS, a thread's elements of O. Read next: attn/mla_prefill.cu. */
#ifndef VERBATIM_ATTN_WEIGHTS_CUH
#define VERBATIM_ATTN_WEIGHTS_CUH
#include "ptx/ptx.cuh"

#define NO_MAX (-0x1p60f)
#define INFINITE __int_as_float(0x7f800000)

/* Running (m, l, O) of the thread's two rows. The sums are l[0] and l[2], the others are copies. */
typedef struct chain {
  f32 m[2], l[4], o[OUTPUTS];
} chain;

static __shared__ f32 unscale; /* 1 / scale_log2 */

NUM u32 max3(u32 x, u32 y, u32 z) {
  const u32 most = x > y ? x : y;
  return most > z ? most : z;
}
NUM i32 max3(i32 x, i32 y, i32 z) {
  const i32 most = x > y ? x : y;
  return most > z ? most : z;
}

/* Bounds of the scores that a thread holds of its rows for a page. As integers, of which one instruction takes the largest of three,
 * numbers above 0 keep their order; those below 0 are reversed and, unsigned, after all others. top: the largest score, or 0 if all are
 * negative; least: the smallest one if any is negative. */
typedef struct range {
  f32 top[2], least[2];
} range;

NUM range range_of(const f32 (&s)[32u * PAGES], u32 at) {
  i32 top[2] = {0, 0};
  u32 least[2] = {0, 0};
#pragma unroll
  for (u32 i = 0; i < 32; i += 2) {
    const u32 h = i / 2u % 2u, x = num_bits(s[at + i]), y = num_bits(s[at + i + 1u]);
    top[h] = max3(top[h], (i32)x, (i32)y);
    least[h] = max3(least[h], x, y);
  }
  return {{num_float((u32)top[0]), num_float((u32)top[1])}, {num_float(least[0]), num_float(least[1])}};
}

/* Whether a row's scores leave m unchanged and none is below the least that num_weight takes: false if in doubt. */
NUM bool is_plain(f32 scale, f32 m, f32 top, f32 least) {
  return (m <= 118.0f) & (num_mul(top, scale) <= num_add(m, 8.0f)) & (num_mul(least, scale) >= num_sub(m, 119.0f)); /* branch-free */
}

/* The largest score of the page in each row, over the row's four threads. */
NUM void row_max(const f32 (&s)[32u * PAGES], u32 at, f32 (&top)[2]) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    f32 most = s[at + 2u * h];
#pragma unroll
    for (u32 i = 0; i < 32; i++)
      if (i / 2u % 2u == h) most = fmaxf(most, s[at + i]);
#pragma unroll
    for (u32 x = 1; x <= 2; x *= 2) most = fmaxf(most, __shfl_xor_sync(WARP_ALL, most, x));
    top[h] = most;
  }
}

/* Updates m for a page that is not plain, and raises scores to the least that num_weight takes. */
NUM void raise(f32 scale, f32 (&s)[32u * PAGES], u32 at, chain &c, const range &r, f32 (&factor)[2], f32 (&base)[2]) {
  f32 top[2] = {r.top[0], r.top[1]}, low[2];
#pragma unroll
  for (u32 x = 1; x <= 2; x *= 2) {
    const f32 other[2] = {__shfl_xor_sync(WARP_ALL, top[0], x), __shfl_xor_sync(WARP_ALL, top[1], x)};
    top[0] = fmaxf(top[0], other[0]);
    top[1] = fmaxf(top[1], other[1]);
  }
  if (__any_sync(WARP_ALL, !((top[0] > 0.0f) & (top[1] > 0.0f) & (r.top[0] >= 0.0f) & (r.top[1] >= 0.0f)))) row_max(s, at, top);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const f32 m = num_raise(c.m[h], num_mul(top[h], scale));
    factor[h] = num_exp2_int(num_sub(c.m[h], m)); /* 1 if they are equal */
    c.m[h] = m;
    base[h] = num_weight_base(m);
    low[h] = num_weight_low(m, unscale);
  }
  if ((low[0] <= 0.0f) & (low[1] <= 0.0f) & (r.least[0] >= low[0]) & (r.least[1] >= low[1])) return;
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[at + i] = ptx_max(s[at + i], low[i / 2u % 2u]);
}

/* The probabilities of a page as an operand: pairs of tokens, register i % 4 of step i / 4. */
NUM void pack(u32 (&p)[4][4], const f32 (&s)[32u * PAGES], u32 at) {
#pragma unroll
  for (u32 i = 0; i < 16; i++) p[i / 4u][i % 4u] = ptx_pack_bf16(s[at + 2u * i], s[at + 2u * i + 1u]);
}

NUM void rescale(chain &c, const f32 (&factor)[2]) {
  if (factor[0] == 1.0f && factor[1] == 1.0f) return;
#pragma unroll
  for (u32 i = 0; i < 4; i++) c.l[i] = num_mul(c.l[i], factor[i / 2u % 2u]);
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) c.o[i] = num_mul(c.o[i], factor[i / 2u % 2u]);
}

/* The operand 16 * `step` bytes further, never across a multiple of 2^32. */
NUM u64 further(u64 operand, u32 step) { return (operand & ~0xffffffffull) | ((u32)operand + step); }

#endif
