/* audit.h - computes recorded rows again, each op alone on the CPU from the recorded rows that it read, and compares the bits.
 *
 * The run that is audited may have been made on either machine. A row whose inputs were not recorded is not covered, and said to be so: it
 * never counts as right. `adjust` and `sample` are not audited: their results stand in a receipt, which a replay judges. Needs the
 * memory of the whole plan, weights included. Read next: audit_inputs.h, audit_source.h. */
#ifndef VERBATIM_AUDIT_H
#define VERBATIM_AUDIT_H
#include "base/base.h"
#include "plan/plan.h"
#include "verbatim.h"

typedef struct audit_options {
  const plan *plan;
  const char *trace_path, *model_dir;
  const char *id;             /* of requests, null: all                                                           */
  uint32_t position_min, position_max;
  uint32_t layer_min, layer_max; /* with is_layered, else all, and what is outside of layers                      */
  bool is_layered;
  const char *op;             /* what the name of a point begins with, without its layer; null: all                */
  uint64_t sample, seed;      /* 0: all rows of the choice; else so many of those that are covered, chosen by seed */
  uint32_t threads;           /* 0: all cores */
  void (*on_progress)(void *context, const char *what, uint64_t done, uint64_t total); /* may be null */
  void *context;
} audit_options;

typedef struct audit_point { /* what became of a point's rows */
  uint64_t chosen;    /* rows of the choice                                        */
  uint64_t checked;   /* computed again and compared                               */
  uint64_t different; /* of these                                                  */
  uint64_t uncovered; /* rows whose inputs are not all in the trace                */
  uint32_t needs;     /* a point whose values were missing, UINT32_MAX: none       */
  uint32_t needs_position; /* where, at the first of them                          */
} audit_point;

typedef struct audit_kind { /* all ops of a kernel */
  const char *name;
  uint64_t rows, numbers, different; /* rows compared, their numbers, rows that differ */
  double seconds, flops;             /* of the ops' runs                               */
} audit_kind;

typedef struct audit_difference { /* the first one: by request, position and order of computation */
  bool is_found, is_digest;      /* is_digest: the row's values were not recorded, its digest differs */
  const char *id;
  uint32_t request, position, point; /* request: in the trace, from 0 */
  uint32_t number, count;        /* the first number that differs; how many do   */
  uint32_t recorded, computed;   /* its bits                                     */
  uint64_t ulps;                 /* apart; of integers and NaN, that of the bits */
  uint64_t recorded_digest, computed_digest;
} audit_difference;

typedef struct audit_report {
  uint32_t point_count, kind_count;
  const verbatim_point *points; /* [point_count], the plan's              */
  const audit_point *counts;    /* [point_count]                          */
  const audit_kind *kinds;      /* [kind_count], in kernels.def's order   */
  uint64_t requests, tokens;    /* of the trace                           */
  uint64_t trace_rows;          /* (token, point) of the whole trace      */
  uint64_t trace_values;        /* of these, recorded with their values   */
  uint64_t chosen, covered, checked, different, uncovered; /* rows: covered can be checked, checked was with --sample   */
  audit_difference first;
  double seconds;               /* of audit_run                           */
  const char *device;           /* what computed                          */
} audit_report;

typedef struct audit audit;

/* Checks that trace, plan and model belong together, counts what can be checked, and loads the weights. ERR_MISMATCH: they do not, or a
 * recorded row is damaged, by name; ERR_USAGE: nothing is chosen, or nothing chosen can be checked. */
status audit_open(audit **out, const audit_options *options);

/* Differences are no error: see the report. */
status audit_run(audit *self);
const audit_report *audit_results(const audit *self);
void audit_close(audit *self); /* null is allowed */

#endif
