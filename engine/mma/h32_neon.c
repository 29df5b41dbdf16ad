/* h32_neon.c - h32_core.h with NEON: the 32 pairs of a step in the lanes of registers, one row and column at a time.
 *
 * The steps of h32_portable.c. NEON shifts every lane by a count of its own, to the right if that is negative. Its speed was never
 * measured. Read next: h32_portable.c. */
#include "mma/h32_core.h"
#include <arm_neon.h>

#define COLUMNS 16u

typedef struct row { /* decoded numbers of a row */
  int8_t significand[H32_BLOCK_K], exponent[H32_BLOCK_K]; /* the significand carries the sign */
} row;

/* h32_significand and h32_exponent of 16 numbers at a time. */
static void prepare(row *out, const u8 *codes, u32 k) {
  for (u32 i = 0; i < k; i += 16) {
    uint8x16_t code = vld1q_u8(codes + i), magnitude = vandq_u8(code, vdupq_n_u8(0x7f)), field = vshrq_n_u8(magnitude, 3);
    uint8x16_t subnormal = vceqzq_u8(field), hidden = vbicq_u8(vdupq_n_u8(8), subnormal);
    int8x16_t s = vreinterpretq_s8_u8(vorrq_u8(vandq_u8(code, vdupq_n_u8(7)), hidden));
    int8x16_t e = vbslq_s8(subnormal, vdupq_n_s8(-6), vsubq_s8(vreinterpretq_s8_u8(field), vdupq_n_s8(7)));
    e = vbslq_s8(vceqq_u8(magnitude, vdupq_n_u8(0x7f)), vdupq_n_s8(H32_WILD), e);
    vst1q_s8(out->exponent + i, vbslq_s8(vceqzq_u8(magnitude), vdupq_n_s8(H32_NONE), e));
    vst1q_s8(out->significand + i, vbslq_s8(vcltzq_s8(vreinterpretq_s8_u8(code)), vnegq_s8(s), s));
  }
}

static inline int16x8_t product_exponents(const row *x, const row *w, u32 k) {
  return vaddl_s8(vld1_s8(x->exponent + k), vld1_s8(w->exponent + k));
}

/* One step from k on. *exact: the step needs the definition. */
static inline f32 step(const row *x, const row *w, u32 k, f32 c, bool *exact) {
  int16x8_t top = vdupq_n_s16(INT16_MIN);
  int32x4_t sums = vdupq_n_s32(0);
  for (u32 i = k; i < k + H32_STEP; i += 8) top = vmaxq_s16(top, product_exponents(x, w, i));
  i32 e = vmaxvq_s16(top), of_c = c == 0 ? INT16_MIN : (i32)(num_bits(c) >> 23 & 255u) - 127;
  if (e < H32_LEAST) e = INT16_MIN;
  e = of_c > e ? of_c : e;
  *exact = e > H32_E_MAX || (e < -H32_E_MAX && e != INT16_MIN);
  if (*exact || e == INT16_MIN) return 0.0f;
  for (u32 i = k; i < k + H32_STEP; i += 8) {
    int16x8_t product = vmull_s8(vld1_s8(x->significand + i), vld1_s8(w->significand + i)), sign = vshrq_n_s16(product, 15);
    int16x8_t up = vsubq_s16(product_exponents(x, w, i), vdupq_n_s16((int16_t)e)); /* -110 to 0: fits the byte that counts */
    uint16x8_t cut = vshlq_u16(vshlq_n_u16(vreinterpretq_u16_s16(vabsq_s16(product)), 7), up);
    sums = vpadalq_s16(sums, vsubq_s16(veorq_s16(vreinterpretq_s16_u16(cut), sign), sign));
  }
  i32 sum = vaddvq_s32(sums) + (i32)(c * num_float((u32)(127 + 13 - e) << 23));
  return num_float(num_bits((f32)sum) & 0xfffffc00u) * num_float((u32)(127 + e - 13) << 23);
}

static void run(const h32_block *block) {
  row w[COLUMNS], x;
  for (u32 j = 0; j < block->n; j++) prepare(&w[j], block->w + j * block->ldw, block->k);
  for (u32 i = 0; i < block->rows; i++) {
    f32 *const c = block->c + i * COLUMNS;
    prepare(&x, block->x[i], block->k);
    for (u32 k = 0; k < block->k; k += H32_STEP) /* columns innermost: a column's next step waits for the one before */
      for (u32 j = 0; j < block->n; j++) {
        bool exact;
        f32 next = step(&x, &w[j], k, c[j], &exact);
        c[j] = exact ? h32_exact(block, i, j, k, c[j]) : next;
      }
  }
}

const h32_core h32_neon = {COLUMNS, run};
