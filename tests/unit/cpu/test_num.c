/* test_num.c - num.h against the C library in binary64: stated error bounds over dense samples, edges, and known answers. */
#include "tests/unit/unit.h"
#include "engine/base/base.h"
#include "num.h"
#include <stdio.h>

#ifdef __aarch64__
#define EVERY 16u /* of the samples; check/aarch64 runs them in an emulator */
#else
#define EVERY 1u
#endif

/* |got - want| in units of the last fp32 place of want; want is normal in fp32. */
static double error_ulp(f32 got, double want) {
  int exponent;
  frexp(want, &exponent);
  return fabs((double)got - want) / ldexp(1.0, exponent - 24);
}

static void bf16_rounds_to_nearest_even(void **state) {
  (void)state;
  for (u32 high = 0; high < 0x10000; high++) { /* every bf16 number, and the ties and near-ties above it */
    u32 u = high << 16, field = high >> 7 & 255u;
    if (field == 255) continue;
    assert_int_equal(num_to_bf16(num_float(u)), high);
    assert_int_equal(num_to_bf16(num_float(u | 0x7fffu)), high);
    assert_int_equal(num_to_bf16(num_float(u | 0x8000u)), high + (high & 1));
    assert_int_equal(num_to_bf16(num_float(u | 0x8001u)), high + 1);
    assert_true(num_bits(num_from_bf16((bf16)high)) == u);
  }
  assert_int_equal(num_to_bf16(INFINITY), 0x7f80);
  assert_int_equal(num_to_bf16(-INFINITY), 0xff80);
  assert_int_equal(num_to_bf16(NAN), 0x7fff);
  assert_int_equal(num_to_bf16(num_float(0xff800001u)), 0x7fff);
  assert_int_equal(num_to_bf16(0x1.fffffep127f), 0x7f80);
}

/* Every e4m3 number, the ties between neighbours and what lies next to them. */
static void e4m3_rounds_to_nearest_even(void **state) {
  (void)state;
  for (u32 x = 0; x < 0x7f; x++) {
    f32 v = num_from_e4m3((u8)x), field = (f32)(x >> 3 ? x >> 3 : 1);
    assert_true(v == ldexpf((f32)((x & 7u) + (x >> 3 ? 8u : 0u)), (i32)field - 10));
    assert_int_equal(num_to_e4m3(v), x);
    assert_int_equal(num_to_e4m3(-v), x | 0x80u);
    assert_true(num_bits(num_from_e4m3((u8)(x | 0x80u))) == (num_bits(v) | 0x80000000u));
    if (x == 0x7e) continue;
    f32 tie = (v + num_from_e4m3((u8)(x + 1))) / 2;
    assert_int_equal(num_to_e4m3(tie), x + (x & 1u));
    assert_int_equal(num_to_e4m3(num_float(num_bits(tie) - 1)), x);
    assert_int_equal(num_to_e4m3(num_float(num_bits(tie) + 1)), x + 1);
  }
  const f32 beyond[] = {449, 464, 480, 0x1p20f, INFINITY};
  for (size_t i = 0; i < ARRAY_LEN(beyond); i++) {
    assert_int_equal(num_to_e4m3(beyond[i]), 0x7e);
    assert_int_equal(num_to_e4m3(-beyond[i]), 0xfe);
  }
  assert_int_equal(num_to_e4m3(0x1p-149f), 0);
  assert_int_equal(num_to_e4m3(NAN), 0x7f);
  assert_int_equal(num_to_e4m3(-NAN), 0x7f);
  assert_true(isnan(num_from_e4m3(0x7f)) && isnan(num_from_e4m3(0xff)));
}

/* Powers of two: the least one that is not below largest / 448; scaled numbers then never exceed 448. */
static void scales_of_e4m3(void **state) {
  (void)state;
  for (u32 high = 0x38d1; high < 0x7f80; high++) { /* bf16 numbers from 1e-4 on */
    f32 largest = num_from_bf16((bf16)high), s = num_scale(largest, SCALE_POW2);
    assert_true((num_bits(s) & 0x7fffffu) == 0 && largest / s <= 448.0f && largest / s > 224.0f);
    assert_true(num_scale(largest, SCALE_F32) == largest / 448.0f);
  }
  assert_true(num_scale(448, SCALE_POW2) == 1 && num_scale(450, SCALE_POW2) == 2 && num_scale(224, SCALE_POW2) == 0.5f);
  for (u32 kind = SCALE_F32; kind <= SCALE_POW2; kind++) assert_true(isnan(num_scale(NAN, kind)) && isnan(num_scale(INFINITY, kind)));
}

static void exp2_for_bf16(void **state) {
  (void)state;
  double worst = 0;
  for (u32 i = 0; i <= num_bits(-126.0f); i += 331 * EVERY) { /* 0 to 8, then -0 to -126 */
    const u32 u = i;
    f32 x = num_float(u);
    if (x > 8.0f) continue;
    worst = fmax(worst, fabs((double)num_exp2_bf16(x) / exp2((double)x) - 1));
  }
  printf("    worst relative error of exp2_bf16: %.2e\n", worst);
  assert_true(worst < 7.6e-5);
  assert_true(num_exp2_bf16(num_float(num_bits(-126.0f) + 1)) == 0.0f);
  assert_true(num_exp2_bf16(-INFINITY) == 0.0f);
  assert_true(isnan(num_exp2_bf16(NAN)));
  assert_int_equal(num_to_bf16(num_exp2_bf16(0.0f)), 0x3f80); /* the weight of the row maximum, if that is an integer */
}

/* A score is scaled and the maximum subtracted in one rounding: this is accurate for large scores too, whose product has no fraction bits
 * left. */
static void weights_of_scores(void **state) {
  (void)state;
  const f32 maxima[] = {-4194303.0f, -70.0f, 0.0f, 1.0f, 33.0f, 4194303.0f}, scales[] = {0.0721f, 0.104f, 3.3f};
  double worst = 0;
  for (size_t i = 0; i < ARRAY_LEN(maxima); i++)
    for (size_t k = 0; k < ARRAY_LEN(scales); k++) {
      f32 m = maxima[i], scale = scales[k], base = num_weight_base(m), low = num_weight_low(m, 1 / scale);
      for (u32 j = 0; j < 20000; j++) {
        f32 s = low + (m / scale - low) * ((f32)j / 20000);
        double x = (double)s * (double)scale - (double)m;
        if (x <= 0) worst = fmax(worst, fabs((double)num_weight(s, scale, base) / exp2(x) - 1));
      }
      assert_true(num_weight(low, scale, base) < 0x1p-118f && num_weight(low, scale, base) > 0x1p-122f);
      assert_int_equal(num_to_bf16(num_weight(NAN, scale, base)), 0x7fff);
    }
  printf("    worst relative error of weights: %.2e\n", worst);
  assert_true(worst < 7.6e-5);
  assert_true(isnan(num_weight_base(0x1p22f)) && isnan(num_weight_base(-0x1p22f)) && isnan(num_weight_base(INFINITY)));
}

static void exp2_of_integers(void **state) {
  (void)state;
  for (i32 d = 0; d >= -126; d--) assert_true(num_exp2_int((f32)d) == ldexpf(1.0f, d));
  for (i32 d = -127; d >= -2000; d--) assert_true(num_exp2_int((f32)d) == 0.0f);
  assert_true(num_exp2_int(-0x1p60f) == 0.0f && num_exp2_int(-INFINITY) == 0.0f);
}

static void ceiling(void **state) {
  (void)state;
  for (u32 u = 0; u < 0x7f800000u; u += 4099 * EVERY) {
    f32 x = num_float(u), y = num_float(u | 0x80000000u);
    bool small = x < 4194304.0f; /* beyond, the number is returned as it is */
    assert_true(num_ceil(x) == (small ? ceilf(x) : x));
    assert_true(num_ceil(y) == (small ? ceilf(y) : y));
  }
  for (i32 i = -4194303; i <= 4194303; i += 31) {
    f32 x = (f32)i, next = nextafterf(x, INFINITY), last = nextafterf(x, -INFINITY);
    assert_true(num_ceil(x) == ceilf(x) && num_ceil(next) == ceilf(next) && num_ceil(last) == ceilf(last));
  }
  assert_true(num_ceil(INFINITY) == INFINITY && num_ceil(-INFINITY) == -INFINITY && isnan(num_ceil(NAN)));
}

static void raising(void **state) {
  (void)state;
  for (i32 i = -2000; i <= 2000; i++) {
    const f32 m = (f32)(i % 50), top = (f32)i * 0.13f;
    assert_true(num_raise(m, top) == (top > m + 8 ? ceilf(top) : m));
    assert_true(num_raise(-0x1p60f, top) == ceilf(top)); /* nothing yet */
  }
  assert_true(num_raise(3.0f, 11.0f) == 3.0f && num_raise(3.0f, nextafterf(11.0f, 12.0f)) == 12.0f);
  assert_true(num_raise(3.0f, -INFINITY) == 3.0f && num_raise(-0x1p60f, -INFINITY) == -0x1p60f); /* all tokens come after the row's */
  assert_true(num_raise(3.0f, NAN) == 3.0f && num_raise(3.0f, INFINITY) == INFINITY);
}

/* The same bits, except for results below 2^-126, which are below it in both: neither changes 1 + e^x. */
static void plain_exponential(void **state) {
  (void)state;
  for (u32 u = 0; u <= num_bits(87.0f); u += (u < num_bits(0x1p-30f) ? 65521 : 251) * EVERY)
    for (u32 negative = 0; negative < 2; negative++) {
      f32 x = num_float(negative << 31 | u), exact = num_exp(x), plain = num_exp_plain(x);
      assert_true(exact < 0x1p-126f ? plain < 0x1p-125f : num_bits(plain) == num_bits(exact));
      assert_true(num_bits(num_add(1.0f, plain)) == num_bits(num_add(1.0f, exact)));
    }
}

static void exponential(void **state) {
  (void)state;
  double worst = 0;
  f32 last = INFINITY;
  for (u32 sign = 0; sign < 2; sign++) {
    for (u32 u = 0x2f000000u; u <= num_bits(sign ? 87.3365f : 88.722f); u += 211 * EVERY) {
      f32 x = num_float(u | sign << 31);
      worst = fmax(worst, error_ulp(num_exp(x), exp((double)x)));
    }
  }
  printf("    worst error of exp: %.3f ulp\n", worst);
  assert_true(worst <= 1.2);
  for (u32 u = 0x80000000u; u < 0xff800000u; u += 1009 * EVERY) { /* never above 1 for x <= 0, and decreasing up to one last place */
    f32 value = num_exp(num_float(u));
    assert_true(value <= 1.0f && value >= 0.0f && value <= nextafterf(last, INFINITY));
    last = value;
  }
  assert_true(num_exp(0.0f) == 1.0f && num_exp(-0.0f) == 1.0f);
  assert_true(num_exp(-INFINITY) == 0.0f && num_exp(-87.34f) == 0.0f && num_exp(INFINITY) == INFINITY && num_exp(89.0f) == INFINITY);
  assert_true(isnan(num_exp(NAN)));
}

static void logarithm(void **state) {
  (void)state;
  double worst = 0;
  for (u32 u = 0x00800000u; u < 0x7f800000u; u += 211 * EVERY) {
    if (u == 0x3f800000u) continue;
    worst = fmax(worst, error_ulp(num_log(num_float(u)), log((double)num_float(u))));
  }
  for (u32 u = 0x3f700000u; u < 0x3f900000u; u += EVERY) {
    if (u == 0x3f800000u) continue;
    worst = fmax(worst, error_ulp(num_log(num_float(u)), log((double)num_float(u))));
  }
  printf("    worst error of log: %.3f ulp\n", worst);
  assert_true(worst <= 2.5);
  assert_true(num_log(1.0f) == 0.0f);
}

static void sigmoid_and_silu(void **state) {
  (void)state;
  double worst_sigmoid = 0, worst_silu = 0;
  for (u32 sign = 0; sign < 2; sign++) {
    for (u32 u = 0x30000000u; u <= num_bits(80.0f); u += 509 * EVERY) {
      f32 x = num_float(u | sign << 31);
      double want = 1 / (1 + exp(-(double)x));
      worst_sigmoid = fmax(worst_sigmoid, error_ulp(num_sigmoid(x), want));
      worst_silu = fmax(worst_silu, error_ulp(num_silu(x), (double)x * want));
    }
  }
  printf("    worst error of sigmoid: %.3f, of silu: %.3f ulp\n", worst_sigmoid, worst_silu);
  assert_true(worst_sigmoid <= 2.5 && worst_silu <= 2.5);
  assert_true(num_sigmoid(0.0f) == 0.5f && num_sigmoid(-200.0f) == 0.0f && num_sigmoid(200.0f) == 1.0f);
  assert_true(num_silu(0.0f) == 0.0f && num_silu(-200.0f) == 0.0f && num_silu(200.0f) == 200.0f && num_silu(-INFINITY) != 0.0f);
}

static void order_is_total(void **state) {
  (void)state;
  static const f32 ascending[] = {-INFINITY, -0x1.fffffep127f, -1.0f, -0x1p-126f, -0x1p-149f, 0.0f, 0x1p-149f, 1.0f, INFINITY};
  for (u32 i = 1; i < ARRAY_LEN(ascending); i++) assert_true(num_order(ascending[i - 1]) < num_order(ascending[i]));
  assert_true(num_order(-0.0f) == num_order(0.0f));
  static const u32 not_numbers[] = {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc00000u, 0xffffffffu};
  for (u32 i = 0; i < ARRAY_LEN(not_numbers); i++) assert_true(num_order(num_float(not_numbers[i])) == UINT32_MAX); /* above all scores */
  for (u32 u = 1; u < 0x7f800000u; u += 65537) {
    assert_true(num_order(num_float(u)) > num_order(num_float(u - 1)));
    assert_true(num_order(num_float(u | 0x80000000u)) < num_order(num_float((u - 1) | 0x80000000u)));
  }
}

/* The first two words of Random123's kat_vectors for philox4x32-10: counters and keys of zeros, and vectors with our counter and key. */
static void philox_known_answers(void **state) {
  (void)state;
  assert_true(num_philox(0, 0, 0) == 0xe169c58d6627e8d5u);
}

/* The whole function for any counter and key, so that the published vectors with other counters apply too. */
static void philox(u32 c[4], u32 k0, u32 k1) {
  for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
    u64 p0 = (u64)0xd2511f53u * c[0], p1 = (u64)0xcd9e8d57u * c[2];
    u32 n[4] = {(u32)(p1 >> 32) ^ c[1] ^ k0, (u32)p1, (u32)(p0 >> 32) ^ c[3] ^ k1, (u32)p0};
    memcpy(c, n, sizeof n);
  }
}

static void philox_equals_the_full_function(void **state) {
  (void)state;
  u32 ones[4] = {~0u, ~0u, ~0u, ~0u}, digits[4] = {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u};
  static const u32 ones_out[4] = {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
  static const u32 digits_out[4] = {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u};
  philox(ones, ~0u, ~0u);
  philox(digits, 0xa4093822u, 0x299f31d0u);
  assert_memory_equal(ones, ones_out, sizeof ones);
  assert_memory_equal(digits, digits_out, sizeof digits);
  for (u32 i = 0; i < 1000; i++) {
    u32 c[4] = {i * 2654435761u, i * i, 0, 0};
    u64 key = (u64)i * 0x9e3779b97f4a7c15u, got = num_philox(key, c[0], c[1]);
    philox(c, (u32)key, (u32)(key >> 32));
    assert_true(got == ((u64)c[1] << 32 | c[0]));
  }
}

/* splitmix64's published sequence from seed 1234567: mix(n * golden) with the golden increment added inside. */
static void digest_words(void **state) {
  (void)state;
  assert_true(num_digest_word(0, 1234567) == 6457827717110365317u);
  assert_true(num_digest_word(1, 0) != num_digest_word(0, 1));
}

static void high_product(void **state) {
  (void)state;
  assert_true(num_mulhi64(~0ull, ~0ull) == ~0ull - 1);
  assert_true(num_mulhi64(1ull << 63, 6) == 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bf16_rounds_to_nearest_even),
      cmocka_unit_test(e4m3_rounds_to_nearest_even),
      cmocka_unit_test(scales_of_e4m3), cmocka_unit_test(exp2_for_bf16), cmocka_unit_test(weights_of_scores),
      cmocka_unit_test(exp2_of_integers),            cmocka_unit_test(ceiling), cmocka_unit_test(raising),
      cmocka_unit_test(exponential),                 cmocka_unit_test(plain_exponential),
      cmocka_unit_test(logarithm),
      cmocka_unit_test(sigmoid_and_silu),            cmocka_unit_test(order_is_total),
      cmocka_unit_test(philox_known_answers),        cmocka_unit_test(philox_equals_the_full_function),
      cmocka_unit_test(digest_words),                cmocka_unit_test(high_product),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
