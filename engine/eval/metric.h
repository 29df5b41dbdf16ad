/* eval/metric.h - scores computed from item results: means and perplexities, standard errors and 95 % intervals.
 *
 * EVALUATION.md, "Metrics" and "Intervals", is normative for the formulas, the order of every sum, the random generator and its seed, so
 * the figures have the same bytes on every machine. Knows no texts, no files, no engine. Read next: eval/interval.h, eval/results.h. */
#ifndef VERBATIM_EVAL_METRIC_H
#define VERBATIM_EVAL_METRIC_H
#include <jansson.h>
#include "base/base.h"
#include "eval/margin.h"
#include "eval/task.h"

#define EVAL_METRIC_MAX 4u
#define EVAL_METRIC_RESAMPLES 10000u
#define EVAL_METRIC_NONE UINT32_MAX

typedef struct eval_sample { /* one item's contribution; metric m of many items is computed from the sums of over[m] and of under[m] */
  uint32_t subset, cluster;  /* EVAL_METRIC_NONE: none */
  bool is_failed, is_skipped, is_left_out; /* left out: failed or skipped, and in none of the sums */
  bool is_shortened;         /* tokens were cut from its prompt */
  bool is_judged, is_right;  /* by the first sample, or the best choice; only judged items can flip */
  uint32_t cut, unended;     /* answers: cut at max_tokens; with a thought that never ended */
  uint32_t answers;          /* that `over` is the mean of: 1, or the number of samples */
  eval_margin margin;
  double over[EVAL_METRIC_MAX], under[EVAL_METRIC_MAX];
} eval_sample;

typedef struct eval_names { /* of a task's subsets or clusters, in order of appearance; zeroed: empty */
  json_t *index;             /* name -> number */
  const char **list;         /* [count], in the keys of index */
  uint32_t count, room;
} eval_names;

typedef struct eval_score { /* the results of one task */
  const eval_task *task;
  eval_sample *samples;      /* [count], in the order of items */
  uint32_t count;
  eval_names subsets, clusters;
} eval_score;

/* The number of metrics of a kind, and their names. */
uint32_t eval_metric_count(eval_kind kind);
const char *eval_metric_name(eval_kind kind, uint32_t metric);

bool eval_metric_is_share(eval_kind kind, uint32_t metric);

/* The value over samples[items[0 .. count)], and in rest[count] how each of them moves it: the linear approximation, whose sum is 0. */
double eval_metric_value(eval_kind kind, uint32_t metric, const eval_sample *samples, const uint32_t *items, uint32_t count, double *rest);

/* The number of a name, which is added if new. name NULL: EVAL_METRIC_NONE. */
status eval_metric_number(eval_names *self, const char *name, uint32_t *out);
void eval_metric_drop(eval_names *self);

/* "scores" of the manifest, owned by the caller. ERR_LIMIT: no memory. */
status eval_metric_scores(const eval_score *list, uint32_t count, json_t **out);

/* e^x, using only additions, products and quotients of binary64. */
double eval_metric_exp(double x);

#endif
