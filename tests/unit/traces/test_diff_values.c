/* test_diff_values.c - distances between numbers, and rows whose reported differences are exactly the changed values. */
#include "tests/unit/unit.h"
#include <math.h>
#include <string.h>
#include "engine/traces/diff_values.h"

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint64_t ulps(uint32_t type, uint32_t a, uint32_t b) {
  uint64_t forth = 0, back = 0;
  assert_true(diff_values_ulps(type, a, b, &forth) && diff_values_ulps(type, b, a, &back));
  assert_int_equal(forth, back);
  return forth;
}

static void distances(void **state) {
  (void)state;
  assert_int_equal(ulps(VERBATIM_POINT_F32, bits_of(1.0f), bits_of(1.0f)), 0);
  assert_int_equal(ulps(VERBATIM_POINT_F32, bits_of(1.0f), bits_of(nextafterf(1.0f, 2.0f))), 1);
  assert_int_equal(ulps(VERBATIM_POINT_F32, bits_of(1.0f), bits_of(nextafterf(1.0f, 0.0f))), 1);
  assert_int_equal(ulps(VERBATIM_POINT_F32, bits_of(-1.0f), bits_of(nextafterf(-1.0f, 0.0f))), 1);
  assert_int_equal(ulps(VERBATIM_POINT_F32, bits_of(0.0f), bits_of(-0.0f)), 0);
  assert_int_equal(ulps(VERBATIM_POINT_F32, bits_of(1e-45f), bits_of(-1e-45f)), 2); /* the smallest, on both sides of 0 */
  assert_int_equal(ulps(VERBATIM_POINT_F32, bits_of(3.40282347e38f), bits_of(INFINITY)), 1);
  assert_int_equal(ulps(VERBATIM_POINT_F32, bits_of(-INFINITY), bits_of(INFINITY)), 2ull * 0x7f800000u);
  assert_int_equal(ulps(VERBATIM_POINT_BF16, 0x3f80, 0x3f81), 1);
  assert_int_equal(ulps(VERBATIM_POINT_BF16, 0x8001, 0x0001), 2);
  uint64_t untouched = 7;
  assert_false(diff_values_ulps(VERBATIM_POINT_F32, bits_of(NAN), 0, &untouched));
  assert_false(diff_values_ulps(VERBATIM_POINT_BF16, 0, 0x7fff, &untouched));
  assert_false(diff_values_ulps(VERBATIM_POINT_U32, 1, 2, &untouched));
  assert_int_equal(untouched, 7);
}

static void numbers(void **state) {
  (void)state;
  assert_true(diff_values_number(VERBATIM_POINT_F32, bits_of(-1.5f)) == -1.5);
  assert_true(diff_values_number(VERBATIM_POINT_BF16, 0xbfc0) == -1.5);
  assert_true(diff_values_number(VERBATIM_POINT_U32, 0xbfc0) == 0xbfc0);
}

static void rows(void **state) {
  (void)state;
  uint32_t a[50], b[50];
  for (uint32_t i = 0; i < 50; i++) a[i] = bits_of((float)i - 20.5f);
  memcpy(b, a, sizeof a);
  diff_values none = diff_values_of(VERBATIM_POINT_F32, 50, a, b);
  assert_int_equal(none.differ_count, 0);
  b[17] += 3, b[40] ^= 1, b[49] = bits_of(NAN);
  diff_values found = diff_values_of(VERBATIM_POINT_F32, 50, a, b);
  assert_true(found.count == 50 && found.differ_count == 3 && found.index == 17 && found.a == a[17] && found.b == b[17]);
  assert_int_equal(found.most_ulps, 3); /* the NaN has none */
  assert_int_equal(diff_values_of(VERBATIM_POINT_F32, 17, a, b).differ_count, 0);
  uint16_t x[5] = {1, 2, 3, 4, 5}, y[5] = {1, 2, 3, 4, 7};
  found = diff_values_of(VERBATIM_POINT_BF16, 5, x, y);
  assert_true(found.differ_count == 1 && found.index == 4 && found.a == 5 && found.b == 7 && found.most_ulps == 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(distances), cmocka_unit_test(numbers), cmocka_unit_test(rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
