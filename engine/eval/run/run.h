/* eval/run/run.h - runs a whole evaluation into a folder: the pass under the plan, the passes under other plans, scores, the manifest.
 *
 * The folder gets manifest.json at the start, without an outcome, and again at the end; results.jsonl and the receipt as items end; and
 * perturbed-N.plan, .jsonl and .receipt for every other plan. Read next: eval/run/pass.h, eval/run/perturb.h, eval/manifest.h. */
#ifndef VERBATIM_EVAL_RUN_H
#define VERBATIM_EVAL_RUN_H
#include <jansson.h>
#include <stdio.h>
#include "base/base.h"
#include "common/engine.h"
#include "eval/run/perturb.h"
#include "eval/run/tasks.h"

typedef struct eval_run { /* zeroed: closed; the caller sets the upper fields */
  cli_engine engine;          /* options: used to open the engine of every pass */
  const char *folder, *chat_template; /* chat_template: a Jinja file; NULL: the model's own */
  bool resume;
  bool without_text;          /* neither results nor manifest hold texts of items */
  const char *perturb[EVAL_RUN_PERTURB_MAX]; /* [perturb_count]: plan files, or KEY=VALUE */
  uint32_t perturb_count;
  eval_tasks tasks;
  const json_t *generation;   /* defaults of generation_config.json that tasks got, or NULL: part of the setup */
  json_t *rescored_from;      /* of a manifest that is repeated and was scored again, or NULL: part of the setup */
  const char *recorded;       /* receipt of the same evaluation, whose tokens are drafts; NULL: none */
  status (*on_setup)(void *context, const json_t *setup); /* called before the first request; may refuse; may be NULL */
  void *context;
  const cli_files_row *files; /* [file_count]: what the subcommand reads besides the members above */
  size_t file_count;
  json_t *manifest;           /* set when the run has ended */
  bool is_interrupted;
  fail_cause failure;         /* of the first failed item; the run still completes */
} eval_run;

/* Option taker: another word of --perturb. */
status eval_run_perturb(const char *name, const char *value, void *target);

status eval_run_all(eval_run *self);
void eval_run_close(eval_run *self);

/* Prints the scores of a manifest's outcome as a table. */
void eval_run_print(const json_t *manifest, FILE *to);

#endif
