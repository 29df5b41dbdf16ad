/* h32_avx512.c - h32_core.h with AVX-512: 16 columns by pairs of k in the 32 lanes of 16 bits of a register.
 *
 * Where two products of a column are added, each is multiplied by its sign, 1 or -1. Only this file is compiled for AVX-512; h32.c calls it
 * only where the processor has it. */
#include "mma/h32_core.h"
#include <immintrin.h>
#include <string.h>

#define COLUMNS 16u
#define PAIRS (H32_BLOCK_K / 2)
#define STEP_PAIRS (H32_STEP / 2)

typedef struct panel { /* [pairs of k][columns][2]: significands, exponents, signs as 1 and -1 */
  _Alignas(64) int16_t significand[PAIRS * 32], exponent[PAIRS * 32], sign[PAIRS * 32];
} panel;

typedef struct row_x { /* significands << 7, exponents, signs as 0 and -2: exclusive or combines them with those of the panel */
  _Alignas(64) int16_t significand[H32_BLOCK_K], exponent[H32_BLOCK_K], sign[H32_BLOCK_K];
} row_x;

static inline __m512i significands(__m512i v) {
  __mmask32 normal = _mm512_test_epi16_mask(v, _mm512_set1_epi16(0x78));
  return _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi16(7)), _mm512_maskz_mov_epi16(normal, _mm512_set1_epi16(8)));
}

static inline __m512i exponents(__m512i v) {
  __m512i magnitude = _mm512_and_si512(v, _mm512_set1_epi16(0x7f));
  __m512i e = _mm512_sub_epi16(_mm512_srli_epi16(magnitude, 3), _mm512_set1_epi16(7));
  e = _mm512_max_epi16(e, _mm512_set1_epi16(-6));
  e = _mm512_mask_mov_epi16(e, _mm512_testn_epi16_mask(magnitude, magnitude), _mm512_set1_epi16(H32_NONE));
  return _mm512_mask_mov_epi16(e, _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f)), _mm512_set1_epi16(H32_WILD));
}

static inline __mmask32 negative(__m512i v) { return _mm512_test_epi16_mask(v, _mm512_set1_epi16(0x80)); }

static inline void store_pair(panel *out, u32 pair, __m512i v) {
  _mm512_store_si512((void *)(out->significand + pair * 32), significands(v));
  _mm512_store_si512((void *)(out->exponent + pair * 32), exponents(v));
  _mm512_store_si512((void *)(out->sign + pair * 32), _mm512_mask_mov_epi16(_mm512_set1_epi16(1), negative(v), _mm512_set1_epi16(-1)));
}

/* Transposes sixteen rows of sixteen 32-bit words. */
static inline __attribute__((always_inline)) void transpose(__m512i r[16]) {
  __m512i t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
    __m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88), d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    r[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

/* Packs words of four k of 16 columns, 64 k at a time; columns beyond n are zero. */
static void pack(panel *out, const h32_block *block) {
  const __m512i low = _mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1));
  const __m512i high = _mm512_broadcast_i32x4(_mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1));
  for (u32 k = 0; k < block->k; k += 64) {
    const __mmask16 words = block->k - k >= 64 ? 0xffff : 0x00ff;
    __m512i r[16];
#pragma GCC unroll 16
    for (u32 j = 0; j < 16; j++) {
      const bool is_column = j < block->n;
      r[j] = _mm512_maskz_loadu_epi32(is_column ? words : 0, block->w + (is_column ? j : 0) * block->ldw + k);
    }
    transpose(r);
#pragma GCC unroll 16
    for (u32 i = 0; i < 16; i++) {
      store_pair(out, k / 2 + 2 * i, _mm512_shuffle_epi8(r[i], low));
      store_pair(out, k / 2 + 2 * i + 1, _mm512_shuffle_epi8(r[i], high));
    }
  }
}

static inline void prepare_x(row_x *out, const u8 *x, u32 k) {
  for (u32 i = 0; i < k; i += 32) {
    __m512i v = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)(x + i)));
    _mm512_store_si512((void *)(out->significand + i), _mm512_slli_epi16(significands(v), 7));
    _mm512_store_si512((void *)(out->exponent + i), exponents(v));
    _mm512_store_si512((void *)(out->sign + i), _mm512_maskz_mov_epi16(negative(v), _mm512_set1_epi16(-2)));
  }
}

static inline __m512i two(const int16_t *pair) { /* one pair of a row, for all columns */
  i32 word;
  memcpy(&word, pair, sizeof word);
  return _mm512_set1_epi32(word);
}

static inline __m512i product_exponents(const int16_t *w, const int16_t *x) {
  return _mm512_add_epi16(_mm512_load_si512((const void *)w), two(x));
}

/* E of 16 columns, from the largest product exponents and c. Lanes that need the definition are added to *exact. */
static inline __m512i largest_exponent(__m512i top, __m512 c, __mmask16 *exact) {
  const __m512i none = _mm512_set1_epi32(INT16_MIN);
  __m512i bits = _mm512_castps_si512(c), even = _mm512_srai_epi32(_mm512_slli_epi32(top, 16), 16), odd = _mm512_srai_epi32(top, 16);
  __m512i of_c = _mm512_sub_epi32(_mm512_srli_epi32(_mm512_slli_epi32(bits, 1), 24), _mm512_set1_epi32(127));
  __m512i e = _mm512_max_epi32(even, odd);
  e = _mm512_mask_mov_epi32(e, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(H32_LEAST)), none);
  e = _mm512_mask_max_epi32(e, _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7fffffff)), e, of_c);
  __mmask16 outside = _mm512_cmpgt_epu32_mask(_mm512_add_epi32(e, _mm512_set1_epi32(H32_E_MAX)), _mm512_set1_epi32(2 * H32_E_MAX));
  *exact = _mm512_mask_cmpneq_epi32_mask(outside, e, none);
  return _mm512_max_epi32(e, _mm512_set1_epi32(-H32_E_MAX));
}

static inline __m512 power_of_two(__m512i e) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(e, _mm512_set1_epi32(127)), 23));
}

static __attribute__((noinline)) __m512 exact_lanes(const h32_block *block, u32 i, u32 k, __mmask16 lanes, __m512 before, __m512 after) {
  _Alignas(64) f32 c[16], out[16];
  _mm512_store_ps(c, before);
  _mm512_store_ps(out, after);
  for (u32 j = 0; j < block->n; j++)
    if (lanes >> j & 1) out[j] = h32_exact(block, i, j, k, c[j]);
  return _mm512_load_ps(out);
}

static inline __attribute__((always_inline)) __m512 step(const h32_block *block, const panel *p, const row_x *x, u32 i, u32 k, __m512 c) {
  const u32 at = k * 16;
  __m512i top = _mm512_set1_epi16(INT16_MIN), sum = _mm512_setzero_si512();
  __mmask16 exact;
#pragma GCC unroll 16
  for (u32 s = 0; s < STEP_PAIRS; s++)
    top = _mm512_max_epi16(top, product_exponents(p->exponent + at + s * 32, x->exponent + k + 2 * s));
  __m512i e = largest_exponent(top, c, &exact);
  __m512i both = _mm512_or_si512(_mm512_slli_epi32(e, 16), _mm512_and_si512(e, _mm512_set1_epi32(0xffff)));
#pragma GCC unroll 16
  for (u32 s = 0; s < STEP_PAIRS; s++) {
    const u32 pair = at + s * 32;
    __m512i product = _mm512_mullo_epi16(_mm512_load_si512((const void *)(p->significand + pair)), two(x->significand + k + 2 * s));
    __m512i own = product_exponents(p->exponent + pair, x->exponent + k + 2 * s);
    __m512i sign = _mm512_xor_si512(_mm512_load_si512((const void *)(p->sign + pair)), two(x->sign + k + 2 * s));
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_srlv_epi16(product, _mm512_sub_epi16(both, own)), sign));
  }
  __m512i cut = _mm512_cvttps_epi32(_mm512_mul_ps(c, power_of_two(_mm512_sub_epi32(_mm512_set1_epi32(13), e))));
  __m512 f = _mm512_cvtepi32_ps(_mm512_add_epi32(sum, cut)); /* exact */
  f = _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(f), _mm512_set1_epi32(-1024)));
  f = _mm512_mul_ps(f, power_of_two(_mm512_sub_epi32(e, _mm512_set1_epi32(13))));
  return __builtin_expect(exact != 0, 0) ? exact_lanes(block, i, k, exact, c, f) : f;
}

static void run(const h32_block *block) {
  panel p;
  row_x x[2];
  pack(&p, block);
  for (u32 i = 0; i < block->rows; i += 2) { /* two rows at a time hide the latency of each chain */
    const u32 other = i + 1 < block->rows ? i + 1 : i;
    prepare_x(&x[0], block->x[i], block->k);
    prepare_x(&x[1], block->x[other], block->k);
    __m512 c0 = _mm512_load_ps(block->c + i * COLUMNS), c1 = _mm512_load_ps(block->c + other * COLUMNS);
    for (u32 k = 0; k < block->k; k += H32_STEP) {
      c0 = step(block, &p, &x[0], i, k, c0);
      if (other != i) c1 = step(block, &p, &x[1], other, k, c1);
    }
    _mm512_store_ps(block->c + i * COLUMNS, c0);
    if (other != i) _mm512_store_ps(block->c + other * COLUMNS, c1);
  }
}

const h32_core h32_avx512 = {COLUMNS, run};
