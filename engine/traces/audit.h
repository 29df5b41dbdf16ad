/* audit.h - computes recorded rows again, each op alone on the CPU from the recorded rows that it read, and compares the bits.
 *
 * The audited run may have used either backend. A row whose inputs were not recorded is reported as not covered and never counts as right.
 * `adjust` and `sample` are not audited: a receipt holds their results, and a replay checks them. Needs the memory of the whole plan,
 * weights included. Read next: audit_inputs.h, audit_source.h. */
#ifndef VERBATIM_AUDIT_H
#define VERBATIM_AUDIT_H
#include "base/base.h"
#include "plan/plan.h"
#include "verbatim.h"

typedef struct audit_options {
  const plan *plan;
  const char *trace_path, *model_dir;
  const char *id;             /* id of the requests, null: all */
  uint32_t position_min, position_max;
  uint32_t layer_min, layer_max; /* with is_layered; else all, including ops outside of layers */
  bool is_layered;
  const char *op;             /* start of a point's name, without its layer; null: all                    */
  uint64_t sample, seed;      /* 0: all selected rows; else this many of the covered ones, chosen by seed */
  uint32_t threads;           /* 0: all cores                                                             */
  void (*on_progress)(void *context, const char *what, uint64_t done, uint64_t total); /* may be null     */
  void *context;
} audit_options;

typedef struct audit_point { /* result for a point's rows                   */
  uint64_t chosen;    /* selected rows                                      */
  uint64_t checked;   /* computed again and compared                        */
  uint64_t different; /* compared rows that differ                          */
  uint64_t uncovered; /* rows whose inputs are not all in the trace         */
  uint32_t needs;     /* a point whose values are missing, UINT32_MAX: none */
  uint32_t needs_position; /* location of the first missing one             */
} audit_point;

typedef struct audit_kind { /* totals over all ops of a kernel */
  const char *name;
  uint64_t rows, numbers, different; /* rows compared, their numbers, rows that differ */
  double seconds, flops;             /* of the ops' runs                               */
} audit_kind;

typedef struct audit_difference { /* the first difference, by request, position and order of computation */
  bool is_found, is_digest;      /* is_digest: the row's values were not recorded and its digest differs */
  const char *id;
  uint32_t request, position, point; /* request: in the trace, from 0              */
  uint32_t number, count;        /* the first number that differs; how many differ */
  uint32_t recorded, computed;   /* its bits                                       */
  uint64_t ulps;                 /* difference; for integers and NaN, of the bits  */
  uint64_t recorded_digest, computed_digest;
} audit_difference;

typedef struct audit_report {
  uint32_t point_count, kind_count;
  const verbatim_point *points; /* [point_count] of the plan            */
  const audit_point *counts;    /* [point_count]                        */
  const audit_kind *kinds;      /* [kind_count], in kernels.def's order */
  uint64_t requests, tokens;    /* of the trace                         */
  uint64_t trace_rows;          /* (token, point) of the whole trace    */
  uint64_t trace_values;        /* of these, recorded with their values */
  uint64_t chosen, covered, checked, different, uncovered; /* rows: covered ones can be checked; checked ones were taken by --sample */
  audit_difference first;
  double seconds;               /* duration of audit_run */
  const char *device;           /* name of the backend   */
} audit_report;

typedef struct audit audit;

/* Checks that trace, plan and model belong together, counts the rows that can be checked, and loads the weights. ERR_MISMATCH: they do not
 * match, or a recorded row is damaged (named); ERR_USAGE: nothing is selected, or no selected row can be checked. */
status audit_open(audit **out, const audit_options *options);

/* Differences are not errors: see the report. */
status audit_run(audit *self);
const audit_report *audit_results(const audit *self);
void audit_close(audit *self); /* null is allowed */

#endif
