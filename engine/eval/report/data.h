/* eval/report/data.h - what a report shows, gathered in one pass over the manifest and the lines of results.
 *
 * EVALUATION.md names the members. Each may be absent or of another type: what is not there is not shown. Of a run of any size it keeps
 * counts and the first few lines of each kind, which stay the caller's. Knows no page. Read next: eval/report/report.h, eval/margin.h. */
#ifndef VERBATIM_EVAL_REPORT_DATA_H
#define VERBATIM_EVAL_REPORT_DATA_H
#include <jansson.h>
#include "base/base.h"
#include "eval/margin.h"

#define EVAL_REPORT_DATA_ROWS 40u    /* lines kept of each kind */
#define EVAL_REPORT_DATA_UNITS 400u  /* tasks and their subsets */
#define EVAL_REPORT_DATA_PLANS 8u
#define EVAL_REPORT_DATA_STEPS 8u    /* of a power of two: how fine margins are counted */
/* Steps of ulps: 0 a tie, 1 below the least power of two, the last the most and more, as eval/margin.h has its bins. */
#define EVAL_REPORT_DATA_FINE (2u + EVAL_REPORT_DATA_STEPS * (EVAL_MARGIN_MOST - EVAL_MARGIN_LEAST) + 1u)

typedef struct eval_report_steps { /* items of two sorts in each step of ulps */
  uint64_t counts[2][EVAL_REPORT_DATA_FINE];
} eval_report_steps;

typedef struct eval_report_item {
  const json_t *line;
  uint32_t unit;     /* its task */
  bool is_judged, is_right, failed;
  eval_margin margin;
} eval_report_item;

typedef struct eval_report_list { /* the first rows of `total` */
  uint32_t count;
  uint64_t total;
  eval_report_item rows[EVAL_REPORT_DATA_ROWS];
} eval_report_list;

typedef struct eval_report_flips { /* of a unit under another plan */
  uint64_t items, right;            /* judged there too; right there */
  uint64_t flipped, lost, gained;   /* answers that changed; right to wrong; wrong to right */
} eval_report_flips;

typedef struct eval_report_unit { /* a task, or a subset of the one before it that is none */
  const char *name, *kind;
  const json_t *setup, *scores; /* null: the manifest lacks them; setup: of tasks only */
  bool is_subset;
  uint64_t failed;
  eval_margin_risk risk;
  eval_report_flips flips[EVAL_REPORT_DATA_PLANS];
} eval_report_unit;

typedef struct eval_report_data {
  const json_t *manifest, *setup, *outcome, *run; /* of what type the caller gave */
  eval_report_unit units[EVAL_REPORT_DATA_UNITS];
  uint32_t unit_count, task_count, plan_count;
  uint64_t lines, strangers;   /* strangers: of no task here, in no other figure */
  uint64_t units_left_out;
  eval_report_unit all;        /* of all tasks */
  eval_report_list fragile;    /* the smallest margins, smallest first; total: below EVAL_MARGIN_FRAGILE */
  eval_report_list wrong, failed, flipped;
  eval_report_steps margins;   /* [wrong, right] */
  eval_report_steps moved[EVAL_REPORT_DATA_PLANS]; /* [kept, flipped] */
} eval_report_data;

/* New memory, for free(). ERR_LIMIT: no memory. */
status eval_report_data_gather(const json_t *manifest, const json_t *results, eval_report_data **out);

/* The step of a margin, and its position on a scale of powers of two: 0 is 1 ulp, 1 is 2 ulps. Of steps 0 and 1: EVAL_MARGIN_LEAST. */
uint32_t eval_report_data_step(double ulps);
double eval_report_data_position(uint32_t step);

/* Members, or null: of another type too. */
const char *eval_report_data_text(const json_t *object, const char *key);
double eval_report_data_number(const json_t *object, const char *key); /* NaN: none */

#endif
