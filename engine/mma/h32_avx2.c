/* h32_avx2.c - h32_core.h with AVX2: 8 columns by pairs of k in the 16 lanes of 16 bits of a register.
 *
 * Like h32_avx512.c. AVX2 cannot shift each 16-bit lane by its own count; (product << 8) * 2^(15 - shift) >> 16 does it instead. The powers
 * come from a table of 16 bytes, 2^(15 - i) for i from 8 on: the lower byte is looked up by the shift, the upper one by the shift less 8,
 * so exponents are stored twice, in both bytes. Only this file is compiled for AVX2; h32.c calls it only where the processor has it. */
#include "mma/h32_core.h"
#include <immintrin.h>
#include <string.h>

#define COLUMNS 8u
#define PAIRS (H32_BLOCK_K / 2)
#define STEP_PAIRS (H32_STEP / 2)

typedef struct panel { /* [pairs of k][columns][2]: significands, exponents, signs as 1 and -1 */
  _Alignas(32) int16_t significand[PAIRS * 16], exponent[PAIRS * 16], sign[PAIRS * 16];
} panel;

typedef struct row_x { /* significands << 8, exponents, signs as 0 and -2: exclusive or combines them with those of the panel */
  _Alignas(32) int16_t significand[H32_BLOCK_K], exponent[H32_BLOCK_K], sign[H32_BLOCK_K];
} row_x;

static inline __m256i significands(__m256i v) {
  __m256i normal = _mm256_cmpgt_epi16(_mm256_and_si256(v, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(7));
  return _mm256_or_si256(_mm256_and_si256(v, _mm256_set1_epi16(7)), _mm256_and_si256(normal, _mm256_set1_epi16(8)));
}

static inline __m256i exponents(__m256i v) {
  __m256i magnitude = _mm256_and_si256(v, _mm256_set1_epi16(0x7f));
  __m256i e = _mm256_sub_epi16(_mm256_srli_epi16(magnitude, 3), _mm256_set1_epi16(7));
  e = _mm256_max_epi16(e, _mm256_set1_epi16(-6));
  e = _mm256_blendv_epi8(e, _mm256_set1_epi16(H32_NONE), _mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256()));
  e = _mm256_blendv_epi8(e, _mm256_set1_epi16(H32_WILD), _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)));
  return _mm256_or_si256(_mm256_slli_epi16(e, 8), _mm256_and_si256(e, _mm256_set1_epi16(0xff)));
}

static inline __m256i negative(__m256i v) { return _mm256_cmpgt_epi16(v, _mm256_set1_epi16(0x7f)); }

static inline void store_pair(panel *out, u32 pair, __m256i v) {
  _mm256_store_si256((void *)(out->significand + pair * 16), significands(v));
  _mm256_store_si256((void *)(out->exponent + pair * 16), exponents(v));
  _mm256_store_si256((void *)(out->sign + pair * 16), _mm256_or_si256(negative(v), _mm256_set1_epi16(1)));
}

/* Transposes eight rows of eight 32-bit words. */
static inline void transpose(__m256i r[8]) {
  __m256i t[8];
  for (int i = 0; i < 8; i += 4) {
    __m256i a = _mm256_unpacklo_epi32(r[i], r[i + 1]), b = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    __m256i c = _mm256_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm256_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm256_unpacklo_epi64(a, c);
    t[i + 1] = _mm256_unpackhi_epi64(a, c);
    t[i + 2] = _mm256_unpacklo_epi64(b, d);
    t[i + 3] = _mm256_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
  }
}

/* Packs words of four k of 8 columns, 32 k at a time; columns beyond n are zero. */
static void pack(panel *out, const h32_block *block) {
  const __m256i low = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1));
  const __m256i high = _mm256_broadcastsi128_si256(_mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1));
  for (u32 k = 0; k < block->k; k += 32) {
    __m256i r[8];
    for (u32 j = 0; j < 8; j++)
      r[j] = j < block->n ? _mm256_loadu_si256((const void *)(block->w + j * block->ldw + k)) : _mm256_setzero_si256();
    transpose(r);
    for (u32 i = 0; i < 8; i++) {
      store_pair(out, k / 2 + 2 * i, _mm256_shuffle_epi8(r[i], low));
      store_pair(out, k / 2 + 2 * i + 1, _mm256_shuffle_epi8(r[i], high));
    }
  }
}

static inline void prepare_x(row_x *out, const u8 *x, u32 k) {
  for (u32 i = 0; i < k; i += 16) {
    __m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(x + i)));
    _mm256_store_si256((void *)(out->significand + i), _mm256_slli_epi16(significands(v), 8));
    _mm256_store_si256((void *)(out->exponent + i), exponents(v));
    _mm256_store_si256((void *)(out->sign + i), _mm256_and_si256(negative(v), _mm256_set1_epi16(-2)));
  }
}

static inline __m256i two(const int16_t *pair) { /* one pair of a row, for all columns */
  i32 word;
  memcpy(&word, pair, sizeof word);
  return _mm256_set1_epi32(word);
}

static inline __m256i product_exponents(const int16_t *w, const int16_t *x) {
  return _mm256_adds_epi8(_mm256_load_si256((const void *)w), two(x));
}

/* E of 8 columns, from the largest product exponents, in bytes, and c. Lanes that need the definition are all ones in *exact. */
static inline __m256i largest_exponent(__m256i top, __m256 c, __m256i *exact) {
  const __m256i none = _mm256_set1_epi32(INT16_MIN), bits = _mm256_castps_si256(c);
  __m256i even = _mm256_srai_epi32(_mm256_slli_epi32(top, 16), 24), odd = _mm256_srai_epi32(top, 24), e = _mm256_max_epi32(even, odd);
  __m256i of_c = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_slli_epi32(bits, 1), 24), _mm256_set1_epi32(127));
  __m256i zero = _mm256_cmpeq_epi32(_mm256_slli_epi32(bits, 1), _mm256_setzero_si256());
  e = _mm256_blendv_epi8(e, none, _mm256_cmpgt_epi32(_mm256_set1_epi32(H32_LEAST), e));
  e = _mm256_max_epi32(e, _mm256_blendv_epi8(of_c, none, zero));
  __m256i high = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(H32_E_MAX)), low = _mm256_cmpgt_epi32(_mm256_set1_epi32(-H32_E_MAX), e);
  *exact = _mm256_or_si256(high, _mm256_andnot_si256(_mm256_cmpeq_epi32(e, none), low));
  return _mm256_min_epi32(_mm256_max_epi32(e, _mm256_set1_epi32(-H32_E_MAX)), _mm256_set1_epi32(H32_E_MAX));
}

static inline __m256 power_of_two(__m256i e) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
}

static __attribute__((noinline)) __m256 exact_lanes(const h32_block *block, u32 i, u32 k, __m256i lanes, __m256 before, __m256 after) {
  _Alignas(32) f32 c[8], out[8];
  const u32 set = (u32)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
  _mm256_store_ps(c, before);
  _mm256_store_ps(out, after);
  for (u32 j = 0; j < block->n; j++)
    if (set >> j & 1) out[j] = h32_exact(block, i, j, k, c[j]);
  return _mm256_load_ps(out);
}

static inline __attribute__((always_inline)) __m256 step(const h32_block *block, const panel *p, const row_x *x, u32 i, u32 k, __m256 c) {
  const __m256i powers = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, -128, 64, 32, 16, 8, 4, 2, 1));
  const u32 at = k * 8;
  __m256i top = _mm256_set1_epi8(INT8_MIN), sum = _mm256_setzero_si256(), exact;
  for (u32 s = 0; s < STEP_PAIRS; s++)
    top = _mm256_max_epi8(top, product_exponents(p->exponent + at + s * 16, x->exponent + k + 2 * s));
  __m256i e = largest_exponent(top, c, &exact);
  /* E + 0x70 in every byte: minus a product's exponent it is below 0x80, and so a table index, only for shifts below 16 */
  __m256i both = _mm256_shuffle_epi8(_mm256_add_epi32(e, _mm256_set1_epi32(0x70)),
                                     _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
  for (u32 s = 0; s < STEP_PAIRS; s++) {
    const u32 pair = at + s * 16;
    __m256i product = _mm256_mullo_epi16(_mm256_load_si256((const void *)(p->significand + pair)), two(x->significand + k + 2 * s));
    __m256i own = product_exponents(p->exponent + pair, x->exponent + k + 2 * s);
    __m256i power = _mm256_shuffle_epi8(powers, _mm256_xor_si256(_mm256_sub_epi8(both, own), _mm256_set1_epi16(0x0800)));
    __m256i sign = _mm256_xor_si256(_mm256_load_si256((const void *)(p->sign + pair)), two(x->sign + k + 2 * s));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_mulhi_epu16(product, power), sign));
  }
  __m256i cut = _mm256_cvttps_epi32(_mm256_mul_ps(c, power_of_two(_mm256_sub_epi32(_mm256_set1_epi32(13), e))));
  __m256 f = _mm256_cvtepi32_ps(_mm256_add_epi32(sum, cut)); /* exact */
  f = _mm256_and_ps(f, _mm256_castsi256_ps(_mm256_set1_epi32(-1024)));
  f = _mm256_mul_ps(f, power_of_two(_mm256_sub_epi32(e, _mm256_set1_epi32(13))));
  return __builtin_expect(!_mm256_testz_si256(exact, exact), 0) ? exact_lanes(block, i, k, exact, c, f) : f;
}

static void run(const h32_block *block) {
  panel p;
  row_x x;
  pack(&p, block);
  for (u32 i = 0; i < block->rows; i++) {
    prepare_x(&x, block->x[i], block->k);
    __m256 c = _mm256_load_ps(block->c + i * COLUMNS);
    for (u32 k = 0; k < block->k; k += H32_STEP) c = step(block, &p, &x, i, k, c);
    _mm256_store_ps(block->c + i * COLUMNS, c);
  }
}

const h32_core h32_avx2 = {COLUMNS, run};
