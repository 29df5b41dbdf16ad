/* eval/metric.c - see eval/metric.h. Every metric is a quotient of two sums over items, or a function of such a quotient. */
#include "eval/metric.h"
#include "base/digest.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LN2 0x1.62e42fefa39efp-1
#define LN2_HIGH 0x1.62e42feep-1         /* k times this is exact for |k| below 2^20 */
#define LN2_LOW 0x1.a39ef35793c76p-33
#define EXP_TERMS 20u
#define LOW_AT 249u                      /* indices into the resamples in ascending order: 2.5 % and 97.5 % */
#define HIGH_AT 9749u

typedef enum form { MEAN, PERPLEXITY, BITS } form;

typedef struct metric_row {
  const char *name;
  form form;
} metric_row;

static const metric_row METRICS[3][EVAL_METRIC_MAX] = {
    [EVAL_GENERATE] = {{"acc", MEAN}},
    [EVAL_CHOICE] = {{"acc", MEAN}, {"acc_norm", MEAN}},
    [EVAL_PERPLEXITY] = {{"token_perplexity", PERPLEXITY}, {"word_perplexity", PERPLEXITY}, {"byte_perplexity", PERPLEXITY},
                         {"bits_per_byte", BITS}}};

typedef struct figures { /* of one metric */
  double value, error, low, high;
} figures;

typedef struct task_figures {
  figures list[EVAL_METRIC_MAX];
  double *again; /* [EVAL_METRIC_MAX][EVAL_METRIC_RESAMPLES], unsorted */
  uint32_t count, failed;
  eval_margin_risk risk;
} task_figures;

uint32_t eval_metric_count(eval_kind kind) {
  uint32_t count = 0;
  while (count < EVAL_METRIC_MAX && METRICS[kind][count].name) count++;
  return count;
}

const char *eval_metric_name(eval_kind kind, uint32_t metric) { return METRICS[kind][metric].name; }

/* === Subsets ================================================================================================================ */

status eval_metric_subset(eval_subset_names *self, const char *name, uint32_t *out) {
  if (!name) {
    *out = EVAL_METRIC_NO_SUBSET;
    return OK;
  }
  if (!self->index && !(self->index = json_object())) return FAIL(ERR_LIMIT, "subsets: no memory");
  const json_t *known = json_object_get(self->index, name);
  if (known) {
    *out = (uint32_t)json_integer_value(known);
    return OK;
  }
  if (self->count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 16;
    const char **grown = realloc(self->list, room * sizeof *grown);
    if (!grown) return FAIL(ERR_LIMIT, "subsets: no memory");
    self->list = grown;
    self->room = room;
  }
  if (json_object_set_new(self->index, name, json_integer(self->count)) != 0) return FAIL(ERR_LIMIT, "subsets: no memory");
  self->list[self->count] = json_object_iter_key(json_object_iter_at(self->index, name));
  *out = self->count++;
  return OK;
}

void eval_metric_drop(eval_subset_names *self) {
  json_decref(self->index);
  free(self->list);
  *self = (eval_subset_names){0};
}

/* === One metric ============================================================================================================= */

double eval_metric_exp(double x) {
  if (x > 709.0) return (double)INFINITY;
  if (x < -700.0) return 0;
  double k = floor(x / LN2 + 0.5), r = (x - k * LN2_HIGH) - k * LN2_LOW, sum = 1;
  for (uint32_t i = EXP_TERMS; i > 0; i--) sum = 1 + r / i * sum;
  return ldexp(sum, (int)k);
}

static double finish(form kind, double over, double under) {
  double quotient = over / under;
  return kind == MEAN ? quotient : kind == BITS ? quotient / LN2 : eval_metric_exp(quotient);
}

/* The derivative of `finish` with respect to the quotient. */
static double slope(form kind, double value) { return kind == MEAN ? 1 : kind == BITS ? 1 / LN2 : value; }

static figures value_of(form kind, const eval_sample *samples, const uint32_t *chosen, uint32_t count, uint32_t m) {
  figures built = {0};
  double over = 0, under = 0, squares = 0;
  for (uint32_t i = 0; i < count; i++) over += samples[chosen[i]].over[m], under += samples[chosen[i]].under[m];
  double quotient = over / under;
  built.value = finish(kind, over, under);
  for (uint32_t i = 0; i < count; i++) {
    double rest = samples[chosen[i]].over[m] - quotient * samples[chosen[i]].under[m];
    squares += rest * rest;
  }
  if (count > 1) built.error = sqrt(squares / ((double)count - 1) / count) / (under / count) * slope(kind, built.value);
  return built;
}

/* === Intervals ============================================================================================================== */

static uint64_t seed_of(const char *task, const char *subset) {
  digest_state state;
  uint64_t seed = 0;
  digest_start(&state);
  digest_add(&state, task, strlen(task));
  if (subset) digest_add(&state, "/", 1), digest_add(&state, subset, strlen(subset));
  digest name = digest_end(&state);
  for (uint32_t i = 0; i < 8; i++) seed = seed << 8 | name.bytes[i];
  return seed;
}

/* again[metric][resample]. Each draw picks an item for all metrics at once. */
static void resample(const metric_row *rows, uint32_t metrics, const eval_sample *samples, const uint32_t *chosen, uint32_t count,
                     uint64_t seed, double *again) {
  for (uint32_t r = 0; r < EVAL_METRIC_RESAMPLES; r++) {
    double over[EVAL_METRIC_MAX] = {0}, under[EVAL_METRIC_MAX] = {0};
    for (uint32_t i = 0; i < count; i++) {
      const eval_sample *drawn = &samples[chosen[((random_next(&seed) >> 32) * count) >> 32]];
      for (uint32_t m = 0; m < metrics; m++) over[m] += drawn->over[m], under[m] += drawn->under[m];
    }
    for (uint32_t m = 0; m < metrics; m++) again[m * EVAL_METRIC_RESAMPLES + r] = finish(rows[m].form, over[m], under[m]);
  }
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static status set_interval(const double *again, figures *out) {
  double *sorted = malloc(EVAL_METRIC_RESAMPLES * sizeof *sorted);
  if (!sorted) return FAIL(ERR_LIMIT, "scores: no memory");
  memcpy(sorted, again, EVAL_METRIC_RESAMPLES * sizeof *sorted);
  qsort(sorted, EVAL_METRIC_RESAMPLES, sizeof *sorted, compare);
  out->low = sorted[LOW_AT];
  out->high = sorted[HIGH_AT];
  free(sorted);
  return OK;
}

/* For the items of one subset, or all of them (EVAL_METRIC_NO_SUBSET). */
static status compute(const eval_score *score, uint32_t subset, task_figures *out) {
  const metric_row *rows = METRICS[score->task->kind];
  uint32_t metrics = eval_metric_count(score->task->kind), count = 0;
  uint32_t *chosen = malloc((score->count + 1ull) * sizeof *chosen);
  out->again = malloc((uint64_t)EVAL_METRIC_MAX * EVAL_METRIC_RESAMPLES * sizeof *out->again);
  out->count = out->failed = 0;
  for (uint32_t i = 0; chosen && i < score->count; i++) {
    const eval_sample *s = &score->samples[i];
    if (subset != EVAL_METRIC_NO_SUBSET && s->subset != subset) continue;
    out->count++;
    out->failed += s->is_failed;
    if (s->is_judged) eval_margin_add(&out->risk, &s->margin, s->is_right);
    if (!s->is_left_out) chosen[count++] = i;
  }
  status result = chosen && out->again ? OK : FAIL(ERR_LIMIT, "scores: no memory");
  if (result == OK)
    resample(rows, metrics, score->samples, chosen, count,
             seed_of(score->task->name, subset == EVAL_METRIC_NO_SUBSET ? NULL : score->subsets.list[subset]), out->again);
  for (uint32_t m = 0; m < metrics && result == OK; m++) {
    out->list[m] = value_of(rows[m].form, score->samples, chosen, count, m);
    result = set_interval(out->again + m * EVAL_METRIC_RESAMPLES, &out->list[m]);
  }
  free(chosen);
  return result;
}

/* === JSON =================================================================================================================== */

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static status append(json_t *list, const char *name, const figures *f) {
  json_t *built = json_pack("{s:s, s:o, s:o, s:o, s:o}", "name", name, "value", number(f->value), "stderr", number(f->error), "low",
                           number(f->low), "high", number(f->high));
  return json_array_append_new(list, built) == 0 ? OK : FAIL(ERR_LIMIT, "scores: no memory");
}

static status metrics_json(eval_kind kind, const task_figures *f, json_t **out) {
  json_t *list = json_array();
  for (uint32_t m = 0; list && m < eval_metric_count(kind); m++) TRY(append(list, eval_metric_name(kind, m), &f->list[m]));
  *out = list;
  return list ? OK : FAIL(ERR_LIMIT, "scores: no memory");
}

/* NULL: no item has a margin. */
static json_t *risk_json(const eval_margin_risk *risk) { return risk->known ? eval_margin_risk_json(risk) : json_null(); }

static status subsets_json(const eval_score *score, json_t *list) {
  for (uint32_t i = 0; i < score->subsets.count; i++) {
    task_figures f = {0};
    json_t *metrics = NULL;
    status result = compute(score, i, &f);
    if (result == OK) result = metrics_json(score->task->kind, &f, &metrics);
    free(f.again);
    TRY(result);
    json_t *built = json_pack("{s:s, s:i, s:i, s:o, s:o}", "name", score->subsets.list[i], "items", (int)f.count, "failed", (int)f.failed,
                             "metrics", metrics, "flip_risk", risk_json(&f.risk));
    if (json_array_append_new(list, built) != 0) return FAIL(ERR_LIMIT, "scores: no memory");
  }
  return OK;
}

static status task_json(const eval_score *score, const task_figures *f, json_t *list) {
  json_t *metrics = NULL, *subsets = json_array();
  TRY(metrics_json(score->task->kind, f, &metrics));
  json_t *built = json_pack("{s:s, s:s, s:s?, s:i, s:i, s:o, s:o, s:o}", "name", score->task->name, "kind",
                           eval_task_kind_name(score->task->kind), "group", score->task->group, "items", (int)f->count, "failed",
                           (int)f->failed, "metrics", metrics, "flip_risk", risk_json(&f->risk), "subsets", subsets);
  if (json_array_append_new(list, built) != 0) return FAIL(ERR_LIMIT, "scores: no memory");
  return subsets_json(score, subsets);
}

/* === Groups ================================================================================================================= */

static int32_t metric_named(eval_kind kind, const char *name) {
  for (uint32_t m = 0; m < eval_metric_count(kind); m++)
    if (strcmp(eval_metric_name(kind, m), name) == 0) return (int32_t)m;
  return -1;
}

static bool is_in(const eval_score *score, const char *group) { return score->task->group && strcmp(score->task->group, group) == 0; }

/* The mean of the tasks' figures, resample by resample. False: a task lacks the metric. */
static bool average(const eval_score *list, const task_figures *each, uint32_t count, const char *group, const char *name, double *again,
                    figures *out) {
  double squares = 0;
  uint32_t tasks = 0;
  *out = (figures){0};
  memset(again, 0, EVAL_METRIC_RESAMPLES * sizeof *again);
  for (uint32_t t = 0; t < count; t++) {
    if (!is_in(&list[t], group)) continue;
    int32_t m = metric_named(list[t].task->kind, name);
    if (m < 0) return false;
    const double *from = each[t].again + (uint32_t)m * EVAL_METRIC_RESAMPLES;
    for (uint32_t r = 0; r < EVAL_METRIC_RESAMPLES; r++) again[r] += from[r];
    out->value += each[t].list[m].value;
    squares += each[t].list[m].error * each[t].list[m].error;
    tasks++;
  }
  for (uint32_t r = 0; r < EVAL_METRIC_RESAMPLES; r++) again[r] /= tasks;
  out->value /= tasks;
  out->error = sqrt(squares) / tasks;
  return true;
}

static status group_metrics(const eval_score *list, const task_figures *each, uint32_t count, uint32_t first, json_t *metrics) {
  eval_kind kind = list[first].task->kind;
  double *again = malloc(EVAL_METRIC_RESAMPLES * sizeof *again);
  status result = again ? OK : FAIL(ERR_LIMIT, "scores: no memory");
  for (uint32_t m = 0; result == OK && m < eval_metric_count(kind); m++) {
    figures f;
    if (!average(list, each, count, list[first].task->group, eval_metric_name(kind, m), again, &f)) continue;
    result = set_interval(again, &f);
    if (result == OK) result = append(metrics, eval_metric_name(kind, m), &f);
  }
  free(again);
  return result;
}

/* In the order of each group's first task. */
static status groups_json(const eval_score *list, const task_figures *each, uint32_t count, json_t *groups) {
  for (uint32_t t = 0; t < count; t++) {
    const char *group = list[t].task->group;
    uint32_t first = 0;
    while (group && first < t && !is_in(&list[first], group)) first++;
    if (!group || first < t) continue;
    json_t *names = json_array(), *metrics = json_array();
    json_t *built = json_pack("{s:s, s:o, s:o}", "name", group, "tasks", names, "metrics", metrics);
    if (json_array_append_new(groups, built) != 0) return FAIL(ERR_LIMIT, "scores: no memory");
    for (uint32_t i = t; i < count; i++)
      if (is_in(&list[i], group) && json_array_append_new(names, json_string(list[i].task->name)) != 0)
        return FAIL(ERR_LIMIT, "scores: no memory");
    TRY(group_metrics(list, each, count, t, metrics));
  }
  return OK;
}

status eval_metric_scores(const eval_score *list, uint32_t count, json_t **out) {
  json_t *tasks = json_array(), *groups = json_array(), *scores = json_pack("{s:o, s:o}", "tasks", tasks, "groups", groups);
  task_figures *each = calloc(count + 1ull, sizeof *each);
  status result = scores && each ? OK : FAIL(ERR_LIMIT, "scores: no memory");
  for (uint32_t t = 0; t < count && result == OK; t++) {
    result = compute(&list[t], EVAL_METRIC_NO_SUBSET, &each[t]);
    if (result == OK) result = task_json(&list[t], &each[t], tasks);
  }
  if (result == OK) result = groups_json(list, each, count, groups);
  for (uint32_t t = 0; each && t < count; t++) free(each[t].again);
  free(each);
  if (result == OK) *out = scores;
  else json_decref(scores);
  return result;
}
