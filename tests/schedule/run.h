/* run.h - plays a case on real engines and checks it: the results of a request must be those that it has alone.
 *
 * Alone means: in an engine of another plan of the same numerics id, with one slot, a step that takes the whole prompt, no prefix cache and
 * memory without poison, where requests run one after the other. The last few of these engines stay open, because opening one costs more
 * than a case. A run_stage serves one process. Read next: case.h, ask.h. */
#ifndef VERBATIM_RUN_H
#define VERBATIM_RUN_H
#include "ask.h"
#include "models.h"

#define RUN_REFERENCES 6u

typedef struct run_counts { /* what really happened; sums over engines of schedules, without those of requests alone */
  uint64_t cases, schedules, requests; /* requests: those compared with their run alone */
  uint64_t restarts;                   /* engines closed with requests in flight, which began again in the next one */
  uint64_t divided;                    /* engines of several ranks */
  uint64_t cut;                        /* of the requests: cancelled or past their deadline */
  verbatim_counters engine;
} run_counts;

typedef struct run_outcome {
  bool failed;     /* the contract is broken */
  uint32_t request;
  char what[ASK_WHAT_MAX];
} run_outcome;

typedef struct run_reference {
  char model_dir[MODELS_PATH_MAX];
  int64_t chunk, groups, len, fast;
  uint64_t used; /* time of the last use */
  verbatim *engine;
} run_reference;

typedef struct run_stage {
  models models;
  int device, alone_device; /* as verbatim_config.device */
  const char *cache_dir;    /* of compiled kernels, or null */
  const char *program_path; /* as verbatim_config.program_path, or null */
  run_reference references[RUN_REFERENCES];
  uint64_t uses;
} run_stage;

/* ERR_...: the case could not be played (no such model, a plan that is refused); outcome is then unchanged. Adds to counts. */
status run_case(run_stage *stage, const schedule_case *c, run_outcome *outcome, run_counts *counts);
void run_close(run_stage *stage);

void run_add_counts(run_counts *sum, const run_counts *more);

#endif
