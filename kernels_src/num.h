/* num.h - the scalar arithmetic of NUMERICS.md ("Functions"), one text for the CPU and the GPU.
 *
 * Built only from IEEE-754 operations rounded to nearest even, integer operations and exact conversions, so that both sides
 * give the same bits. No special-function unit, no contraction: the host compiles with -ffp-contract=off, the kernels with
 * --fmad=false and spelled-out intrinsics. NaN payloads are the one thing that may differ. */
#ifndef VERBATIM_NUM_H
#define VERBATIM_NUM_H
#include "abi.h"

#ifdef __CUDACC_RTC__
#define NUM static __device__ __forceinline__
NUM f32 num_fma(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
NUM f32 num_mul(f32 a, f32 b) { return __fmul_rn(a, b); }
NUM f32 num_add(f32 a, f32 b) { return __fadd_rn(a, b); }
NUM f32 num_sub(f32 a, f32 b) { return __fsub_rn(a, b); }
NUM f32 num_div(f32 a, f32 b) { return __fdiv_rn(a, b); }
NUM f32 num_sqrt(f32 a) { return __fsqrt_rn(a); }
NUM u32 num_bits(f32 x) { return __float_as_uint(x); }
NUM f32 num_float(u32 u) { return __uint_as_float(u); }
NUM u64 num_mulhi64(u64 a, u64 b) { return __umul64hi(a, b); }
#else
#include <math.h>
#include <string.h>
#define NUM static inline
NUM f32 num_fma(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
NUM f32 num_mul(f32 a, f32 b) { return a * b; }
NUM f32 num_add(f32 a, f32 b) { return a + b; }
NUM f32 num_sub(f32 a, f32 b) { return a - b; }
NUM f32 num_div(f32 a, f32 b) { return a / b; }
NUM f32 num_sqrt(f32 a) { return sqrtf(a); }
NUM u32 num_bits(f32 x) { u32 u; memcpy(&u, &x, 4); return u; }
NUM f32 num_float(u32 u) { f32 x; memcpy(&x, &u, 4); return x; }
NUM u64 num_mulhi64(u64 a, u64 b) {
  __extension__ typedef unsigned __int128 wide;
  return (u64)(((wide)a * b) >> 64);
}
#endif

/* bf16 <-> fp32. To bf16: nearest, ties to even; every NaN becomes 0x7fff. */
NUM f32 num_from_bf16(bf16 x) { return num_float((u32)x << 16); }
NUM bf16 num_to_bf16(f32 x) {
  u32 u = num_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* fp32 <-> e4m3 (bias 7, no Inf, 0x7f and 0xff are NaN). To e4m3: nearest, ties to even, at most 448 in magnitude; NaN becomes 0x7f. */
NUM f32 num_from_e4m3(u8 x) {
  u32 exponent = (x >> 3) & 15u, fraction = x & 7u, sign = (u32)(x & 0x80u) << 24;
  if ((x & 0x7fu) == 0x7fu) return num_float(0x7fffffffu);
  if (exponent == 0) return num_float(num_bits((f32)fraction * 0x1p-9f) | sign);
  return num_float(sign | (exponent + 120u) << 23 | fraction << 20);
}
NUM u8 num_to_e4m3(f32 x) {
  u32 u = num_bits(x), magnitude = u & 0x7fffffffu, sign = u >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return 0x7fu;
  if (magnitude >= 0x43e00000u) return (u8)(sign | 0x7eu); /* 448 */
  if (magnitude < 0x3c800000u) /* 2^-6: multiples of 2^-9, which the addition rounds to */
    return (u8)(sign | (num_bits(num_add(num_float(magnitude), 0x1p14f)) - num_bits(0x1p14f)));
  return (u8)(sign | (((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3)));
}

/* The scale of e4m3 numbers whose largest magnitude is `largest`: largest / 448, or the smallest power of two not below it. NaN for NaN and
 * Inf. */
NUM f32 num_scale(f32 largest, u32 scale_kind) {
  f32 s = num_div(largest, 448.0f);
  if (!(s <= 0x1.fffffep127f)) return num_float(0x7fffffffu);
  return scale_kind == SCALE_POW2 ? num_float((num_bits(s) + 0x7fffffu) & 0x7f800000u) : s;
}
#define NUM_SCALE_LEAST 1e-4f /* lower bound of the largest magnitude */

#define NUM_ROUND 12582912.0f /* 1.5 * 2^23: adding it rounds |x| < 2^22 to the nearest integer */

/* 2^(n + f), relative error below 7.6e-5, enough for rounding to bf16. t: n + NUM_ROUND, -126 <= n <= 8; |f| <= 1/2. */
NUM f32 num_exp2_parts(f32 t, f32 f) {
  f32 p = num_fma(0x1.c3f760p-5f, f, 0x1.f0de1ap-3f);
  p = num_fma(p, f, 0x1.62f31ap-1f);
  p = num_fma(p, f, 0x1.fff692p-1f);
  return num_float(num_bits(p) + (num_bits(t) << 23));
}

/* 2^x for -126 <= x <= 8. 0 below -126. */
NUM f32 num_exp2_bf16(f32 x) {
  f32 t = num_add(x, NUM_ROUND), r = num_exp2_parts(t, num_sub(x, num_sub(t, NUM_ROUND))); /* meaningless below -126 */
  return x < -126.0f ? 0.0f : r;
}

/* 2^(s * scale - m), the softmax weights of scores s of a row whose largest, times scale, is at most m + 8; m is an integer. Scores below
 * `low` get the weight of `low`, about 2^-120. NaN unless |m| < 2^22. base, low: of the row. */
NUM f32 num_weight_base(f32 m) { return m > -4194304.0f && m < 4194304.0f ? num_sub(NUM_ROUND, m) : num_float(0x7fffffffu); }
NUM f32 num_weight_low(f32 m, f32 unscale) { return num_mul(num_sub(m, 120.0f), unscale); } /* unscale: 1 / scale */
NUM f32 num_weight(f32 s, f32 scale, f32 base) { /* s: not below low */
  f32 t = num_fma(s, scale, base);
  return num_exp2_parts(t, num_fma(s, scale, num_sub(base, t)));
}

/* 2^d for an integer d <= 0; 0 below -126. */
NUM f32 num_exp2_int(f32 d) {
  u32 u = num_bits(num_add(d, NUM_ROUND + 127.0f)) << 23;
  return d < -126.0f ? 0.0f : num_float(u);
}

/* Smallest integer >= x, for |x| < 2^22; larger magnitudes and infinities are returned as they are. */
NUM f32 num_ceil(f32 x) {
  f32 n = num_sub(num_add(x, NUM_ROUND), NUM_ROUND);
  f32 up = n < x ? num_add(n, 1.0f) : n;
  return x > -4194304.0f && x < 4194304.0f ? up : x;
}

/* The exponent m of the weights 2^(t - m) once the largest new t is top. It is raised only where weights would exceed 2^8: few blocks raise
 * it, and only these have to rescale earlier sums. */
#define NUM_RAISE_ABOVE 8.0f
NUM f32 num_raise(f32 m, f32 top) { return num_ceil(top > num_add(m, NUM_RAISE_ABOVE) ? top : m); } /* m is an integer, or far below all */

/* e^y / 2^n: t is n + NUM_ROUND, n the integer next to y / ln 2. */
NUM f32 num_exp_part(f32 y, f32 t) {
  f32 n = num_sub(t, NUM_ROUND);
  f32 r = num_fma(n, -0x1.62e400p-1f, y);
  r = num_fma(n, -0x1.7f7d1cp-20f, r);
  f32 p = 0x1.709b64p-10f;
  p = num_fma(p, r, 0x1.12903ep-7f);
  p = num_fma(p, r, 0x1.55515ep-5f);
  p = num_fma(p, r, 0x1.5553c2p-3f);
  p = num_fma(p, r, 0x1.000002p-1f);
  p = num_fma(p, r, 1.0f);
  return num_fma(p, r, 1.0f);
}
#define NUM_LOG2_E 0x1.715476p0f

/* e^x, at most 1.2 ulp; 0 below -87.3365, +Inf above 88.73. */
NUM f32 num_exp(f32 x) {
  f32 y = x < -88.0f ? -88.0f : x;
  y = y > 89.0f ? 89.0f : y;
  f32 t = num_fma(y, NUM_LOG2_E, NUM_ROUND), p = num_exp_part(y, t);
  i32 i = (i32)num_bits(t) - 0x4b400000, h = i >> 1; /* two factors: 2^128 and 2^-127 are no normal fp32 numbers */
  f32 v = num_mul(num_mul(p, num_float((u32)(127 + h) << 23)), num_float((u32)(127 + i - h) << 23));
  return x < -87.3365f ? 0.0f : v;
}

/* The same for |x| <= 87; results below 2^-126 may be any number that small. */
NUM f32 num_exp_plain(f32 x) {
  f32 t = num_fma(x, NUM_LOG2_E, NUM_ROUND);
  return num_float(num_bits(num_exp_part(x, t)) + (num_bits(t) << 23));
}

/* ln(x) for a positive normal x, at most 2.5 ulp. */
NUM f32 num_log(f32 x) {
  u32 u = num_bits(x);
  i32 e = (i32)((u - 0x3f3504f3u) >> 23); /* x = m * 2^e, m in [sqrt(1/2), sqrt(2)) */
  e = (e ^ 0x100) - 0x100;
  f32 t = num_sub(num_float(u - ((u32)e << 23)), 1.0f);
  f32 p = -0x1.c25a74p-4f;
  p = num_fma(p, t, 0x1.7d494cp-3f);
  p = num_fma(p, t, -0x1.874be8p-3f);
  p = num_fma(p, t, 0x1.a305a6p-3f);
  p = num_fma(p, t, -0x1.eabc88p-3f);
  p = num_fma(p, t, 0x1.277e36p-2f);
  p = num_fma(p, t, -0x1.715a76p-2f);
  p = num_fma(p, t, 0x1.ec7096p-2f);
  p = num_fma(p, t, -0x1.715470p-1f);
  p = num_fma(p, t, 0x1.715476p0f);
  return num_mul(num_fma(t, p, (f32)e), 0x1.62e430p-1f);
}

NUM f32 num_sigmoid(f32 x) { return num_div(1.0f, num_add(1.0f, num_exp(-x))); }
NUM f32 num_silu(f32 x) { return num_div(x, num_add(1.0f, num_exp(-x))); }

NUM u32 num_least(u32 a, u32 b) { return a < b ? a : b; }

/* Maps a float to a u32 in the total order of the floats: -Inf < ... < -0 = +0 < ... < +Inf < NaN. All NaNs are equal and largest, so a
 * choice of the largest never misses one. */
NUM u32 num_order(f32 x) {
  u32 u = num_bits(num_add(x, 0.0f)); /* -0 becomes +0 */
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The contribution of one word to a row digest (NUMERICS.md, `row_digest`). */
NUM u64 num_digest_word(u32 index, u32 word) {
  u64 z = ((u64)index << 32 | word) + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/* Philox4x32-10 (Salmon et al., SC 2011): 64 random bits, the first two output words. */
NUM u64 num_philox(u64 key, u32 position, u32 sample_index) {
  u32 c0 = position, c1 = sample_index, c2 = 0, c3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
  for (int round = 0; round < 10; round++) {
    u64 p0 = (u64)0xd2511f53u * c0, p1 = (u64)0xcd9e8d57u * c2;
    u32 n0 = (u32)(p1 >> 32) ^ c1 ^ k0, n2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c1 = (u32)p1;
    c3 = (u32)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return (u64)c1 << 32 | c0;
}

#endif
