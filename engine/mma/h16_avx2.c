/* h16_avx2.c - the fast range of h16_core.h with AVX2: panels of 16 columns, two registers of 8 fp32 lanes.
 *
 * Like h16_avx512.c with half the lanes. AVX2 cannot convert integers with rounding toward zero, so the whole run sets the processor's
 * rounding mode to toward zero: every other fp32 operation of the fast range is exact or followed by a truncation, and the exact path uses
 * integers only. Only this file is compiled for AVX2; h16.c calls it only where the processor has it. */
#include "mma/h16_core.h"
#include "mma/h32_core.h"
#include <immintrin.h>

#define COLUMNS 16u

/* Exponents of 16 bf16 numbers; see h16_exponent. */
static inline __m256i exponents(__m256i v) {
  __m256i field = _mm256_srli_epi16(_mm256_slli_epi16(v, 1), 8);
  __m256i e = _mm256_sub_epi16(field, _mm256_set1_epi16(127));
  __m256i wild = _mm256_or_si256(_mm256_cmpeq_epi16(field, _mm256_setzero_si256()), _mm256_cmpeq_epi16(field, _mm256_set1_epi16(255)));
  if (__builtin_expect(!_mm256_testz_si256(wild, wild), 0)) {
    __m256i zero = _mm256_cmpeq_epi16(_mm256_slli_epi16(v, 1), _mm256_setzero_si256());
    e = _mm256_blendv_epi8(e, _mm256_set1_epi16(H16_WILD), wild);
    e = _mm256_blendv_epi8(e, _mm256_set1_epi16(H16_NONE), zero);
  }
  return e;
}

/* Stores 16 columns of one k. v holds them interleaved: column j in lane 2j, column 8+j in lane 2j+1. */
static inline void store_columns(h16_panel *panel, u32 k, __m256i v) {
  f32 *value = panel->value + k * COLUMNS;
  _mm256_store_si256((void *)value, _mm256_slli_epi32(v, 16));
  _mm256_store_si256((void *)(value + 8), _mm256_and_si256(v, _mm256_set1_epi32(-65536)));
  _mm256_store_si256((void *)(panel->exponent + k * COLUMNS), exponents(v));
}

/* Transposes eight rows of eight 32-bit words. */
static inline void transpose(__m256i r[8]) {
  __m256i t[8];
  for (int i = 0; i < 8; i += 4) {
    __m256i a = _mm256_unpacklo_epi32(r[i], r[i + 1]), b = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    __m256i c = _mm256_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm256_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm256_unpacklo_epi64(a, c); /* word 0 of both 128-bit lanes of rows i .. i+3, and so on */
    t[i + 1] = _mm256_unpackhi_epi64(a, c);
    t[i + 2] = _mm256_unpacklo_epi64(b, d);
    t[i + 3] = _mm256_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
  }
}

/* Loads the words (pairs of k) of 8 rows, transposed. */
static inline void load_pairs(__m256i r[8], const bf16 *w, u64 ldw, u32 n) {
  for (u32 j = 0; j < 8; j++) r[j] = j < n ? _mm256_loadu_si256((const void *)(w + j * ldw)) : _mm256_setzero_si256();
  transpose(r);
}

static void pack_n_major(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k) {
  for (u32 k0 = 0; k0 < k; k0 += 16) {
    __m256i low[8], high[8];
    load_pairs(low, w + k0, ldw, n);
    load_pairs(high, n > 8 ? w + 8 * ldw + k0 : w, ldw, n > 8 ? n - 8 : 0);
    for (u32 i = 0; i < 8; i++) {
      store_columns(panel, k0 + 2 * i, _mm256_blend_epi16(low[i], _mm256_slli_epi32(high[i], 16), 0xaa));
      store_columns(panel, k0 + 2 * i + 1, _mm256_blend_epi16(_mm256_srli_epi32(low[i], 16), high[i], 0xaa));
    }
  }
}

static void pack_k_major(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k_rows, u32 k) {
  bf16 edge[COLUMNS] = {0};
  for (u32 i = 0; i < k; i++) {
    const bf16 *row = w + i * ldw;
    __m256i v = _mm256_setzero_si256();
    if (i < k_rows && n < COLUMNS) {
      for (u32 j = 0; j < n; j++) edge[j] = row[j];
      row = edge;
    }
    if (i < k_rows) v = _mm256_loadu_si256((const void *)row);
    __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    store_columns(panel, i, _mm256_set_m128i(_mm_unpackhi_epi16(low, high), _mm_unpacklo_epi16(low, high)));
  }
}

/* A row of x, ready to broadcast: fp32 values, and each exponent twice in 32 bits. */
typedef struct row_x {
  _Alignas(32) f32 value[H16_BLOCK_K];
  _Alignas(32) i32 exponent[H16_BLOCK_K];
} row_x;

static inline void prepare_x(row_x *out, const bf16 *x, u32 k) {
  for (u32 i = 0; i < k; i += 16) {
    /* quarters in the order 0, 2, 1, 3, so that unpacking within 128-bit lanes gives the numbers in order */
    __m256i v = _mm256_permute4x64_epi64(_mm256_loadu_si256((const void *)(x + i)), 0xd8), e = exponents(v);
    _mm256_store_si256((void *)(out->value + i), _mm256_unpacklo_epi16(_mm256_setzero_si256(), v));
    _mm256_store_si256((void *)(out->value + i + 8), _mm256_unpackhi_epi16(_mm256_setzero_si256(), v));
    _mm256_store_si256((void *)(out->exponent + i), _mm256_unpacklo_epi16(e, e));
    _mm256_store_si256((void *)(out->exponent + i + 8), _mm256_unpackhi_epi16(e, e));
  }
}

/* E of 8 columns, from the largest product exponents and c. Lanes outside the fast range are set in *exact. */
static inline __m256i largest_exponent(__m256i product, __m256 c, __m256i *exact) {
  __m256i twice = _mm256_slli_epi32(_mm256_castps_si256(c), 1);
  __m256i e_c = _mm256_sub_epi32(_mm256_srli_epi32(twice, 24), _mm256_set1_epi32(127));
  __m256i zero = _mm256_cmpeq_epi32(twice, _mm256_setzero_si256());
  __m256i e = _mm256_max_epi32(product, _mm256_blendv_epi8(e_c, _mm256_set1_epi32(INT16_MIN), zero));
  __m256i low = _mm256_and_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(-H16_E_MAX), e),
                                 _mm256_cmpgt_epi32(e, _mm256_set1_epi32(H16_NONE / 2 - 1)));
  *exact = _mm256_or_si256(low, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(H16_E_MAX)));
  return _mm256_max_epi32(e, _mm256_set1_epi32(-H16_E_MAX));
}

static inline __m256 power_of_two(__m256i e) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
}

/* Adds the truncated c to the sum of the truncated products and converts it to fp32, toward zero. Lanes whose sum exceeds an int32 are set
 * in *exact. */
static inline __m256 finish(__m256i sum, __m256 c, __m256 scale, __m256i e, __m256i *exact) {
  __m256i cut = _mm256_cvttps_epi32(_mm256_mul_ps(c, scale)), whole = _mm256_add_epi32(sum, cut);
  __m256i overflow = _mm256_and_si256(_mm256_xor_si256(sum, whole), _mm256_xor_si256(cut, whole));
  *exact = _mm256_or_si256(*exact, overflow); /* only the sign bit counts */
  return _mm256_mul_ps(_mm256_cvtepi32_ps(whole), power_of_two(_mm256_sub_epi32(e, _mm256_set1_epi32(25))));
}

static inline __m256i truncated_product(__m256 x, const f32 *value, __m256 scale) {
  return _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_mul_ps(x, _mm256_load_ps(value)), scale));
}

static __attribute__((noinline)) __m256 exact_lanes(const h16_block *block, u32 i, u32 j0, u32 k, __m256i lanes, __m256 before,
                                                    __m256 after) {
  _Alignas(32) f32 c[8], out[8];
  int mask = _mm256_movemask_ps(_mm256_castsi256_ps(lanes));
  _mm256_store_ps(c, before);
  _mm256_store_ps(out, after);
  for (u32 j = 0; j < 8; j++) {
    if (mask >> j & 1) out[j] = h16_exact(block, COLUMNS, i, j0 + j, k, c[j]);
  }
  return _mm256_load_ps(out);
}

static inline void run_row(const h16_block *block, u32 i, const row_x *x) {
  f32 *c = block->c + i * COLUMNS;
  __m256 c0 = _mm256_load_ps(c), c1 = _mm256_load_ps(c + 8);
  for (u32 k = 0; k < block->k; k += H16_STEP) {
    const f32 *value = block->panel->value + k * COLUMNS;
    const int16_t *exponent = block->panel->exponent + k * COLUMNS;
    __m256i top = _mm256_set1_epi16(INT16_MIN), sum0 = _mm256_setzero_si256(), sum1 = sum0, exact0, exact1;
    for (u32 s = 0; s < H16_STEP; s++) {
      __m256i e = _mm256_load_si256((const void *)(exponent + s * COLUMNS));
      top = _mm256_max_epi16(top, _mm256_add_epi16(e, _mm256_set1_epi32(x->exponent[k + s])));
    }
    __m256i e0 = largest_exponent(_mm256_srai_epi32(_mm256_slli_epi32(top, 16), 16), c0, &exact0);
    __m256i e1 = largest_exponent(_mm256_srai_epi32(top, 16), c1, &exact1);
    __m256 scale0 = power_of_two(_mm256_sub_epi32(_mm256_set1_epi32(25), e0));
    __m256 scale1 = power_of_two(_mm256_sub_epi32(_mm256_set1_epi32(25), e1));
    for (u32 s = 0; s < H16_STEP; s++) {
      __m256 xs = _mm256_set1_ps(x->value[k + s]);
      sum0 = _mm256_add_epi32(sum0, truncated_product(xs, value + s * COLUMNS, scale0));
      sum1 = _mm256_add_epi32(sum1, truncated_product(xs, value + s * COLUMNS + 8, scale1));
    }
    __m256 next0 = finish(sum0, c0, scale0, e0, &exact0), next1 = finish(sum1, c1, scale1, e1, &exact1);
    if (__builtin_expect(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_or_si256(exact0, exact1))) != 0, 0)) {
      next0 = exact_lanes(block, i, 0, k, exact0, c0, next0);
      next1 = exact_lanes(block, i, 8, k, exact1, c1, next1);
    }
    c0 = next0;
    c1 = next1;
  }
  _mm256_store_ps(c, c0);
  _mm256_store_ps(c + 8, c1);
}

/* Not inlined: no operation may move across the change of the rounding mode. */
static __attribute__((noinline)) void run_rows(const h16_block *block) {
  row_x x;
  for (u32 i = 0; i < block->rows; i++) {
    prepare_x(&x, block->x[i], block->k);
    run_row(block, i, &x);
  }
}

static void run(const h16_block *block) {
  u32 mode = _mm_getcsr();
  _mm_setcsr(mode | _MM_ROUND_TOWARD_ZERO);
  run_rows(block);
  _mm_setcsr(mode);
}

CORE_ROWS

const h16_core h16_avx2 = {"avx2", COLUMNS, pack_n_major, pack_k_major, run, softmax, weigh, silu_mul, exp_parts, &h32_avx2};
