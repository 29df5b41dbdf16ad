/* eval/metric.c - see eval/metric.h. Every metric is a quotient of two sums over items, or a function of such a quotient. */
#include "eval/metric.h"
#include "base/digest.h"
#include "eval/interval.h"
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
  double value, error;
  eval_interval interval;
  const char *how;           /* the name of the interval */
} figures;

typedef struct task_figures {
  figures list[EVAL_METRIC_MAX];
  uint32_t count, failed, skipped, shortened;
  uint64_t cut, unended;     /* answers */
  bool is_clustered;
  uint32_t cluster_count;    /* of the items in the sums */
  eval_margin_risk risk;
} task_figures;

typedef struct chosen { /* the items that a computation is about, and its room */
  const eval_sample *samples;
  uint32_t *items, *clusters;     /* [count] */
  uint32_t count, cluster_count;
  bool is_clustered;
  double *rest, *sums, *again;    /* [count]; [cluster_count]; [EVAL_METRIC_RESAMPLES], in ascending order */
} chosen;

uint32_t eval_metric_count(eval_kind kind) {
  uint32_t count = 0;
  while (count < EVAL_METRIC_MAX && METRICS[kind][count].name) count++;
  return count;
}

const char *eval_metric_name(eval_kind kind, uint32_t metric) { return METRICS[kind][metric].name; }

/* === Names ================================================================================================================== */

status eval_metric_number(eval_names *self, const char *name, uint32_t *out) {
  if (!name) {
    *out = EVAL_METRIC_NONE;
    return OK;
  }
  if (!self->index && !(self->index = json_object())) return FAIL(ERR_LIMIT, "names: no memory");
  const json_t *known = json_object_get(self->index, name);
  if (known) {
    *out = (uint32_t)json_integer_value(known);
    return OK;
  }
  if (self->count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 16;
    const char **grown = realloc(self->list, room * sizeof *grown);
    if (!grown) return FAIL(ERR_LIMIT, "names: no memory");
    self->list = grown;
    self->room = room;
  }
  if (json_object_set_new(self->index, name, json_integer(self->count)) != 0) return FAIL(ERR_LIMIT, "names: no memory");
  self->list[self->count] = json_object_iter_key(json_object_iter_at(self->index, name));
  *out = self->count++;
  return OK;
}

void eval_metric_drop(eval_names *self) {
  json_decref(self->index);
  free(self->list);
  *self = (eval_names){0};
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

bool eval_metric_is_share(eval_kind kind, uint32_t metric) { return METRICS[kind][metric].form == MEAN; }

double eval_metric_value(eval_kind kind, uint32_t m, const eval_sample *samples, const uint32_t *items, uint32_t count, double *rest) {
  const form of = METRICS[kind][m].form;
  double over = 0, under = 0;
  for (uint32_t i = 0; i < count; i++) over += samples[items[i]].over[m], under += samples[items[i]].under[m];
  double quotient = over / under, value = finish(of, over, under), scale = slope(of, value) / (under / count);
  for (uint32_t i = 0; i < count; i++) rest[i] = (samples[items[i]].over[m] - quotient * samples[items[i]].under[m]) * scale;
  return value;
}

static figures figures_of(eval_kind kind, const chosen *of, uint32_t m) {
  const eval_interval_clusters clusters = {of->is_clustered ? of->clusters : NULL, of->count, of->cluster_count, of->sums};
  figures built = {.value = eval_metric_value(kind, m, of->samples, of->items, of->count, of->rest), .how = "bootstrap",
                   .interval = {(double)NAN, (double)NAN}};
  double answers = 0, variance = built.value * (1 - built.value);
  built.error = eval_interval_error(of->rest, &clusters);
  if (!eval_metric_is_share(kind, m)) return built;
  for (uint32_t i = 0; i < of->count; i++) answers += of->samples[of->items[i]].answers;
  built.how = "wilson";
  built.interval = eval_interval_wilson(built.value, eval_interval_effective(variance, built.error, answers, &clusters));
  return built;
}

/* === Bootstrap ============================================================================================================== */

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

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Draws items, or whole clusters. Every metric of a task begins with the same seed, so it has the same draws. */
static status resample(form kind, const chosen *of, uint32_t m, uint64_t seed, eval_interval *out) {
  uint32_t units = of->is_clustered ? of->cluster_count : of->count;
  double *over = calloc(units + 1ull, sizeof *over), *under = calloc(units + 1ull, sizeof *under);
  bool has_room = over && under;
  for (uint32_t i = 0; has_room && i < of->count; i++) {
    uint32_t unit = of->is_clustered ? of->clusters[i] : i;
    over[unit] += of->samples[of->items[i]].over[m];
    under[unit] += of->samples[of->items[i]].under[m];
  }
  for (uint32_t r = 0; has_room && r < EVAL_METRIC_RESAMPLES; r++) {
    double sum_over = 0, sum_under = 0;
    for (uint32_t i = 0; i < units; i++) {
      uint64_t drawn = ((random_next(&seed) >> 32) * units) >> 32;
      sum_over += over[drawn], sum_under += under[drawn];
    }
    of->again[r] = finish(kind, sum_over, sum_under);
  }
  free(over);
  free(under);
  if (!has_room) return FAIL(ERR_LIMIT, "scores: no memory");
  qsort(of->again, EVAL_METRIC_RESAMPLES, sizeof *of->again, compare);
  if (units > 1) *out = (eval_interval){of->again[LOW_AT], of->again[HIGH_AT]};
  return OK;
}

/* === One task =============================================================================================================== */

static void close_chosen(chosen *self) {
  free(self->items);
  free(self->clusters);
  free(self->rest);
  free(self->sums);
  free(self->again);
}

/* Finds the items of one subset, or all of them (EVAL_METRIC_NONE), and numbers their clusters. */
static status choose(const eval_score *score, uint32_t subset, chosen *self, task_figures *out) {
  uint64_t room = score->count + 1ull, names = score->clusters.count + 1ull;
  uint32_t *number = calloc(names, sizeof *number); /* from 1; 0: the cluster has no item so far */
  *self = (chosen){.samples = score->samples, .is_clustered = score->task->cluster != NULL};
  self->items = malloc(room * sizeof *self->items);
  self->clusters = malloc(room * sizeof *self->clusters);
  self->rest = malloc(room * sizeof *self->rest);
  self->sums = malloc(names * sizeof *self->sums);
  self->again = malloc(EVAL_METRIC_RESAMPLES * sizeof *self->again);
  bool has_room = number && self->items && self->clusters && self->rest && self->sums && self->again;
  for (uint32_t i = 0; has_room && i < score->count; i++) {
    const eval_sample *s = &score->samples[i];
    if (subset != EVAL_METRIC_NONE && s->subset != subset) continue;
    out->count++;
    out->failed += s->is_failed, out->skipped += s->is_skipped, out->shortened += s->is_shortened;
    out->cut += s->cut, out->unended += s->unended;
    if (s->is_judged) eval_margin_add(&out->risk, &s->margin, s->is_right);
    if (s->is_left_out) continue;
    if (self->is_clustered) {
      if (!number[s->cluster]) number[s->cluster] = ++self->cluster_count;
      self->clusters[self->count] = number[s->cluster] - 1;
    }
    self->items[self->count++] = i;
  }
  free(number);
  out->is_clustered = self->is_clustered;
  out->cluster_count = self->cluster_count;
  return has_room ? OK : FAIL(ERR_LIMIT, "scores: no memory");
}

static status compute(const eval_score *score, uint32_t subset, task_figures *out) {
  const metric_row *rows = METRICS[score->task->kind];
  uint64_t seed = seed_of(score->task->name, subset == EVAL_METRIC_NONE ? NULL : score->subsets.list[subset]);
  chosen of;
  *out = (task_figures){.count = 0};
  status result = choose(score, subset, &of, out);
  for (uint32_t m = 0; m < eval_metric_count(score->task->kind) && result == OK; m++) {
    out->list[m] = figures_of(score->task->kind, &of, m);
    if (!eval_metric_is_share(score->task->kind, m)) result = resample(rows[m].form, &of, m, seed, &out->list[m].interval);
  }
  close_chosen(&of);
  return result;
}

/* === JSON =================================================================================================================== */

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static status append(json_t *list, const char *name, const figures *f) {
  json_t *built = json_pack("{s:s, s:o, s:o, s:o, s:o, s:s}", "name", name, "value", number(f->value), "stderr", number(f->error), "low",
                           number(f->interval.low), "high", number(f->interval.high), "interval", f->how);
  return json_array_append_new(list, built) == 0 ? OK : FAIL(ERR_LIMIT, "scores: no memory");
}

static status metrics_json(eval_kind kind, const task_figures *f, json_t **out) {
  json_t *list = json_array();
  for (uint32_t m = 0; list && m < eval_metric_count(kind); m++) TRY(append(list, eval_metric_name(kind, m), &f->list[m]));
  *out = list;
  return list ? OK : FAIL(ERR_LIMIT, "scores: no memory");
}

static json_t *clusters_json(const task_figures *f) { return f->is_clustered ? json_integer(f->cluster_count) : json_null(); }

/* What a row says of its items, between its name and its metrics. */
static json_t *counts_json(const task_figures *f) {
  return json_pack("{s:i, s:i, s:i, s:i, s:I, s:I, s:o}", "items", (int)f->count, "failed", (int)f->failed, "skipped", (int)f->skipped,
                   "shortened", (int)f->shortened, "cut", (json_int_t)f->cut, "unended", (json_int_t)f->unended, "clusters",
                   clusters_json(f));
}

/* Null: no item has a margin. */
static json_t *risk_json(const eval_margin_risk *risk) { return risk->known ? eval_margin_risk_json(risk) : json_null(); }

/* Takes the metrics. */
static status fill_row(json_t *row, const task_figures *f, json_t *metrics) {
  json_t *counts = counts_json(f), *rest = json_pack("{s:o, s:o}", "metrics", metrics, "flip_risk", risk_json(&f->risk));
  bool good = counts && rest && json_object_update(row, counts) == 0 && json_object_update(row, rest) == 0;
  json_decref(counts);
  json_decref(rest);
  return good ? OK : FAIL(ERR_LIMIT, "scores: no memory");
}

static status subsets_json(const eval_score *score, json_t *list) {
  for (uint32_t i = 0; i < score->subsets.count; i++) {
    task_figures f = {0};
    json_t *metrics = NULL;
    status result = compute(score, i, &f);
    if (result == OK) result = metrics_json(score->task->kind, &f, &metrics);
    TRY(result);
    json_t *built = json_pack("{s:s}", "name", score->subsets.list[i]);
    if (json_array_append_new(list, built) != 0) return FAIL(ERR_LIMIT, "scores: no memory");
    TRY(fill_row(built, &f, metrics));
  }
  return OK;
}

static status task_json(const eval_score *score, const task_figures *f, json_t *list) {
  json_t *metrics = NULL, *subsets = json_array();
  TRY(metrics_json(score->task->kind, f, &metrics));
  json_t *built = json_pack("{s:s, s:s, s:s?}", "name", score->task->name, "kind", eval_task_kind_name(score->task->kind), "group",
                           score->task->group);
  if (json_array_append_new(list, built) != 0) return FAIL(ERR_LIMIT, "scores: no memory");
  TRY(fill_row(built, f, metrics));
  if (json_object_set_new(built, "subsets", subsets) != 0) return FAIL(ERR_LIMIT, "scores: no memory");
  return subsets_json(score, subsets);
}

/* === Groups ================================================================================================================= */

static int32_t metric_named(eval_kind kind, const char *name) {
  for (uint32_t m = 0; m < eval_metric_count(kind); m++)
    if (strcmp(eval_metric_name(kind, m), name) == 0) return (int32_t)m;
  return -1;
}

static bool is_in(const eval_score *score, const char *group) { return score->task->group && strcmp(score->task->group, group) == 0; }

/* The mean of the tasks' figures. False: a task lacks the metric. */
static bool average(const eval_score *list, const task_figures *each, uint32_t count, const char *group, const char *name, figures *out) {
  eval_interval_mean mean = {.count = 0};
  double squares = 0;
  for (uint32_t t = 0; t < count; t++) {
    if (!is_in(&list[t], group)) continue;
    int32_t m = metric_named(list[t].task->kind, name);
    if (m < 0) return false;
    const figures *of = &each[t].list[m];
    eval_interval_mean_add(&mean, of->value, of->interval);
    squares += of->error * of->error;
  }
  *out = (figures){.value = mean.value / mean.count, .error = sqrt(squares) / mean.count, .interval = eval_interval_mean_of(&mean),
                   .how = "mover"};
  return true;
}

static status group_metrics(const eval_score *list, const task_figures *each, uint32_t count, uint32_t first, json_t *metrics) {
  eval_kind kind = list[first].task->kind;
  for (uint32_t m = 0; m < eval_metric_count(kind); m++) {
    figures f;
    if (!average(list, each, count, list[first].task->group, eval_metric_name(kind, m), &f)) continue;
    TRY(append(metrics, eval_metric_name(kind, m), &f));
  }
  return OK;
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
    result = compute(&list[t], EVAL_METRIC_NONE, &each[t]);
    if (result == OK) result = task_json(&list[t], &each[t], tasks);
  }
  if (result == OK) result = groups_json(list, each, count, groups);
  free(each);
  if (result == OK) *out = scores;
  else json_decref(scores);
  return result;
}
