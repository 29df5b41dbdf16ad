/* fp8_cases.h - what the tests of fp8_gemm and fp8_moe_gemm share: codes that reach the corners of H32, scales, the result by the
 * definition, and the variants of both forms. */
#ifndef VERBATIM_TEST_FP8_CASES_H
#define VERBATIM_TEST_FP8_CASES_H
#include "kernel_test.h"
#include "engine/cpu/h32.h"

enum fp8_kind {
  FP8_PLAIN,      /* as act_quant and checkpoints make them: mostly in the upper half of the range */
  FP8_ANY,        /* every code but NaN, some rows of small ones: most terms are cut               */
  FP8_CANCELLING, /* neighbours that cancel, sometimes but for a last bit                          */
  FP8_ZEROS,      /* mostly zeros of both signs                                                    */
  FP8_LONGEST,    /* all significand bits set, one sign: the largest sums                          */
  FP8_NAN,        /* now and then NaN                                                              */
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

/* One result before it is stored, by the definition; binary64 says that it is no nonsense: each of the k / 32 steps cuts 33 terms and a
 * sum below the largest's 13th bit. */
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

/* Of small_m.cuh: tile of weight rows, of token rows, blocks of 128 k in a stage, stages. */
static const u32 FP8_FEW[][4] = {{8, 1, 8, 3}, {64, 1, 2, 4}, {40, 8, 2, 2}, {64, 16, 1, 4}, {32, 32, 4, 2}, {16, 32, 8, 2},
                                  {16, 8, 16, 2}, {24, 16, 4, 3}};

static inline u32 fp8_cases_few(kernel_variant *variants, u32 rows, u32 experts) {
  u32 count = 0;
  for (u32 i = 0; i < ARRAY_LEN(FP8_FEW); i++) {
    const u32 *tile = FP8_FEW[i], columns = max_u32(tile[1], 8), behind = (64 - tile[0]) * 128, exchange = (tile[0] + 4) * columns * 4;
    if (rows > 24 * tile[1]) continue;
    variants[count++] = (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", tile[0]}, {"SPEC_TILE_ROWS", tile[1]},
                                          {"SPEC_K_BLOCKS", tile[2]}, {"SPEC_STAGES", tile[3]}},
                                         .spec_count = 5, .grid = {1 + i % 3, 1 + i % 2, 1 + i / 4}, .threads = 192, .rows = rows};
    const u32 blocks = tile[3] * tile[2], of_experts = experts ? (experts + 1) * 4 : 0;
    variants[count - 1].shared_bytes = 2048 + (u32)align_up(blocks * tile[1] * 128, 1024) + blocks * tile[0] * 128 +
                                       max_u32(behind, exchange) + blocks * (columns + 4) * 4 + of_experts;
  }
  return count;
}

/* Of large_m_scaled.cuh: tile of weight rows, of token rows, stages, blocks of a cluster side by side and below each other (0: of experts).
 * The number of blocks is free: one, some, more than there are tiles. */
static const u32 FP8_MANY[][5] = {{128, 256, 2, 2, 1}, {128, 128, 3, 2, 1}, {64, 128, 2, 2, 2}, {128, 64, 3, 1, 1}, {64, 64, 4, 1, 2}};
static const u32 FP8_MANY_OF_EXPERT[][5] = {{128, 256, 2, 1, 0}, {128, 128, 3, 2, 0}, {128, 64, 4, 1, 0}, {128, 256, 3, 2, 0}};

static inline u32 fp8_cases_many(kernel_variant *variants, u32 rows, u32 experts) {
  const u32 count = experts ? ARRAY_LEN(FP8_MANY_OF_EXPERT) : ARRAY_LEN(FP8_MANY);
  for (u32 i = 0; i < count; i++) {
    const u32 *tile = experts ? FP8_MANY_OF_EXPERT[i] : FP8_MANY[i], cluster = tile[3] * max_u32(tile[4], 1);
    const u32 multiplying = tile[0] * tile[1] > 64 * 64 ? 2 : 1, stage = (tile[0] + tile[1]) * 128 + tile[1] * 4 + 16;
    variants[i] = (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", tile[0]}, {"SPEC_TILE_ROWS", tile[1]}, {"SPEC_STAGES", tile[2]},
                                    {"SPEC_CLUSTER", cluster}, {"SPEC_CLUSTER_ROWS", tile[4]}},
                                   .spec_count = experts ? 5 : 6, .grid = {1 + i, cluster * (1 + i % 2), 1 + i / 3},
                                   .threads = 128 * (1 + multiplying), .rows = rows};
    variants[i].shared_bytes = 1024 + tile[2] * stage + multiplying * 8192 + 256 + (experts ? (experts + 1) * 8 : 0);
  }
  return count;
}

#endif
