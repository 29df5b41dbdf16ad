/* test_trig.c - trig.h against the C library's long double: the error in units of the last binary64 place, edges, and pinned result bits.
 * The long double functions are accurate to about 2^-63, far below the errors measured here. */
#include "tests/unit/unit.h"
#include "engine/base/trig.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static uint64_t random_state = 0x2545f4914f6cdd1du;

static uint64_t random_bits(void) { /* xorshift64 */
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static double uniform(double low, double high) { return low + (high - low) * ((double)(random_bits() >> 11) * 0x1p-53); }

/* |got - want| in units of the last place of want. */
static double error_ulp(double got, long double want) {
  int exponent;
  frexpl(want, &exponent);
  return (double)(fabsl((long double)got - want) / ldexpl(1.0L, exponent - 53));
}

static void print_worst(const char *what, double worst) { printf("    worst error of %s: %.3f ulp\n", what, worst); }

static void angles(void **state) {
  (void)state;
  double worst_sin = 0, worst_cos = 0;
  for (int i = 0; i < 400000; i++) {
    double x = i % 4 == 0 ? uniform(-4, 4) : i % 4 == 1 ? (double)(float)uniform(0, 1048576) : uniform(-0x1p24, 0x1p24);
    if (i % 4 == 3) x = (double)(i / 4) * 1.5707963267948966; /* next to the zeros */
    worst_sin = fmax(worst_sin, error_ulp(trig_sin(x), sinl((long double)x)));
    worst_cos = fmax(worst_cos, error_ulp(trig_cos(x), cosl((long double)x)));
  }
  print_worst("sin", worst_sin);
  print_worst("cos", worst_cos);
  assert_true(worst_sin < 1.0 && worst_cos < 1.0);
}

static void exponentials(void **state) {
  (void)state;
  double worst_exp = 0, worst_log = 0;
  for (int i = 0; i < 400000; i++) {
    double x = i % 2 ? uniform(-700, 709) : uniform(-1, 1), y = i % 2 ? uniform(0.5, 2) : exp(uniform(-700, 700));
    worst_exp = fmax(worst_exp, error_ulp(trig_exp(x), expl((long double)x)));
    worst_log = fmax(worst_log, y == 1.0 ? 0.0 : error_ulp(trig_log(y), logl((long double)y)));
  }
  print_worst("exp", worst_exp);
  print_worst("log", worst_log);
  assert_true(worst_exp < 1.0 && worst_log < 1.0);
}

static void powers(void **state) {
  (void)state;
  double worst = 0;
  for (int i = 0; i < 400000; i++) {
    double x = i % 2 ? uniform(1e3, 1e7) : uniform(1e-3, 1e3), y = uniform(-1, 1);
    worst = fmax(worst, error_ulp(trig_pow(x, y), powl((long double)x, (long double)y)));
  }
  print_worst("pow", worst);
  assert_true(worst < 1.0);
}

static void edges(void **state) {
  (void)state;
  assert_true(trig_sin(0.0) == 0.0 && !signbit(trig_sin(0.0)) && signbit(trig_sin(-0.0)));
  assert_true(trig_cos(0.0) == 1.0 && trig_exp(0.0) == 1.0 && trig_log(1.0) == 0.0);
  assert_true(trig_pow(10000.0, 0.0) == 1.0 && trig_pow(10000.0, 1.0) == 10000.0 && trig_pow(10000.0, 0.5) == 100.0);
  assert_true(isnan(trig_sin(INFINITY)) && isnan(trig_cos(NAN)) && isnan(trig_sin(0x1.000001p24)));
  assert_true(isnan(trig_log(0.0)) && isnan(trig_log(-1.0)) && isnan(trig_log(INFINITY)) && isnan(trig_log(NAN)));
  assert_true(isnan(trig_log(0x1p-1023)) && isnan(trig_pow(-2.0, 2.0)) && isnan(trig_pow(2.0, NAN)));
  assert_true(isnan(trig_exp(NAN)) && trig_exp(1000.0) == INFINITY && trig_exp(-1000.0) == 0.0);
  assert_true(trig_exp(-INFINITY) == 0.0 && trig_exp(INFINITY) == INFINITY);
}

static uint64_t mix(uint64_t sum, double value) {
  uint64_t u;
  memcpy(&u, &value, sizeof u);
  return (sum ^ u) * 0x100000001b3u;
}

/* Every compiler, optimisation level and later version must give these bits. */
static void bits_are_fixed(void **state) {
  (void)state;
  uint64_t sum = 0xcbf29ce484222325u;
  for (int i = 1; i <= 10000; i++) {
    double x = (double)i * 0x1.3p-4;
    sum = mix(mix(sum, trig_sin(x)), trig_cos(x));
    sum = mix(mix(sum, trig_exp(x * 0.5 - 200.0)), trig_log(x));
    sum = mix(sum, trig_pow(10000.0, -x / 1200.0));
  }
  printf("    digest %016llx\n", (unsigned long long)sum);
  assert_true(sum == 0x80a586d4305790b5u);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(angles), cmocka_unit_test(exponentials), cmocka_unit_test(powers),
      cmocka_unit_test(edges),  cmocka_unit_test(bits_are_fixed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
