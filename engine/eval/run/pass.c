/* eval/run/pass.c - see eval/run/pass.h. Order: signals, encoding, continuing an earlier pass, the loop over steps. */
#include "eval/run/pass.h"
#include "base/json_text.h"
#include "base/clock.h"
#include "base/whole_file.h"
#include "common/signals.h"
#include "eval/results.h"
#include "jsonl/nonfinite.h"
#include "receipts/read.h"
#include "receipts/resume.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WINDOW_REQUESTS 256u /* requests in flight: this many, or four times what the engine holds if that is more */
#define SYNC_SECONDS 2.0

/* === Signals ================================================================================================================ */

/* Blocks SIGINT and SIGTERM, also in the engine's threads, and checks for them between steps. */
static void hold_signals(eval_pass *self) {
  const sigset_t held = cli_signals_set(true);
  self->is_holding = sigprocmask(SIG_BLOCK, &held, &self->signals) == 0;
}

static bool has_signal(const eval_pass *self) {
  const sigset_t held = cli_signals_set(true);
  return self->is_holding && cli_signals_take(&held);
}

/* === Opening ================================================================================================================ */

void eval_pass_name(const eval_run_task *task, uint32_t index, uint32_t request, uint32_t request_count,
                        char name[EVAL_PASS_NAME_BYTES]) {
  const char *id = task->items.list[index].id;
  if (request_count == 1) snprintf(name, EVAL_PASS_NAME_BYTES, "%s/%s", task->task.name, id);
  else snprintf(name, EVAL_PASS_NAME_BYTES, "%s/%s#%u", task->task.name, id, request);
}

static status name_item(status result, const eval_run_task *task, uint32_t index) {
  char name[EVAL_PASS_NAME_BYTES];
  eval_pass_name(task, index, 0, 1, name);
  for (char *c = name; *c; c++) *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
  if (result != OK) fail_prefix(name);
  return result;
}

/* Names on stderr an item that is too long, and what becomes of it. */
static void tell_long(const eval_pass *self, const eval_run_task *task, uint32_t index, const char *what) {
  char name[EVAL_PASS_NAME_BYTES];
  eval_pass_name(task, index, 0, 1, name);
  fputs("verbatim: ", stderr);
  cli_output_plain(stderr, name);
  fprintf(stderr, ": too long for sequences of %" PRIu32 " tokens: %s\n", self->max_len, what);
}

/* An item that is too long is counted, so that all of them are named; any other error ends the start. */
static status encode_item(eval_pass *self, const eval_run_task *task, uint32_t index, uint32_t *refused) {
  eval_request *request = &self->requests[task->first + index];
  const item_params *params = eval_tasks_params(task);
  char what[64];
  TRY(name_item(eval_request_encode(&task->task, &task->items.list[index], params, self->tokenizer, self->chat, request), task, index));
  status result = eval_request_fit(&task->task, request, params, self->tokenizer, self->max_len);
  if (result == ERR_LIMIT) {
    tell_long(self, task, index, fail_text());
    fail_clear();
    ++*refused;
    return OK;
  }
  snprintf(what, sizeof what, "%" PRIu32 " tokens cut from its left", request->dropped);
  if (!self->engine.quiet && (request->is_skipped || request->dropped)) tell_long(self, task, index,
                                                                                  request->is_skipped ? "skipped" : what);
  return name_item(result, task, index);
}

/* Encodes every item before the weights are read, so that a bad item costs nothing. */
static status encode_all(eval_pass *self) {
  const eval_tasks *tasks = self->tasks;
  uint32_t refused = 0;
  self->requests = calloc(tasks->item_count, sizeof *self->requests);
  self->scores = calloc(tasks->count, sizeof *self->scores);
  if (!self->requests || !self->scores) return FAIL(ERR_LIMIT, "items: no memory");
  for (uint32_t t = 0; t < tasks->count; t++) {
    const eval_run_task *task = &tasks->list[t];
    const item_params *params = eval_tasks_params(task);
    self->scores[t].task = &task->task;
    if (!(self->scores[t].samples = calloc(task->items.count, sizeof *self->scores[t].samples))) return FAIL(ERR_LIMIT, "items: no memory");
    if (params && (params->stop_text_count || params->constraint)) self->engine.config.text = true;
    for (uint32_t i = 0; i < task->items.count; i++) TRY(encode_item(self, task, i, &refused));
  }
  if (refused == 0) return OK;
  return FAIL(ERR_LIMIT,
              "%" PRIu32 " items are too long; hint: a plan with a larger max-model-len, or `too_long: skip` or truncate-left in "
              "the task", refused);
}

/* The items were made to fit max_len, which is that of another plan in a pass under other numerics. */
static status check_room(const eval_pass *self) {
  if (self->engine.info.max_len >= self->max_len) return OK;
  return FAIL(ERR_LIMIT, "the plan's max-model-len is %" PRIu32 ", expected at least the first plan's, %" PRIu32, self->engine.info.max_len,
              self->max_len);
}

status eval_pass_open(eval_pass *self, const eval_tasks *tasks, const tokenizer *t, const chat *c) {
  self->tasks = tasks;
  self->tokenizer = t;
  self->chat = c;
  TRY(encode_all(self));
  hold_signals(self);
  TRY(cli_engine_open(&self->engine));
  return check_room(self);
}

/* === Continuing an earlier pass ============================================================================================= */

static status keep_sample(eval_pass *self, const eval_run_task *task, uint32_t index, const json_t *line) {
  eval_score *score = &self->scores[task - self->tasks->list];
  TRY(eval_results_sample(line, score, &score->samples[index]));
  score->count = index + 1;
  self->failed += score->samples[index].is_failed;
  return OK;
}

static bool has_chain(const json_t *line, uint32_t index, const verbatim_request *request) {
  char text[DIGEST_TEXT_BYTES];
  const char *chain = json_string_value(json_object_get(json_array_get(json_object_get(line, "requests"), index), "chain"));
  return chain && strcmp(chain, digest_text(request->chain, text)) == 0;
}

/* Whether the line is the item's and the receipt has its requests, from number `first` on. */
static bool is_of_item(receipt_read *old, uint32_t first, const eval_run_task *task, uint32_t index, const eval_request *request,
                       const json_t *line) {
  const char *name = json_string_value(json_object_get(line, "task")), *id = json_string_value(json_object_get(line, "id"));
  if (!name || !id || strcmp(name, task->task.name) != 0 || strcmp(id, task->items.list[index].id) != 0) return false;
  if (json_array_size(json_object_get(line, "requests")) != request->request_count) return false;
  if (first + request->request_count > old->count) return false;
  for (uint32_t k = 0; k < request->request_count; k++) {
    receipt_record record = {0};
    char expected[EVAL_PASS_NAME_BYTES];
    eval_pass_name(task, index, k, request->request_count, expected);
    if (receipt_read_get(old, first + k, &record) != OK) return false;
    bool same = strcmp(record.id, expected) == 0 && has_chain(line, k, &record.request);
    receipt_read_drop(&record);
    if (!same) return false;
  }
  return true;
}

/* Takes the samples of the items that were kept; *requests: their number. Their lines have the bytes that were written, so one that does
 * not belong here means that somebody has put other files into the folder. */
static status take_lines(eval_pass *self, receipt_read *old, char *text, size_t bytes, uint32_t *requests) {
  for (char *end, *at = text; self->written < self->kept.items; at = end + 1) {
    uint32_t index;
    if (self->written == self->tasks->item_count || !(end = memchr(at, '\n', bytes - (size_t)(at - text)))) break;
    const eval_run_task *task = eval_tasks_find(self->tasks, self->written, &index);
    const eval_request *request = &self->requests[self->written];
    json_error_t error = {.line = 0};
    json_t *line = json_text_load(at, (size_t)(end - at), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!line && json_text_fault(&error, OK) != OK) return FAIL(ERR_LIMIT, "results.jsonl: out of memory");
    bool good = line && is_of_item(old, *requests, task, index, request, line);
    status result = good ? keep_sample(self, task, index, line) : OK;
    json_decref(line);
    TRY(result);
    if (!good) break;
    *requests += request->request_count;
    self->written++;
  }
  if (self->written == self->kept.items) return OK;
  return FAIL(ERR_MISMATCH, "%s: line %" PRIu64 " is not of this evaluation; hint: name a new folder", self->results_path,
              self->written + 1);
}

static status cut_file(const char *path, uint64_t bytes) {
  return truncate(path, (off_t)bytes) == 0 ? OK : FAIL(ERR_IO, "%s: cannot be truncated: %s", path, strerror(errno));
}

/* Cuts the files of an earlier pass off after the items that are complete and undamaged. */
static status read_earlier(eval_pass *self, uint32_t *requests) {
  char *text = NULL;
  size_t bytes = 0;
  receipt_read old = {0};
  TRY(eval_progress_read(&self->kept, self->progress_path, self->results_path, self->receipt_path));
  if (self->kept.is_damaged)
    fprintf(stderr, "verbatim: %s: item %" PRIu64 " does not have the digest that was recorded: it and all after it are computed again\n",
            self->results_path, self->kept.items + 1);
  if (self->kept.items == 0) return OK;
  TRY(cut_file(self->results_path, self->kept.results_bytes));
  TRY(cut_file(self->receipt_path, self->kept.receipt_bytes));
  TRY(cut_file(self->progress_path, self->kept.own_bytes));
  TRY(eval_tasks_read(self->results_path, UINT64_MAX, &text, &bytes));
  status result = receipt_read_open(&old, self->receipt_path);
  if (result == OK) result = take_lines(self, &old, text, bytes, requests);
  receipt_read_close(&old);
  free(text);
  return result;
}

static status open_file(const char *path, FILE **out) {
  *out = fopen(path, "ab");
  return *out ? OK : FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}

static status open_outputs(eval_pass *self, bool resume) {
  uint32_t requests = 0;
  eval_progress_start(&self->kept);
  if (resume) TRY(read_earlier(self, &requests));
  self->resumed = self->submitted = self->written;
  self->engine.receipt_path = self->receipt_path;
  TRY(cli_engine_continue(&self->engine, self->tokenizer, requests));
  TRY(open_file(self->results_path, &self->results));
  TRY(open_file(self->progress_path, &self->progress_file));
  if (self->kept.items) return OK;
  TRY(cut_file(self->results_path, 0));
  return cut_file(self->progress_path, 0);
}

/* === Items ================================================================================================================== */

static status sync_outputs(eval_pass *self, bool now) {
  double time = clock_seconds();
  if (!now && time - self->synced < SYNC_SECONDS) return OK;
  self->synced = time;
  if (fsync(fileno(self->results)) == 0 && fsync(fileno(self->engine.receipt.file)) == 0 && fsync(fileno(self->progress_file)) == 0)
    return OK;
  return FAIL(ERR_IO, "%s: cannot be written: %s", self->results_path, strerror(errno));
}

static void note_failure(eval_pass *self, const eval_run_task *task, uint32_t index, const eval_request *request) {
  char fault[NONFINITE_TEXT_BYTES];
  for (uint32_t k = 0; k < request->request_count && self->failure.code == OK; k++) {
    if (request->requests[k].finish != VERBATIM_NONFINITE) continue;
    (void)FAIL(ERR_MISMATCH, "the logits hold NaN or Inf%s; hint: are the weights damaged?", nonfinite_text(&request->requests[k], fault));
    (void)name_item(ERR_MISMATCH, task, index);
    fail_take(&self->failure);
  }
}

/* The item's progress comes last: the item is complete when its line is there. */
static status write_item(eval_pass *self, const eval_run_task *task, uint32_t index, eval_request *request) {
  const eval_results_item from = {.task = &task->task, .item = &task->items.list[index], .request = request, .judge = task->judge,
                                  .tokenizer = self->tokenizer, .index = index, .without_text = self->without_text};
  json_t *line = NULL;
  char *text = NULL;
  size_t bytes = 0;
  TRY(eval_results_make(&from, &line));
  status result = keep_sample(self, task, index, line);
  if (result == OK) result = eval_results_text(line, &text, &bytes);
  json_decref(line);
  for (uint32_t k = 0; k < request->request_count && result == OK; k++) {
    char name[EVAL_PASS_NAME_BYTES];
    eval_pass_name(task, index, k, request->request_count, name);
    result = cli_engine_add(&self->engine, name, &request->requests[k]);
  }
  if (result == OK) result = whole_file_append(fileno(self->results), self->results_path, text, bytes);
  const receipt *paper = &self->engine.receipt;
  if (result == OK)
    result = eval_progress_add(&self->kept, self->progress_file, self->progress_path, text, bytes, &paper->written, paper->bytes);
  free(text);
  TRY(result);
  note_failure(self, task, index, request);
  self->in_flight -= request->request_count;
  eval_recorded_drop(&self->recorded, request->request_count);
  eval_request_release(request);
  return OK;
}

static bool is_finished(const eval_request *request) {
  for (uint32_t k = 0; k < request->request_count; k++)
    if (request->requests[k].finish == VERBATIM_RUNNING) return false;
  return true;
}

static status write_finished(eval_pass *self) {
  for (; self->written < self->submitted && is_finished(&self->requests[self->written]); self->written++) {
    uint32_t index;
    const eval_run_task *task = eval_tasks_find(self->tasks, self->written, &index);
    TRY(name_item(write_item(self, task, index, &self->requests[self->written]), task, index));
  }
  return sync_outputs(self, false);
}

static status submit_item(eval_pass *self, const eval_run_task *task, eval_request *request) {
  TRY(eval_request_open(request, &task->task, eval_tasks_params(task), NULL));
  for (uint32_t k = 0; k < request->request_count; k++) {
    eval_recorded_guide(&self->recorded, &request->requests[k]);
    TRY((status)verbatim_submit(self->engine.engine, &request->requests[k]));
  }
  self->in_flight += request->request_count;
  return OK;
}

static status submit_some(eval_pass *self) {
  uint32_t most = max_u32(WINDOW_REQUESTS, 4 * self->engine.info.max_seqs);
  while (self->submitted < self->tasks->item_count && self->in_flight < most) {
    uint32_t index;
    const eval_run_task *task = eval_tasks_find(self->tasks, self->submitted, &index);
    TRY(name_item(submit_item(self, task, &self->requests[self->submitted]), task, index));
    self->submitted++;
  }
  return OK;
}

static void show_progress(eval_pass *self) {
  double seconds = clock_seconds() - self->started;
  double rate = (double)(self->written - self->resumed) / (seconds > 0 ? seconds : 1);
  double left = rate > 0 ? (double)(self->tasks->item_count - self->written) / rate : 0;
  char what[160];
  if (self->engine.quiet) return;
  snprintf(what, sizeof what, "%s, %.1f per second, %.0f:%02.0f left   ", self->what, rate, floor(left / 60), left - 60 * floor(left / 60));
  cli_output_progress_count(&self->progress, what, self->written, self->tasks->item_count);
}

static status ask_all(eval_pass *self) {
  bool busy = true;
  while (self->written < self->tasks->item_count && !has_signal(self)) {
    TRY(submit_some(self));
    TRY((status)verbatim_poll(self->engine.engine, &busy));
    TRY(write_finished(self));
    show_progress(self);
  }
  cli_output_progress_end(&self->progress);
  self->is_interrupted = self->written < self->tasks->item_count;
  return OK;
}

/* === The pass =============================================================================================================== */

static status run(eval_pass *self, bool resume) {
  TRY(open_outputs(self, resume));
  TRY(eval_recorded_open(&self->recorded, self->recorded_path));
  if (self->resumed && !self->engine.quiet)
    fprintf(stderr, "%" PRIu64 " of %" PRIu64 " %s are complete already\n", self->resumed, self->tasks->item_count, self->what);
  self->started = self->synced = clock_seconds();
  TRY(ask_all(self));
  TRY(sync_outputs(self, true));
  FILE *results = self->results;
  self->results = NULL;
  if (fclose(results) != 0) return FAIL(ERR_IO, "%s: cannot be written: %s", self->results_path, strerror(errno));
  return self->is_interrupted ? OK : cli_engine_end(&self->engine);
}

status eval_pass_run(eval_pass *self, const char *folder, const char *name, const char *receipt_name, bool resume) {
  if (snprintf(self->results_path, sizeof self->results_path, "%s/%s.jsonl", folder, name) >= (int)sizeof self->results_path ||
      snprintf(self->progress_path, sizeof self->progress_path, "%s/%s.progress", folder, name) >= (int)sizeof self->progress_path ||
      snprintf(self->receipt_path, sizeof self->receipt_path, "%s/%s", folder, receipt_name) >= (int)sizeof self->receipt_path)
    return FAIL(ERR_USAGE, "%s: the path is too long", folder);
  return run(self, resume);
}

void eval_pass_close(eval_pass *self) {
  if (self->is_interrupted) (void)FAIL(ERR_IO, "interrupted");
  cli_engine_close(&self->engine);
  eval_recorded_close(&self->recorded);
  for (uint64_t i = 0; self->requests && i < self->tasks->item_count; i++) eval_request_release(&self->requests[i]);
  for (uint32_t i = 0; self->scores && i < self->tasks->count; i++) {
    eval_metric_drop(&self->scores[i].subsets);
    eval_metric_drop(&self->scores[i].clusters);
    free(self->scores[i].samples);
  }
  free(self->requests);
  free(self->scores);
  if (self->results) fclose(self->results);
  if (self->progress_file) fclose(self->progress_file);
  if (self->is_holding) sigprocmask(SIG_SETMASK, &self->signals, NULL);
  *self = (eval_pass){0};
}
