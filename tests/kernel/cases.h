/* cases.h - reproducible random inputs of the kernel tests: a generator, and distributions that reach the corner cases of the tensor-core
 * rule. All inputs follow from the seed, on every computer: recorded digests depend on them. */
#ifndef VERBATIM_TEST_CASES_H
#define VERBATIM_TEST_CASES_H
#include "num.h"

typedef struct cases { u64 state; } cases;

static inline u32 cases_bits(cases *c) { /* splitmix64, upper half */
  u64 z = (c->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (u32)((z ^ (z >> 31)) >> 32);
}

static inline u32 cases_below(cases *c, u32 limit) { return (u32)(((u64)cases_bits(c) * limit) >> 32); }

/* -scale .. scale, on a grid of 2^-24 */
static inline f32 cases_uniform(cases *c, f32 scale) { return ((f32)(cases_bits(c) >> 8) * 0x1p-23f - 1.0f) * scale; }

enum cases_kind {
  CASES_NORMAL,     /* exponents of ordinary weights and activations         */
  CASES_WIDE,       /* exponents -40 .. 40: most terms are truncated         */
  CASES_ANY,        /* exponents from one end of the range to the other      */
  CASES_CANCELLING, /* neighbours that cancel, some except for a last bit    */
  CASES_SUBNORMAL,  /* subnormal factors and results                         */
  CASES_ZEROS,      /* mostly zeros of both signs                            */
  CASES_HUGE_C,     /* accumulators far above the products                   */
  CASES_SPECIAL,    /* some Inf and NaN                                      */
  CASES_LONGEST,    /* all significand bits set, one sign: the largest sums  */
  CASES_KINDS
};

static inline bf16 cases_pack(u32 negative, i32 exponent, u32 fraction) {
  i32 field = exponent + 127;
  return (bf16)(negative << 15 | (u32)(field < 0 ? 0 : field > 254 ? 254 : field) << 7 | (fraction & 127u));
}

/* Fills k consecutive numbers of one operand; side 0: x, 1: w. */
static inline void cases_fill(cases *c, u32 kind, u32 side, bf16 *out, u32 k) {
  u32 one_sign = cases_below(c, 4), level = cases_below(c, 8);
  for (u32 i = 0; i < k; i++) {
    u32 r = cases_bits(c), negative = r >> 31, fraction = r & 127;
    i32 spread = (i32)(r >> 8 & 0xffff);
    switch (kind) {
      case CASES_WIDE: out[i] = cases_pack(negative, spread % 81 - 40, fraction); break;
      case CASES_ANY: out[i] = cases_pack(negative, side ? spread % 120 - 60 : spread % (40 + 24 * (i32)level) - 127, fraction); break;
      case CASES_SUBNORMAL: out[i] = cases_pack(negative, side ? spread % 60 - 40 : spread % 4 - 127, fraction); break;
      case CASES_ZEROS: out[i] = r >> 8 & 3 ? (bf16)(negative << 15) : cases_pack(negative, spread % 9 - 8, fraction); break;
      case CASES_SPECIAL: out[i] = cases_below(c, 40) ? cases_pack(negative, spread % 5 - 2, fraction)
                                                      : (bf16)(negative << 15 | 0x7f80u | (r & 256 ? fraction : 0)); break;
      case CASES_LONGEST: out[i] = cases_pack(one_sign ? 0 : negative, 0, level ? 127 : 127 - (r & 1)); break;
      default: out[i] = cases_pack(negative, spread % 9 - 8, fraction); break;
    }
    if (kind == CASES_CANCELLING && i % 2) out[i] = (bf16)(out[i - 1] ^ (side ? 0 : 0x8000u) ^ (r >> 16 & 7 ? 0 : 1));
  }
}

static inline f32 cases_accumulator(cases *c, u32 kind) {
  u32 r = cases_bits(c), fraction = r & 0x7fffff, negative = r >> 31, spread = cases_bits(c);
  i32 exponent = (i32)(spread % 17) - 12;
  if (spread >> 24 < 16) return num_float(negative << 31); /* a zero */
  if (kind == CASES_HUGE_C) exponent = (i32)(spread % 128);
  if (kind == CASES_WIDE) exponent = (i32)(spread % 161) - 80;
  if (kind == CASES_ANY) exponent = (i32)(spread % 255) - 127;
  if (kind == CASES_SUBNORMAL) exponent = (i32)(spread % 12) - 127;
  if (kind == CASES_LONGEST) return num_float((spread % 8 ? 0 : negative << 31) | (127 + spread % 3) << 23 | (0x7fffff - (r & 3)));
  if (kind == CASES_SPECIAL && spread % 29 == 0) return num_float(negative << 31 | 0x7f800000u | (spread & 512 ? fraction : 0));
  return num_float(negative << 31 | (u32)(exponent + 127) << 23 | fraction);
}

/* Golden steps: every case has 32 pairs of a chain; the first 16 set up an accumulator and the second 16 are the step under test. The
 * accumulator is three pairs (part, 1): an fp32 number is the sum of three bf16 numbers. */
#define CASES_STEP_COUNT 4608u /* 512 of each kind */

static inline void cases_step(u32 index, bf16 a[32], bf16 b[32]) {
  cases c = {.state = 0x5eed0000u + index};
  u32 kind = index % CASES_KINDS;
  f32 rest = cases_accumulator(&c, kind);
  for (u32 i = 0; i < 16; i++) {
    a[i] = 0;
    b[i] = 0x3f80;
    if (i < 3) {
      a[i] = (bf16)(num_bits(rest) >> 16);
      rest = num_sub(rest, num_from_bf16(a[i]));
    }
  }
  cases_fill(&c, kind, 0, a + 16, 16);
  cases_fill(&c, kind, 1, b + 16, 16);
}

#endif
