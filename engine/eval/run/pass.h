/* eval/run/pass.h - runs all items of all tasks through one engine: writes lines of results and a receipt, and collects samples for scores.
 *
 * Lines are written in the order of items, as items end, so the files on disk are always a prefix of the final ones. An interrupted pass
 * continues after the last item whose progress holds. Read next: eval/run/tasks.h, eval/run/progress.h, eval/results.h. */
#ifndef VERBATIM_EVAL_PASS_H
#define VERBATIM_EVAL_PASS_H
#include <signal.h>
#include <stdio.h>
#include "base/base.h"
#include "common/engine.h"
#include "eval/run/progress.h"
#include "eval/run/recorded.h"
#include "eval/run/tasks.h"
#include "eval/request.h"
#include "eval/metric.h"
#include "text/tokenizer.h"

#define EVAL_PASS_PATH_MAX 4096u

typedef struct eval_pass { /* zeroed: closed */
  cli_engine engine;
  const eval_tasks *tasks;
  const tokenizer *tokenizer;
  const chat *chat;
  const char *what;            /* for the progress line: "items" */
  uint32_t max_len;            /* most tokens of a sequence: what is longer is too long */
  bool without_text;           /* of the results */
  const char *recorded_path;   /* receipt of the same evaluation, or NULL */
  eval_recorded recorded;
  eval_request *requests;              /* [item_count] */
  eval_score *scores;          /* [task count] */
  FILE *results, *progress_file;
  char results_path[EVAL_PASS_PATH_MAX], receipt_path[EVAL_PASS_PATH_MAX], progress_path[EVAL_PASS_PATH_MAX];
  eval_progress kept;          /* of the items that are written */
  uint64_t written, submitted; /* items; each number is a prefix of all items */
  uint64_t resumed;            /* items already present from an earlier pass */
  uint32_t failed, in_flight;  /* failed: items; in_flight: requests submitted and not yet written */
  double started, synced;
  cli_output_progress progress;
  fail_cause failure;          /* of the first item that failed */
  bool is_interrupted, is_holding;
  sigset_t signals;            /* the signal mask before, while is_holding */
} eval_pass;

/* Encodes every item, and opens the engine with the caller's options. Writes nothing. From here until the close, SIGINT and SIGTERM are
 * deferred to the next step. ERR_LIMIT: items are too long, which stderr names, before any weight is read. */
status eval_pass_open(eval_pass *self, const eval_tasks *tasks, const tokenizer *t, const chat *c);

/* Runs all requests. Files: <folder>/<name>.jsonl, <folder>/<name>.progress and <folder>/<receipt_name>. is_interrupted: SIGINT or SIGTERM
 * stopped it, with the files in order. A failed item is recorded in `failure`, and the others continue. */
status eval_pass_run(eval_pass *self, const char *folder, const char *name, const char *receipt_name, bool resume);
void eval_pass_close(eval_pass *self);

/* A request's name in the receipt: "task/id", followed by "#" and its number if the item has several. */
#define EVAL_PASS_NAME_BYTES 512u
void eval_pass_name(const eval_run_task *task, uint32_t index, uint32_t request, uint32_t request_count,
                        char name[EVAL_PASS_NAME_BYTES]);

#endif
