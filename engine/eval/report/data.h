/* eval/report/data.h - the content of a report, gathered in one pass over the manifest and the lines of results.
 *
 * EVALUATION.md names the members. Any of them may be missing or have another type: such content is not shown. For a run of any size it
 * holds counts and the first few lines of each kind; the lines stay the caller's. Knows no page. Read next: eval/report/report.h,
 * eval/margin.h. */
#ifndef VERBATIM_EVAL_REPORT_DATA_H
#define VERBATIM_EVAL_REPORT_DATA_H
#include <jansson.h>
#include "base/base.h"
#include "eval/margin.h"

#define EVAL_REPORT_DATA_ROWS 40u    /* lines kept of each kind */
#define EVAL_REPORT_DATA_UNITS 400u  /* tasks and their subsets, together */
#define EVAL_REPORT_DATA_PLANS 8u
#define EVAL_REPORT_DATA_STEPS 8u    /* per power of two: the resolution of margins */
/* Steps of ulps: 0 is a tie, 1 is below the lowest power of two, the last is the highest and above, like the bins of eval/margin.h. */
#define EVAL_REPORT_DATA_FINE (2u + EVAL_REPORT_DATA_STEPS * (EVAL_MARGIN_MOST - EVAL_MARGIN_LEAST) + 1u)

typedef struct eval_report_steps { /* numbers of items of two sorts in each step of ulps */
  uint64_t counts[2][EVAL_REPORT_DATA_FINE];
} eval_report_steps;

typedef struct eval_report_item {
  const json_t *line;
  uint32_t unit;     /* index of its task */
  bool is_judged, is_right, failed;
  eval_margin margin;
} eval_report_item;

typedef struct eval_report_list { /* the first rows; total: how many there are */
  uint32_t count;
  uint64_t total;
  eval_report_item rows[EVAL_REPORT_DATA_ROWS];
} eval_report_list;

typedef struct eval_report_flips { /* of a unit under another plan */
  uint64_t items, right;            /* judged there too; right there */
  uint64_t flipped, lost, gained;   /* answers that changed; right to wrong; wrong to right */
} eval_report_flips;

typedef struct eval_report_unit { /* a task, or a subset of the nearest task before it */
  const char *name, *kind;
  const json_t *setup, *scores; /* NULL: missing in the manifest; setup: tasks only */
  bool is_subset;
  uint64_t failed;
  eval_margin_risk risk;
  eval_report_flips flips[EVAL_REPORT_DATA_PLANS];
} eval_report_unit;

typedef struct eval_report_data {
  const json_t *manifest, *setup, *outcome, *run; /* of whatever type the caller passed */
  eval_report_unit units[EVAL_REPORT_DATA_UNITS];
  uint32_t unit_count, task_count, plan_count;
  uint64_t lines, strangers;   /* strangers: lines of no known task, in no other figure */
  uint64_t units_left_out;
  eval_report_unit all;        /* sum of all tasks */
  eval_report_list fragile;    /* the smallest margins, ascending; total: those below EVAL_MARGIN_FRAGILE */
  eval_report_list wrong, failed, skipped, flipped;
  eval_report_steps margins;   /* [wrong, right] */
  eval_report_steps moved[EVAL_REPORT_DATA_PLANS]; /* [kept, flipped] */
} eval_report_data;

/* Allocates *out, for free(). ERR_LIMIT: no memory. */
status eval_report_data_gather(const json_t *manifest, const json_t *results, eval_report_data **out);

/* The step of a margin; and the position of a step on a scale of powers of two, where 0 is 1 ulp and 1 is 2 ulps. For steps 0 and 1:
 * EVAL_MARGIN_LEAST. */
uint32_t eval_report_data_step(double ulps);
double eval_report_data_position(uint32_t step);

/* A member; NULL if missing or of another type. */
const char *eval_report_data_text(const json_t *object, const char *key);
double eval_report_data_number(const json_t *object, const char *key); /* NaN: none */

#endif
