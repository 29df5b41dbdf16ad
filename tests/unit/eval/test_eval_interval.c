/* test_eval_interval.c - intervals and standard errors against figures of a Python program with 60 decimal digits, which takes other ways:
 * Wilson's bounds by bisection of the equation that they solve, clustered errors by the double sum over pairs of items. */
#include "tests/unit/unit.h"
#include <math.h>
#include "engine/base/base.h"
#include "engine/eval/interval.h"

static void near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-14 * (1 + fabs(expected)))) fail_msg("%.17g, expected %.17g", found, expected);
}

static void shares(void **state) {
  (void)state;
  static const struct { double right, count, low, high; } cases[] = {
    {440, 440, 0.9913449752285398, 1}, {0, 10, 0, 0.27753279986288926}, {38, 40, 0.8349612263085904, 0.9861793326138516},
    {5, 8, 0.3057423946026273, 0.8631557141764027}, {3, 4, 0.3006418425824019, 0.9544127391902995},
    {1, 1000, 0.000176546370626078, 0.0056425585979579355}, {500, 1000, 0.4690696003681042, 0.5309303996318958},
    {1, 2, 0.09453120573423071, 0.9054687942657693}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    eval_interval found = eval_interval_wilson(cases[i].right / cases[i].count, cases[i].count);
    near(found.low, cases[i].low);
    near(found.high, cases[i].high);
  }
  assert_true(eval_interval_wilson(1, 440).high == 1 && eval_interval_wilson(0, 3).low == 0);
  assert_true(isnan(eval_interval_wilson((double)NAN, 0).low));
  /* the control: the normal interval of 440 of 440 has no width, and of 1 of 1000 begins below 0 */
  assert_true(eval_interval_wilson(1, 440).low < 0.992 && eval_interval_wilson(0.001, 1000).low > 0);
}

/* The differences of shares from their mean 2/3, their clusters, and what the sum over pairs gives. */
static void clusters(void **state) {
  (void)state;
  static const double right[2][12] = {{1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 0}, {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}};
  static const uint32_t of[2][12] = {{0, 0, 1, 1, 2, 2, 0, 3, 3, 3, 1, 4}, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3}};
  static const double errors[2] = {0.1624033857657932, 0.26378918903435544}, effective[2] = {9.191489361702128, 3.4838709677419355};
  static const eval_interval intervals[2] = {{0.35694005635594644, 0.878143344909501}, {0.22688206602139907, 0.9316487245532294}};
  for (size_t k = 0; k < 2; k++) {
    double rest[12], sums[12];
    const eval_interval_clusters clustered = {of[k], 12, k ? 4 : 5, sums}, apart = {.count = 12};
    for (size_t i = 0; i < 12; i++) rest[i] = right[k][i] - 2.0 / 3;
    near(eval_interval_error(rest, &apart), 0.14213381090374028);
    near(eval_interval_error(rest, &clustered), errors[k]);
    near(eval_interval_effective(2.0 / 9, errors[k], 12, &clustered), effective[k]);
    assert_true(eval_interval_effective(2.0 / 9, 0.14213381090374028, 12, &apart) == 12);
    eval_interval found = eval_interval_wilson(2.0 / 3, eval_interval_effective(2.0 / 9, errors[k], 12, &clustered));
    near(found.low, intervals[k].low);
    near(found.high, intervals[k].high);
  }
}

/* A cluster for each item changes nothing; one cluster says nothing; without variance the clusters are what is counted. */
static void edges(void **state) {
  (void)state;
  static const uint32_t own[4] = {2, 0, 3, 1}, pairs[4] = {0, 0, 1, 1};
  double rest[4] = {0.25, 0.25, 0.25, -0.75}, none[4] = {0}, against[4] = {0.5, -0.5, 0.5, -0.5}, sums[4];
  const eval_interval_clusters apart = {.count = 4}, each = {own, 4, 4, sums}, two = {pairs, 4, 2, sums};
  const eval_interval_clusters one = {(const uint32_t[4]){0}, 4, 1, sums}, single = {.count = 1};
  double plain = eval_interval_error(rest, &apart);
  assert_true(eval_interval_error(rest, &each) == plain);
  near(eval_interval_effective(0.1875, plain, 4, &each), 4);
  assert_true(isnan(eval_interval_error(rest, &one)) && eval_interval_effective(0.1875, (double)NAN, 4, &one) == 1);
  assert_true(isnan(eval_interval_error(rest, &single)) && eval_interval_effective(0, (double)NAN, 1, &single) == 1);
  assert_true(eval_interval_error(none, &two) == 0 && eval_interval_effective(0, 0, 4, &two) == 2);
  double less = eval_interval_error(against, &two);
  assert_true(less < eval_interval_error(against, &apart) && eval_interval_effective(0.25, less, 4, &two) == 4);
}

/* Four answers to each of three items: they say as much as twelve if they are as different as can be, and as three if all agree. */
static void several_answers(void **state) {
  (void)state;
  const eval_interval_clusters three = {.count = 3};
  double agree[3] = {1.0 / 3, 1.0 / 3, -2.0 / 3}, differ[3] = {0, 0.25, -0.25};
  near(eval_interval_effective(2.0 / 9, eval_interval_error(agree, &three), 12, &three), 3);
  near(eval_interval_effective(0.25, eval_interval_error(differ, &three), 12, &three), 12);
  assert_true(eval_interval_effective(0, 0, 12, &three) == 3);
}

/* Of two runs on the same items. */
static void pairs(void **state) {
  (void)state;
  static const struct { uint32_t lost, gained, count; double low, high; } cases[] = {
    {0, 0, 40, -0.06599542020712752, 0.06599542020712752}, {3, 5, 100, -0.041037113150028795, 0.0802527994245386},
    {10, 2, 50, -0.28853359908075654, -0.019158708611551136}, {0, 40, 40, 0.8601671183240561, 1}, {1, 0, 2, -1, 0.5625581424161614}};
  static const struct { uint32_t lost, gained; double p; } tests[] = {
    {0, 0, 1}, {1, 0, 1}, {3, 5, 0.7265625}, {10, 2, 0.03857421875}, {0, 12, 0.00048828125}, {100, 140, 0.011664092317677663},
    {140, 100, 0.011664092317677663}, {2000, 2300, 5.079935568924032e-06}, {5, 5, 1}, {0, 3000, 0}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    double n = cases[i].count;
    eval_interval found = eval_interval_paired(cases[i].lost / n, cases[i].gained / n, n);
    near(found.low, cases[i].low);
    near(found.high, cases[i].high);
  }
  for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
    double found = eval_interval_mcnemar(tests[i].lost, tests[i].gained);
    if (fabs(found - tests[i].p) > 1e-12 * tests[i].p) fail_msg("case %zu: %.17g, expected %.17g", i, found, tests[i].p);
  }
}

static void means(void **state) {
  (void)state;
  eval_interval_mean mean = {.count = 0};
  assert_true(isnan(eval_interval_mean_of(&mean).low));
  eval_interval_mean_add(&mean, 0.625, eval_interval_wilson(0.625, 8));
  eval_interval_mean_add(&mean, 1, eval_interval_wilson(1, 2));
  eval_interval found = eval_interval_mean_of(&mean);
  near(found.low, 0.44699036135203424);
  near(found.high, 0.9315778570882014);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shares), cmocka_unit_test(clusters), cmocka_unit_test(edges),
                                     cmocka_unit_test(several_answers), cmocka_unit_test(pairs), cmocka_unit_test(means)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
