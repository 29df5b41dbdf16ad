/* eval/run/run.h - a whole evaluation into a folder: the pass under the plan, those under other plans, scores, the manifest.
 *
 * The folder gets manifest.json at the start, without an outcome, and again at the end; results.jsonl and receipt as items end; and
 * perturbed-N.plan, .jsonl and .receipt for every other plan. Read next: eval/run/pass.h, eval/run/perturb.h, eval/manifest.h. */
#ifndef VERBATIM_EVAL_RUN_H
#define VERBATIM_EVAL_RUN_H
#include <jansson.h>
#include <stdio.h>
#include "base/base.h"
#include "common/engine.h"
#include "eval/run/perturb.h"
#include "eval/run/tasks.h"

typedef struct eval_run { /* zeroed: closed; the upper fields are the caller's */
  cli_engine engine;          /* options: what every pass is opened with */
  const char *folder;
  bool resume;
  const char *perturb[CLI_EVAL_PERTURB_MAX]; /* [perturb_count]: plans, or KEY=VALUE */
  uint32_t perturb_count;
  eval_tasks tasks;
  status (*on_setup)(void *context, const json_t *setup); /* before anything is asked; may refuse; may be null */
  void *context;
  json_t *manifest;           /* after a run that has ended */
  bool is_interrupted;
  fail_cause failure;         /* of the first item that failed; the run has ended all the same */
} eval_run;

/* Takes another word of --perturb. */
status eval_run_perturb(const char *name, const char *value, void *target);

status eval_run_all(eval_run *self);
void eval_run_close(eval_run *self);

/* The scores of a manifest's outcome as a table. */
void eval_run_print(const json_t *manifest, FILE *to);

#endif
