/* test_eval_metric.c - scores against figures that another program computed from EVALUATION.md, bit by bit. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"
#include "engine/eval/metric.h"

static void parse(const char *name, const char *kind, const char *group, eval_task *out) {
  char yaml[256];
  snprintf(yaml, sizeof yaml, "name: %s\nkind: %s\nitems: i\n%s%s\n", name, kind, group ? "group: " : "", group ? group : "");
  if (eval_task_parse(yaml, strlen(yaml), out) != OK) fail_msg("%s", fail_text());
}

static double figure(const json_t *row, size_t metric, const char *key) {
  const json_t *value = json_object_get(json_array_get(json_object_get(row, "metrics"), metric), key);
  assert_true(json_is_number(value));
  return json_number_value(value);
}

static const json_t *row_of(const json_t *scores, const char *list, size_t index) {
  return json_array_get(json_object_get(scores, list), index);
}

static void set(eval_sample *samples, const double *values, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) samples[i] = (eval_sample){.subset = EVAL_METRIC_NONE, .answers = 1, .over = {values[i]},
                                                               .under = {1, 1, 1, 1}};
}

static void near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-14 * (1 + fabs(expected)))) fail_msg("%.17g, expected %.17g", found, expected);
}

static const char *interval_of(const json_t *row, size_t metric) {
  return json_string_value(json_object_get(json_array_get(json_object_get(row, "metrics"), metric), "interval"));
}

/* Wilson's intervals by a Python program; test_eval_interval.c has more of them. */
static void means_and_intervals(void **state) {
  (void)state;
  static const double values[8] = {1, 0, 1, 1, 0, 1, 0, 1};
  eval_sample samples[8];
  eval_task task;
  json_t *scores = NULL;
  parse("t", "generate", NULL, &task);
  set(samples, values, 8);
  eval_score score = {.task = &task, .samples = samples, .count = 8};
  for (uint32_t i = 0; i < 4; i++) assert_int_equal(eval_metric_number(&score.subsets, "a", &samples[i].subset), OK);
  assert_int_equal(eval_metric_scores(&score, 1, &scores), OK);
  const json_t *row = row_of(scores, "tasks", 0), *subset = json_array_get(json_object_get(row, "subsets"), 0);
  assert_true(figure(row, 0, "value") == 0.625 && json_is_null(json_object_get(row, "clusters")));
  assert_string_equal(interval_of(row, 0), "wilson");
  near(figure(row, 0, "low"), 0.3057423946026273);
  near(figure(row, 0, "high"), 0.8631557141764027);
  assert_true(figure(row, 0, "stderr") == sqrt((5 * 0.375 * 0.375 + 3 * 0.625 * 0.625) / 7 / 8));
  assert_true(figure(subset, 0, "value") == 0.75);
  near(figure(subset, 0, "low"), 0.3006418425824019);
  near(figure(subset, 0, "high"), 0.9544127391902995);
  assert_int_equal(json_integer_value(json_object_get(subset, "items")), 4);
  json_decref(scores);
  eval_metric_drop(&score.subsets);
  eval_task_close(&task);
}

/* Values whose sums all differ, so that the positions of the bounds show, and the seed of a subset. 10,000 resamples by a Python program,
 * with digests from another library; bits_per_byte divides by ln 2. */
static void the_bootstrap_has_its_places(void **state) {
  (void)state;
  eval_sample list[30];
  eval_task task;
  json_t *scores = NULL;
  for (uint32_t i = 0; i < 30; i++) {
    double value = (i * i * 7919 % 10007) / 10007.0;
    list[i] = (eval_sample){.subset = EVAL_METRIC_NONE, .answers = 1, .over = {value, value, value, value}, .under = {1, 1, 1, 1}};
  }
  parse("t", "perplexity", NULL, &task);
  eval_score score = {.task = &task, .samples = list, .count = 30};
  for (uint32_t i = 1; i < 30; i += 2) assert_int_equal(eval_metric_number(&score.subsets, "b", &list[i].subset), OK);
  assert_int_equal(eval_metric_scores(&score, 1, &scores), OK);
  const json_t *row = row_of(scores, "tasks", 0), *subset = json_array_get(json_object_get(row, "subsets"), 0);
  assert_string_equal(interval_of(row, 3), "bootstrap");
  near(figure(row, 3, "low"), 0.42113520535625076 / log(2));
  near(figure(row, 3, "high"), 0.6357016754938212 / log(2));
  near(figure(subset, 3, "low"), 0.4543952566536758 / log(2));
  near(figure(subset, 3, "high"), 0.7410545951167514 / log(2));
  json_decref(scores);
  eval_metric_drop(&score.subsets);
  eval_task_close(&task);
}

/* Clusters: the error is the sum over pairs of a Python program. A subset counts its own clusters only; items that were left out count in
 * none. The bootstrap of one cluster for each item is that of the items. */
static void clustered(void **state) {
  (void)state;
  static const double over[5] = {3.5, 2.25, 7, 1.125, 1e300}, under[5] = {2, 3, 4, 1, 1};
  static const char *const names[2][5] = {{"x", "x", "y", "z", "w"}, {"d", "c", "b", "a", "w"}};
  double low[2];
  for (size_t k = 0; k < 2; k++) {
    static const char yaml[] = "name: p\nkind: perplexity\nitems: i\ncluster: c\n";
    eval_sample samples[5];
    eval_task task;
    json_t *scores = NULL;
    assert_int_equal(eval_task_parse(yaml, strlen(yaml), &task), OK);
    assert_string_equal(task.cluster, "c");
    eval_score score = {.task = &task, .samples = samples, .count = 5};
    for (size_t i = 0; i < 5; i++) {
      samples[i] = (eval_sample){.subset = EVAL_METRIC_NONE, .answers = 1, .is_failed = i == 4, .is_left_out = i == 4,
                                 .over = {over[i], over[i], over[i], over[i]}, .under = {under[i], under[i], under[i], under[i]}};
      assert_int_equal(eval_metric_number(&score.clusters, names[k][i], &samples[i].cluster), OK);
    }
    for (size_t i = 0; i < 2; i++) assert_int_equal(eval_metric_number(&score.subsets, "s", &samples[i].subset), OK);
    assert_int_equal(eval_metric_scores(&score, 1, &scores), OK);
    const json_t *row = row_of(scores, "tasks", 0), *subset = json_array_get(json_object_get(row, "subsets"), 0);
    assert_int_equal(json_integer_value(json_object_get(row, "clusters")), k ? 4 : 3);
    assert_int_equal(json_integer_value(json_object_get(subset, "clusters")), k ? 2 : 1);
    if (k == 0) near(figure(row, 0, "stderr"), 0.9561215011420527);
    const json_t *metric = json_array_get(json_object_get(subset, "metrics"), 0);
    assert_true(json_is_null(json_object_get(metric, "stderr")) == !k && json_is_null(json_object_get(metric, "low")) == !k);
    low[k] = figure(row, 0, "low");
    json_decref(scores);
    eval_metric_drop(&score.subsets);
    eval_metric_drop(&score.clusters);
    eval_task_close(&task);
  }
  near(low[1], 2.325069660277121);
  assert_true(low[0] != low[1]);
}

static void perplexities(void **state) {
  (void)state;
  static const double over[4] = {3.5, 2.25, 7, 1.125}, under[4] = {2, 3, 4, 1};
  eval_sample samples[5] = {{0}};
  eval_task task;
  json_t *scores = NULL;
  parse("p", "perplexity", NULL, &task);
  for (uint32_t i = 0; i < 4; i++)
    samples[i] = (eval_sample){.subset = EVAL_METRIC_NONE, .answers = 1, .over = {over[i], over[i], over[i], over[i]},
                               .under = {under[i], 2 * under[i], under[i], under[i]}};
  samples[4] = (eval_sample){.subset = EVAL_METRIC_NONE, .answers = 1, .is_failed = true, .is_left_out = true, .over = {1e300}};
  eval_score score = {.task = &task, .samples = samples, .count = 5};
  assert_int_equal(eval_metric_scores(&score, 1, &scores), OK);
  const json_t *row = row_of(scores, "tasks", 0);
  assert_true(fabs(figure(row, 0, "value") - exp(1.3875)) < 1e-14 && figure(row, 0, "value") == figure(row, 2, "value"));
  assert_true(fabs(figure(row, 1, "value") - exp(1.3875 / 2)) < 1e-14 && fabs(figure(row, 3, "value") - 1.3875 / log(2)) < 1e-14);
  assert_true(fabs(figure(row, 0, "low") - 2.325069660277121) < 1e-13 && fabs(figure(row, 0, "high") - 5.754602676005731) < 1e-13);
  assert_int_equal(json_integer_value(json_object_get(row, "failed")), 1);
  json_decref(scores);
  eval_task_close(&task);
}

static void groups(void **state) {
  (void)state;
  static const double values[8] = {1, 0, 1, 1, 0, 1, 0, 1}, others[2] = {1, 1};
  eval_sample samples[8], two[2];
  eval_task tasks[3];
  json_t *scores = NULL;
  parse("t", "generate", "g", &tasks[0]);
  parse("u", "choice", "g", &tasks[1]);
  parse("v", "generate", NULL, &tasks[2]);
  set(samples, values, 8);
  set(two, others, 2);
  const eval_score list[3] = {{.task = &tasks[0], .samples = samples, .count = 8}, {.task = &tasks[1], .samples = two, .count = 2},
                              {.task = &tasks[2], .samples = two, .count = 2}};
  assert_int_equal(eval_metric_scores(list, 3, &scores), OK);
  assert_int_equal(json_array_size(json_object_get(scores, "groups")), 1);
  const json_t *row = row_of(scores, "groups", 0), *task = row_of(scores, "tasks", 0);
  assert_int_equal(json_array_size(json_object_get(row, "metrics")), 1); /* acc_norm is missing in one of them */
  assert_true(figure(row, 0, "value") == (0.625 + 1) / 2);
  assert_string_equal(interval_of(row, 0), "mover");
  near(figure(row, 0, "low"), 0.44699036135203424);
  near(figure(row, 0, "high"), 0.9315778570882014);
  assert_true(figure(row, 0, "stderr") == figure(task, 0, "stderr") / 2);
  near(figure(row_of(scores, "tasks", 2), 0, "low"), 0.34238022750665303); /* two of two are not certainty */
  assert_true(figure(row_of(scores, "tasks", 2), 0, "high") == 1 && figure(row_of(scores, "tasks", 2), 0, "stderr") == 0);
  json_decref(scores);
  for (size_t i = 0; i < 3; i++) eval_task_close(&tasks[i]);
}

static void nothing_is_null(void **state) {
  (void)state;
  eval_sample failed = {.subset = EVAL_METRIC_NONE, .is_failed = true, .is_left_out = true};
  eval_task task;
  json_t *scores = NULL;
  parse("p", "perplexity", NULL, &task);
  eval_score score = {.task = &task, .samples = &failed, .count = 1};
  assert_int_equal(eval_metric_scores(&score, 1, &scores), OK);
  const json_t *metrics = json_object_get(row_of(scores, "tasks", 0), "metrics");
  assert_true(json_is_null(json_object_get(json_array_get(metrics, 0), "value")) && json_is_null(json_object_get(json_array_get(metrics,
      0), "low")));
  json_decref(scores);
  eval_task_close(&task);
}

/* Within two units in the last place of the library's result, which is accurate to one. */
static void exponential(void **state) {
  (void)state;
  for (double x = -700; x < 709; x += 0.37109375) {
    double expected = exp(x), found = eval_metric_exp(x);
    if (fabs(found - expected) > 4.5e-16 * expected) fail_msg("exp(%g): %.17g, expected %.17g", x, found, expected);
  }
  assert_true(eval_metric_exp(0) == 1 && eval_metric_exp(710) == (double)INFINITY && eval_metric_exp(-800) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(means_and_intervals), cmocka_unit_test(the_bootstrap_has_its_places),
                                     cmocka_unit_test(clustered), cmocka_unit_test(perplexities), cmocka_unit_test(groups),
                                     cmocka_unit_test(nothing_is_null), cmocka_unit_test(exponential)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
