/* fp8_cases.h - shared by the tests of fp8_gemm and fp8_moe_gemm: codes that reach the corner cases of H32, scales, the result by its
 * definition, and the variants of both forms. */
#ifndef VERBATIM_TEST_FP8_CASES_H
#define VERBATIM_TEST_FP8_CASES_H
#include "gemm_tiles.h"
#include "engine/mma/h32.h"

enum fp8_kind {
  FP8_PLAIN,      /* as act_quant and checkpoints make them: mostly in the upper half of the range */
  FP8_ANY,        /* every code but NaN, some rows of small ones: most terms are truncated         */
  FP8_CANCELLING, /* neighbours that cancel, some except for a last bit                            */
  FP8_ZEROS,      /* mostly zeros of both signs                                                    */
  FP8_LONGEST,    /* all significand bits set, one sign: the largest sums                          */
  FP8_NAN,        /* some NaN                                                                      */
};

/* k consecutive codes of one operand; side 0: x, 1: w. */
static inline void fp8_cases_codes(cases *c, u32 kind, u32 side, u8 *out, u32 k) {
  u32 level = cases_below(c, 4) ? 127 : 40;
  for (u32 i = 0; i < k; i++) {
    u32 r = cases_bits(c), sign = r >> 31 << 7, plain = 56 + (r >> 8) % 71;
    switch (kind) {
      case FP8_ANY: out[i] = (u8)(sign | (r >> 8) % level); break;
      case FP8_ZEROS: out[i] = (u8)(sign | (r >> 8 & 3 ? 0 : plain)); break;
      case FP8_LONGEST: out[i] = (u8)(level == 127 ? 0x77 + (r & 1) * 4 : sign | 0x3f); break;
      case FP8_NAN: out[i] = (u8)(sign | (cases_below(c, 900) ? plain : 0x7f)); break;
      default: out[i] = (u8)(sign | plain); break;
    }
    if (kind == FP8_CANCELLING && i % 2) out[i] = (u8)(out[i - 1] ^ (side ? 0 : 0x80) ^ (r >> 16 & 7 ? 0 : 1));
  }
}

static inline void fp8_cases_scales(cases *c, f32 *out, u32 count) {
  for (u32 i = 0; i < count; i++) { /* of both kinds */
    u32 r = cases_bits(c);
    out[i] = num_float((110 + r % 9) << 23 | (r >> 30 ? (r >> 4 & 0x7fffff) : 0));
  }
}

/* One result before it is stored, by its definition. Checked against binary64: each of the k / 32 steps truncates 33 terms and a sum below
 * the 13th bit of the largest. */
static inline f32 fp8_cases_sum(const u8 *x, const f32 *x_scale, const u8 *w, const f32 *w_scale, u32 k) {
  f32 sum = 0;
  double exact = 0, most = 0;
  for (u32 block = 0; block < k / 128; block++) {
    f32 part = 0, scale = x_scale[block] * w_scale[block];
    for (u32 i = block * 128; i < block * 128 + 128; i++) {
      double term = (double)num_from_e4m3(x[i]) * (double)num_from_e4m3(w[i]) * (double)scale;
      exact += term;
      most += fabs(term);
      if (i % H32_STEP == 0) part = h32_step_reference(x + i, w + i, part);
    }
    sum = fmaf(part, scale, sum);
  }
  kernel_test_near((double)sum, exact, 0, most * 34 * 0x1p-13);
  return sum;
}

static const small_m_tile FP8_SMALL[] = {
    {.n = 8, .rows = 1, .k_blocks = 8, .stages = 3},   {.n = 64, .rows = 1, .k_blocks = 2, .stages = 4},
    {.n = 40, .rows = 8, .k_blocks = 2, .stages = 2},  {.n = 64, .rows = 16, .k_blocks = 1, .stages = 4},
    {.n = 32, .rows = 32, .k_blocks = 4, .stages = 2}, {.n = 16, .rows = 32, .k_blocks = 8, .stages = 2},
    {.n = 16, .rows = 8, .k_blocks = 16, .stages = 2}, {.n = 24, .rows = 16, .k_blocks = 4, .stages = 3},
    {.n = 32, .rows = 8, .k_blocks = 4, .stages = 2, .row_tiles = 2}};

/* Every number of CTAs must work: one, some, more than there are tiles. experts: 0 for fp8_gemm. */
static inline u32 fp8_cases_small(kernel_variant *variants, u32 rows, u32 experts) {
  u32 count = 0;
  for (u32 i = 0; i < ARRAY_LEN(FP8_SMALL); i++) {
    const small_m_tile *t = &FP8_SMALL[i];
    if (rows > 24 * t->rows || (experts && t->row_tiles)) continue;
    const u32 scale_bytes = t->stages * t->k_blocks * (max_u32(t->rows, 8) + 4) * 4;
    variants[count] = small_m_variant(t, rows, scale_bytes + (experts ? (experts + 1) * 4 : 0));
    variant_grid(&variants[count++], (1 + i % 3) * max_u32(t->row_tiles, 1), 1 + i % 2, 1 + i / 4);
  }
  return count;
}

static const large_m_tile FP8_LARGE[] = {{.n = 128, .rows = 256, .stages = 2, .cluster_columns = 2, .cluster_rows = 1},
                                         {.n = 128, .rows = 128, .stages = 3, .cluster_columns = 2, .cluster_rows = 1},
                                         {.n = 64, .rows = 128, .stages = 2, .cluster_columns = 2, .cluster_rows = 2},
                                         {.n = 128, .rows = 64, .stages = 3, .cluster_columns = 1, .cluster_rows = 1},
                                         {.n = 64, .rows = 64, .stages = 4, .cluster_columns = 1, .cluster_rows = 2}};
static const large_m_tile FP8_LARGE_EXPERTS[] = {{.n = 128, .rows = 256, .stages = 2, .cluster_columns = 1},
                                                 {.n = 128, .rows = 128, .stages = 3, .cluster_columns = 2},
                                                 {.n = 128, .rows = 64, .stages = 4, .cluster_columns = 1},
                                                 {.n = 128, .rows = 256, .stages = 3, .cluster_columns = 2}};

static inline u32 fp8_cases_large(kernel_variant *variants, u32 rows, u32 experts) {
  const u32 count = experts ? ARRAY_LEN(FP8_LARGE_EXPERTS) : ARRAY_LEN(FP8_LARGE);
  for (u32 i = 0; i < count; i++) {
    const large_m_tile *t = experts ? &FP8_LARGE_EXPERTS[i] : &FP8_LARGE[i];
    const u32 stage_bytes = (t->n + t->rows) * 128 + t->rows * 4 + 16;
    variants[i] = large_m_variant(t, experts ? 5 : 6, t->n * t->rows > 64 * 64 ? 2 : 1, stage_bytes, rows, experts ? (experts + 1) * 8 : 0);
    variant_grid(&variants[i], 1 + i, t->cluster_columns * max_u32(t->cluster_rows, 1) * (1 + i % 2), 1 + i / 3);
  }
  return count;
}

#endif
