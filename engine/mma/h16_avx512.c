/* h16_avx512.c - the fast range of h16_core.h with AVX-512: panels of 32 columns, two registers of 16 fp32 lanes.
 *
 * Values are in column order. Exponents, one register of 32 16-bit lanes per k, are interleaved (column j in lane 2j, column 16+j in lane
 * 2j+1), so that shifts alone widen them to the two fp32 registers. Only this file is compiled for AVX-512; h16.c calls it only where the
 * processor has it. */
#include "mma/h16_core.h"
#include "mma/h32_core.h"
#include <immintrin.h>

#define COLUMNS 32u
#define E_BIAS 126       /* added to both factors' stored exponents, so that a product's sum is 2 * E_BIAS too large; x subtracts it */
#define LESS_WILD 0xfe00 /* twice a number's bits less 256 is below this only for normal numbers */
#define AHEAD_BYTES 256

/* Exponents of 32 bf16 numbers; see h16_exponent. Each is stored E_BIAS too large. */
static inline __m512i exponents(__m512i v) {
  __m512i less = _mm512_sub_epi16(_mm512_slli_epi16(v, 1), _mm512_set1_epi16(256)), e = _mm512_srli_epi16(less, 8);
  __mmask32 wild = _mm512_cmpge_epu16_mask(less, _mm512_set1_epi16((short)LESS_WILD));
  __mmask32 zero = _mm512_testn_epi16_mask(v, _mm512_set1_epi16(0x7fff));
  e = _mm512_mask_mov_epi16(e, wild, _mm512_set1_epi16(H16_WILD));
  return _mm512_mask_mov_epi16(e, zero, _mm512_set1_epi16(H16_NONE));
}

/* Stores 32 columns of one k: the values of columns 0 .. 15 and 16 .. 31, and v, which holds both interleaved. All are treated as normal
 * numbers; returns the largest `less`, from which repair_exponents sees whether they were. */
static inline __m512i store_columns(h16_panel *panel, u32 k, __m512i value0, __m512i value1, __m512i v, __m512i most) {
  __m512i less = _mm512_sub_epi16(_mm512_slli_epi16(v, 1), _mm512_set1_epi16(256));
  _mm512_store_si512((void *)(panel->value + k * COLUMNS), value0);
  _mm512_store_si512((void *)(panel->value + k * COLUMNS + 16), value1);
  _mm512_store_si512((void *)(panel->exponent + k * COLUMNS), _mm512_srli_epi16(less, 8));
  return _mm512_max_epu16(most, less);
}

static void repair_exponents(h16_panel *panel, u32 k, __m512i most) {
  if (__builtin_expect(_mm512_cmpge_epu16_mask(most, _mm512_set1_epi16((short)LESS_WILD)) == 0, 1)) return;
  for (u32 i = 0; i < k; i++) {
    __m512i value0 = _mm512_load_si512((const void *)(panel->value + i * COLUMNS));
    __m512i value1 = _mm512_load_si512((const void *)(panel->value + i * COLUMNS + 16));
    _mm512_store_si512((void *)(panel->exponent + i * COLUMNS), exponents(_mm512_or_si512(_mm512_srli_epi32(value0, 16), value1)));
  }
}

/* Transposes sixteen rows of sixteen 32-bit words. */
static inline __attribute__((always_inline)) void transpose(__m512i r[16]) {
  __m512i t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c); /* word 0 of every 128-bit lane of rows i .. i+3, and so on */
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

/* Loads the words (pairs of k) of 16 rows, transposed, and prefetches what the next blocks need of these rows, whose stride is beyond the
 * reach of hardware prefetchers. */
static inline __attribute__((always_inline)) void load_pairs(__m512i r[16], const bf16 *w, u64 ldw, u32 n, __mmask16 words) {
#pragma GCC unroll 16
  for (u32 j = 0; j < 16; j++) {
    const bf16 *row = j < n ? w + j * ldw : w;
    r[j] = _mm512_maskz_loadu_epi32(j < n ? words : 0, row);
    _mm_prefetch((const char *)row + AHEAD_BYTES, _MM_HINT_T1);
  }
  transpose(r);
}

static void pack_n_major(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k) {
  const __m512i upper = _mm512_set1_epi32(-65536);
  __m512i most = _mm512_setzero_si512();
  for (u32 k0 = 0; k0 < k; k0 += 32) {
    __mmask16 words = k - k0 >= 32 ? 0xffff : 0x00ff;
    __m512i low[16], high[16];
    load_pairs(low, w + k0, ldw, n, words);
    load_pairs(high, n > 16 ? w + 16 * ldw + k0 : w, ldw, n > 16 ? n - 16 : 0, words);
#pragma GCC unroll 16
    for (u32 i = 0; i < 16; i++) {
      __m512i even = _mm512_slli_epi32(high[i], 16), odd = _mm512_and_si512(high[i], upper);
      __m512i both = _mm512_or_si512(_mm512_andnot_si512(upper, low[i]), even);
      most = store_columns(panel, k0 + 2 * i, _mm512_slli_epi32(low[i], 16), even, both, most);
      both = _mm512_or_si512(_mm512_srli_epi32(low[i], 16), odd);
      most = store_columns(panel, k0 + 2 * i + 1, _mm512_and_si512(low[i], upper), odd, both, most);
    }
  }
  repair_exponents(panel, k, most);
}

static void pack_k_major(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k_rows, u32 k) {
  const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20,
                                              4, 19, 3, 18, 2, 17, 1, 16, 0);
  __mmask32 present = n >= 32 ? 0xffffffffu : (1u << n) - 1;
  __m512i most = _mm512_setzero_si512();
  for (u32 i = 0; i < k; i++) {
    __m512i v = i < k_rows ? _mm512_maskz_loadu_epi16(present, w + i * ldw) : _mm512_setzero_si512();
    v = _mm512_permutexvar_epi16(interleave, v);
    most = store_columns(panel, i, _mm512_slli_epi32(v, 16), _mm512_and_si512(v, _mm512_set1_epi32(-65536)), v, most);
  }
  repair_exponents(panel, k, most);
}

/* A row of x, ready to broadcast: fp32 values, and each exponent twice in 32 bits. */
typedef struct row_x {
  _Alignas(64) f32 value[H16_BLOCK_K];
  _Alignas(64) i32 exponent[H16_BLOCK_K];
} row_x;

static inline void prepare_x(row_x *out, const bf16 *x, u32 k) {
  for (u32 i = 0; i < k; i += 32) {
    __m512i v = _mm512_maskz_loadu_epi16(k - i >= 32 ? 0xffffffffu : 0x0000ffffu, x + i);
    __m512i e = _mm512_sub_epi16(exponents(v), _mm512_set1_epi16(2 * E_BIAS));
    __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(v)), high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(v, 1));
    _mm512_store_si512((void *)(out->value + i), _mm512_slli_epi32(low, 16));
    _mm512_store_si512((void *)(out->value + i + 16), _mm512_slli_epi32(high, 16));
    low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(e));
    high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(e, 1));
    _mm512_store_si512((void *)(out->exponent + i), _mm512_or_si512(low, _mm512_slli_epi32(low, 16)));
    _mm512_store_si512((void *)(out->exponent + i + 16), _mm512_or_si512(high, _mm512_slli_epi32(high, 16)));
  }
}

/* E of 16 columns, from the largest product exponents and c. Lanes outside the fast range are added to *exact. */
static inline __m512i largest_exponent(__m512i product, __m512 c, __mmask16 *exact) {
  __m512i bits = _mm512_castps_si512(c);
  __m512i field = _mm512_srli_epi32(_mm512_slli_epi32(bits, 1), 24);
  __mmask16 nonzero = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7fffffff));
  __m512i e = _mm512_mask_max_epi32(product, nonzero, product, _mm512_sub_epi32(field, _mm512_set1_epi32(127)));
  __m512i shifted = _mm512_add_epi32(e, _mm512_set1_epi32(H16_E_MAX));
  __mmask16 outside = _mm512_cmpgt_epu32_mask(shifted, _mm512_set1_epi32(2 * H16_E_MAX));
  *exact = _mm512_mask_cmpge_epi32_mask(outside, e, _mm512_set1_epi32(H16_NONE / 2));
  return _mm512_max_epi32(e, _mm512_set1_epi32(-H16_E_MAX));
}

static inline __m512 power_of_two(__m512i e) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(e, _mm512_set1_epi32(127)), 23));
}

/* Adds the truncated c to the sum of the truncated products and converts it to fp32, toward zero. Lanes whose sum exceeds an int32 are
 * added to *exact. */
static inline __m512 finish(__m512i sum, __m512 c, __m512 scale, __m512i e, __mmask16 *exact) {
  __m512i cut = _mm512_cvttps_epi32(_mm512_mul_ps(c, scale)), whole = _mm512_add_epi32(sum, cut);
  __m512i overflow = _mm512_and_si512(_mm512_xor_si512(sum, whole), _mm512_xor_si512(cut, whole));
  *exact |= _mm512_movepi32_mask(overflow);
  __m512 f = _mm512_cvt_roundepi32_ps(whole, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  return _mm512_mul_ps(f, power_of_two(_mm512_sub_epi32(e, _mm512_set1_epi32(25))));
}

static inline __m512i truncated_product(__m512 x, const f32 *value, __m512 scale) {
  return _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_mul_ps(x, _mm512_load_ps(value)), scale));
}

static __attribute__((noinline)) __m512 exact_lanes(const h16_block *block, u32 i, u32 j0, u32 k, __mmask16 lanes, __m512 before,
                                                    __m512 after) {
  _Alignas(64) f32 c[16], out[16];
  _mm512_store_ps(c, before);
  _mm512_store_ps(out, after);
  for (u32 j = 0; j < 16; j++) {
    if (lanes >> j & 1) out[j] = h16_exact(block, COLUMNS, i, j0 + j, k, c[j]);
  }
  return _mm512_load_ps(out);
}

static inline void run_row(const h16_block *block, u32 i, const row_x *x) {
  f32 *c = block->c + i * COLUMNS;
  __m512 c0 = _mm512_load_ps(c), c1 = _mm512_load_ps(c + 16);
  for (u32 k = 0; k < block->k; k += H16_STEP) {
    const f32 *value = block->panel->value + k * COLUMNS;
    const int16_t *exponent = block->panel->exponent + k * COLUMNS;
    __m512i top = _mm512_set1_epi16(INT16_MIN), sum0 = _mm512_setzero_si512(), sum1 = sum0;
    __mmask16 exact0, exact1;
#pragma GCC unroll 16
    for (u32 s = 0; s < H16_STEP; s++) {
      __m512i e = _mm512_load_si512((const void *)(exponent + s * COLUMNS));
      top = _mm512_max_epi16(top, _mm512_add_epi16(e, _mm512_set1_epi32(x->exponent[k + s])));
    }
    __m512i e0 = largest_exponent(_mm512_srai_epi32(_mm512_slli_epi32(top, 16), 16), c0, &exact0);
    __m512i e1 = largest_exponent(_mm512_srai_epi32(top, 16), c1, &exact1);
    __m512 scale0 = power_of_two(_mm512_sub_epi32(_mm512_set1_epi32(25), e0));
    __m512 scale1 = power_of_two(_mm512_sub_epi32(_mm512_set1_epi32(25), e1));
#pragma GCC unroll 16
    for (u32 s = 0; s < H16_STEP; s++) {
      __m512 xs = _mm512_set1_ps(x->value[k + s]);
      sum0 = _mm512_add_epi32(sum0, truncated_product(xs, value + s * COLUMNS, scale0));
      sum1 = _mm512_add_epi32(sum1, truncated_product(xs, value + s * COLUMNS + 16, scale1));
    }
    __m512 next0 = finish(sum0, c0, scale0, e0, &exact0), next1 = finish(sum1, c1, scale1, e1, &exact1);
    if (__builtin_expect((exact0 | exact1) != 0, 0)) {
      next0 = exact_lanes(block, i, 0, k, exact0, c0, next0);
      next1 = exact_lanes(block, i, 16, k, exact1, c1, next1);
    }
    c0 = next0;
    c1 = next1;
  }
  _mm512_store_ps(c, c0);
  _mm512_store_ps(c + 16, c1);
}

static void run(const h16_block *block) {
  row_x x;
  for (u32 i = 0; i < block->rows; i++) {
    prepare_x(&x, block->x[i], block->k);
    run_row(block, i, &x);
  }
}

CORE_ROWS

const h16_core h16_avx512 = {"avx512", COLUMNS, pack_n_major, pack_k_major, run, softmax, weigh, silu_mul, exp_parts, &h32_avx512};
