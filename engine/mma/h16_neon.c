/* h16_neon.c - the fast range of h16_core.h with NEON: panels of 16 columns, four registers of 4 fp32 lanes.
 *
 * The steps of h16_portable.c. NEON's conversion to integers truncates and saturates, so lanes outside the fast range need no care before
 * the exact path replaces them. Conversions from integers round to nearest: the bits to drop are masked out first. Its speed was never
 * measured. Read next: h16_portable.c. */
#include "mma/h16_core.h"
#include "mma/h32_core.h"
#include <arm_neon.h>

#define COLUMNS 16u

/* Exponents of 8 bf16 numbers; see h16_exponent. */
static inline int16x8_t exponents(uint16x8_t v) {
  uint16x8_t twice = vshlq_n_u16(v, 1), field = vshrq_n_u16(twice, 8);
  uint16x8_t wild = vorrq_u16(vceqzq_u16(field), vceqq_u16(field, vdupq_n_u16(255)));
  int16x8_t e = vbslq_s16(wild, vdupq_n_s16(H16_WILD), vsubq_s16(vreinterpretq_s16_u16(field), vdupq_n_s16(127)));
  return vbslq_s16(vceqzq_u16(twice), vdupq_n_s16(H16_NONE), e);
}

/* Stores 8 numbers as fp32, and their exponents. */
static inline void store_eight(f32 *value, int16_t *exponent, uint16x8_t v) {
  vst1q_f32(value, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)));
  vst1q_f32(value + 4, vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(v), 16)));
  vst1q_s16(exponent, exponents(v));
}

static inline void store_columns(h16_panel *panel, u32 k, u32 half, uint16x8_t v) {
  store_eight(panel->value + k * COLUMNS + 8 * half, panel->exponent + k * COLUMNS + 8 * half, v);
}

/* Interleaves the upper four rows with the lower four. Three times is the transpose. */
static inline void interleave(const uint16x8_t r[8], uint16x8_t t[8]) {
  t[0] = vzip1q_u16(r[0], r[4]);
  t[1] = vzip2q_u16(r[0], r[4]);
  t[2] = vzip1q_u16(r[1], r[5]);
  t[3] = vzip2q_u16(r[1], r[5]);
  t[4] = vzip1q_u16(r[2], r[6]);
  t[5] = vzip2q_u16(r[2], r[6]);
  t[6] = vzip1q_u16(r[3], r[7]);
  t[7] = vzip2q_u16(r[3], r[7]);
}

static void pack_n_major(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k) {
  for (u32 k0 = 0; k0 < k; k0 += 8) {
    for (u32 half = 0; half < 2; half++) {
      uint16x8_t r[8], t[8];
      for (u32 j = 0; j < 8; j++) r[j] = 8 * half + j < n ? vld1q_u16(w + (8 * half + j) * ldw + k0) : vdupq_n_u16(0);
      interleave(r, t);
      interleave(t, r);
      interleave(r, t);
      for (u32 i = 0; i < 8; i++) store_columns(panel, k0 + i, half, t[i]);
    }
  }
}

static void pack_k_major(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k_rows, u32 k) {
  static const bf16 zeros[COLUMNS];
  bf16 edge[COLUMNS] = {0};
  for (u32 i = 0; i < k; i++) {
    const bf16 *row = i < k_rows ? w + i * ldw : zeros;
    if (i < k_rows && n < COLUMNS) {
      for (u32 j = 0; j < n; j++) edge[j] = row[j];
      row = edge;
    }
    store_columns(panel, i, 0, vld1q_u16(row));
    store_columns(panel, i, 1, vld1q_u16(row + 8));
  }
}

typedef struct row_x {
  f32 value[H16_BLOCK_K];
  int16_t exponent[H16_BLOCK_K];
} row_x;

/* E of 4 columns, from the largest product exponents and c. Lanes outside the fast range are all ones in *exact. */
static inline int32x4_t largest_exponent(int16x4_t product, float32x4_t c, uint32x4_t *exact) {
  uint32x4_t twice = vshlq_n_u32(vreinterpretq_u32_f32(c), 1);
  int32x4_t e_c = vsubq_s32(vreinterpretq_s32_u32(vshrq_n_u32(twice, 24)), vdupq_n_s32(127));
  int32x4_t e = vmaxq_s32(vmovl_s16(product), vbslq_s32(vceqzq_u32(twice), vdupq_n_s32(INT16_MIN), e_c));
  uint32x4_t low = vandq_u32(vcltq_s32(e, vdupq_n_s32(-H16_E_MAX)), vcgeq_s32(e, vdupq_n_s32(H16_NONE / 2)));
  *exact = vorrq_u32(low, vcgtq_s32(e, vdupq_n_s32(H16_E_MAX)));
  return vminq_s32(vmaxq_s32(e, vdupq_n_s32(-H16_E_MAX)), vdupq_n_s32(H16_E_MAX));
}

static inline float32x4_t power_of_two(int32x4_t e) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23));
}

/* (f32)v, truncated toward zero. */
static inline float32x4_t to_f32_truncated(int32x4_t v) {
  uint32x4_t magnitude = vreinterpretq_u32_s32(vabsq_s32(v)), sign = vandq_u32(vreinterpretq_u32_s32(v), vdupq_n_u32(0x80000000u));
  int32x4_t below = vmaxq_s32(vsubq_s32(vdupq_n_s32(8), vreinterpretq_s32_u32(vclzq_u32(magnitude))), vdupq_n_s32(0));
  magnitude = vandq_u32(magnitude, vshlq_u32(vdupq_n_u32(~0u), below));
  return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(vcvtq_f32_u32(magnitude)), sign));
}

/* Adds the truncated c to the sum of the truncated products. Lanes whose sum exceeds an int32 are negative in *exact, too. */
static inline float32x4_t finish(int32x4_t sum, float32x4_t c, float32x4_t scale, int32x4_t e, uint32x4_t *exact) {
  int32x4_t cut = vcvtq_s32_f32(vmulq_f32(c, scale)), whole = vaddq_s32(sum, cut);
  int32x4_t overflow = vandq_s32(veorq_s32(sum, whole), veorq_s32(cut, whole));
  *exact = vorrq_u32(*exact, vcltzq_s32(overflow));
  return vmulq_f32(to_f32_truncated(whole), power_of_two(vsubq_s32(e, vdupq_n_s32(25))));
}

static __attribute__((noinline)) float32x4_t exact_lanes(const h16_block *block, u32 i, u32 j0, u32 k, uint32x4_t lanes,
                                                         float32x4_t before, float32x4_t after) {
  u32 set[4];
  f32 c[4], out[4];
  vst1q_u32(set, lanes);
  vst1q_f32(c, before);
  vst1q_f32(out, after);
  for (u32 j = 0; j < 4; j++)
    if (set[j]) out[j] = h16_exact(block, COLUMNS, i, j0 + j, k, c[j]);
  return vld1q_f32(out);
}

/* One step of 4 columns from j0 on. top: their largest product exponents. */
static inline float32x4_t step(const h16_block *block, u32 i, u32 j0, u32 k, const f32 *x, int16x4_t top, float32x4_t c) {
  const f32 *value = block->panel->value + k * COLUMNS + j0;
  uint32x4_t exact;
  int32x4_t e = largest_exponent(top, c, &exact), sum = vdupq_n_s32(0);
  float32x4_t scale = power_of_two(vsubq_s32(vdupq_n_s32(25), e));
  for (u32 s = 0; s < H16_STEP; s++)
    sum = vaddq_s32(sum, vcvtq_s32_f32(vmulq_f32(vmulq_n_f32(vld1q_f32(value + s * COLUMNS), x[s]), scale)));
  float32x4_t next = finish(sum, c, scale, e, &exact);
  return __builtin_expect(vmaxvq_u32(exact) != 0, 0) ? exact_lanes(block, i, j0, k, exact, c, next) : next;
}

static inline void run_row(const h16_block *block, u32 i, const row_x *x) {
  f32 *const c = block->c + i * COLUMNS;
  float32x4_t c0 = vld1q_f32(c), c1 = vld1q_f32(c + 4), c2 = vld1q_f32(c + 8), c3 = vld1q_f32(c + 12);
  for (u32 k = 0; k < block->k; k += H16_STEP) {
    const int16_t *exponent = block->panel->exponent + k * COLUMNS;
    int16x8_t low = vdupq_n_s16(INT16_MIN), high = low;
    for (u32 s = 0; s < H16_STEP; s++) {
      int16x8_t own = vdupq_n_s16(x->exponent[k + s]);
      low = vmaxq_s16(low, vaddq_s16(vld1q_s16(exponent + s * COLUMNS), own));
      high = vmaxq_s16(high, vaddq_s16(vld1q_s16(exponent + s * COLUMNS + 8), own));
    }
    c0 = step(block, i, 0, k, x->value + k, vget_low_s16(low), c0);
    c1 = step(block, i, 4, k, x->value + k, vget_high_s16(low), c1);
    c2 = step(block, i, 8, k, x->value + k, vget_low_s16(high), c2);
    c3 = step(block, i, 12, k, x->value + k, vget_high_s16(high), c3);
  }
  vst1q_f32(c, c0);
  vst1q_f32(c + 4, c1);
  vst1q_f32(c + 8, c2);
  vst1q_f32(c + 12, c3);
}

static void run(const h16_block *block) {
  row_x x;
  for (u32 i = 0; i < block->rows; i++) {
    for (u32 k = 0; k < block->k; k += 8) store_eight(x.value + k, x.exponent + k, vld1q_u16(block->x[i] + k));
    run_row(block, i, &x);
  }
}

CORE_ROWS

const h16_core h16_neon = {"neon", COLUMNS, pack_n_major, pack_k_major, run, softmax, weigh, silu_mul, exp_parts, &h32_neon};
