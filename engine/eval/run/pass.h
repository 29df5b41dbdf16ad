/* eval/run/pass.h - all items of all tasks through one engine: lines of results, a receipt, and what scores are made of.
 *
 * Lines are written in the order of items, as items end; what is on the disk is always a beginning of what will be there. A pass
 * that was cut short goes on behind what is whole of it. Read next: eval/run/tasks.h, eval/results.h, receipts/resume.h. */
#ifndef VERBATIM_EVAL_PASS_H
#define VERBATIM_EVAL_PASS_H
#include <signal.h>
#include <stdio.h>
#include "base/base.h"
#include "common/engine.h"
#include "eval/run/tasks.h"
#include "eval/ask.h"
#include "eval/metric.h"
#include "text/tokenizer.h"

#define CLI_EVAL_PASS_PATH_MAX 4096u

typedef struct eval_pass { /* zeroed: closed */
  cli_engine engine;
  const eval_tasks *tasks;
  const tokenizer *tokenizer;
  const chat *chat;
  const char *what;            /* for the line of progress: "items" */
  eval_ask *asks;              /* [item_count] */
  eval_score *scores;          /* [task count] */
  FILE *results;
  char results_path[CLI_EVAL_PASS_PATH_MAX], receipt_path[CLI_EVAL_PASS_PATH_MAX];
  uint64_t written, submitted; /* items: prefixes */
  uint64_t resumed;            /* items that were there */
  uint32_t failed, in_flight;  /* items; requests submitted and not written */
  double started, synced;
  cli_output_progress progress;
  fail_cause failure;          /* of the first item that failed */
  bool is_interrupted, is_holding;
  sigset_t signals;            /* the mask from before, while is_holding */
} eval_pass;

/* Opens the engine, whose options are the caller's, and makes every item's token ids. Nothing is written. From here to the close SIGINT and
 * SIGTERM wait for the next step. */
status eval_pass_open(eval_pass *self, const eval_tasks *tasks, const tokenizer *t, const chat *c);

/* Asks everything; files are <folder>/<name>.jsonl and <folder>/<receipt_name>. is_interrupted: it stopped by SIGINT or SIGTERM, in good
 * order. An item that failed is noted in `failure`, and the others go on. */
status eval_pass_run(eval_pass *self, const char *folder, const char *name, const char *receipt_name, bool resume);
void eval_pass_close(eval_pass *self);

/* A request's name in the receipt: "task/id", and "#" and its number where the item has several. */
#define CLI_EVAL_PASS_NAME_BYTES 512u
void eval_pass_name(const cli_eval_task *task, uint32_t index, uint32_t request, uint32_t request_count,
                        char name[CLI_EVAL_PASS_NAME_BYTES]);

#endif
