/* eval/run/pass.c - see eval/run/pass.h. Order: signals, encoding, continuing an earlier pass, the loop over steps. */
#include "eval/run/pass.h"
#include "common/lines.h"
#include "base/clock.h"
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

/* Blocks SIGINT and SIGTERM, also in the engine's threads, and checks for them between steps: a handler could only write static data. */
static void hold_signals(eval_pass *self) {
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGINT);
  sigaddset(&held, SIGTERM);
  self->is_holding = sigprocmask(SIG_BLOCK, &held, &self->signals) == 0;
}

static bool has_signal(const eval_pass *self) {
  const struct timespec at_once = {0};
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGINT);
  sigaddset(&held, SIGTERM);
  return self->is_holding && sigtimedwait(&held, NULL, &at_once) > 0;
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

/* Encodes every item before the first step, so that a bad item costs nothing. */
static status encode_all(eval_pass *self) {
  const eval_tasks *tasks = self->tasks;
  self->requests = calloc(tasks->item_count, sizeof *self->requests);
  self->scores = calloc(tasks->count, sizeof *self->scores);
  if (!self->requests || !self->scores) return FAIL(ERR_LIMIT, "items: no memory");
  for (uint32_t t = 0; t < tasks->count; t++) {
    const eval_run_task *task = &tasks->list[t];
    const item_params *params = eval_tasks_params(task);
    self->scores[t].task = &task->task;
    if (!(self->scores[t].samples = calloc(task->items.count, sizeof *self->scores[t].samples))) return FAIL(ERR_LIMIT, "items: no memory");
    if (params && params->stop_text_count) self->engine.config.text = true;
    for (uint32_t i = 0; i < task->items.count; i++)
      TRY(name_item(eval_request_encode(&task->task, &task->items.list[i], params, self->tokenizer, self->chat,
                                    &self->requests[task->first + i]), task, i));
  }
  return OK;
}

static status check_all(const eval_pass *self) {
  for (uint64_t at = 0; at < self->tasks->item_count; at++) {
    uint32_t index;
    const eval_run_task *task = eval_tasks_find(self->tasks, at, &index);
    TRY(name_item(eval_request_check(&task->task, &self->requests[at], eval_tasks_params(task), self->engine.info.max_len), task, index));
  }
  return OK;
}

status eval_pass_open(eval_pass *self, const eval_tasks *tasks, const tokenizer *t, const chat *c) {
  self->tasks = tasks;
  self->tokenizer = t;
  self->chat = c;
  TRY(encode_all(self));
  hold_signals(self);
  TRY(cli_engine_open(&self->engine));
  return check_all(self);
}

/* === Continuing an earlier pass ============================================================================================= */

typedef struct reader { /* reads the files that an earlier pass left */
  eval_pass *pass;
  receipt_read receipt;
  uint64_t bytes;      /* of complete lines that agree with the receipt */
  uint32_t requests;
  bool is_over;        /* the remaining items run again */
} reader;

static status keep_sample(eval_pass *self, const eval_run_task *task, uint32_t index, const json_t *line) {
  eval_score *score = &self->scores[task - self->tasks->list];
  TRY(eval_results_sample(line, task->task.kind, &score->subsets, &score->samples[index]));
  score->count = index + 1;
  self->failed += score->samples[index].is_failed;
  return OK;
}

static bool has_chain(const json_t *line, uint32_t index, const verbatim_request *request) {
  char text[DIGEST_TEXT_BYTES];
  const char *chain = json_string_value(json_object_get(json_array_get(json_object_get(line, "requests"), index), "chain"));
  return chain && strcmp(chain, digest_text(request->chain, text)) == 0;
}

/* Whether the line is the next item's and the receipt has its requests. */
static bool is_next(reader *self, const eval_run_task *task, uint32_t index, const eval_request *request, const json_t *line) {
  const char *name = json_string_value(json_object_get(line, "task")), *id = json_string_value(json_object_get(line, "id"));
  if (!name || !id || strcmp(name, task->task.name) != 0 || strcmp(id, task->items.list[index].id) != 0) return false;
  if (json_array_size(json_object_get(line, "requests")) != request->request_count) return false;
  if (self->requests + request->request_count > self->receipt.count) return false;
  for (uint32_t k = 0; k < request->request_count; k++) {
    receipt_record record = {0};
    char expected[EVAL_PASS_NAME_BYTES];
    eval_pass_name(task, index, k, request->request_count, expected);
    if (receipt_read_get(&self->receipt, self->requests + k, &record) != OK) return false;
    bool same = strcmp(record.id, expected) == 0 && has_chain(line, k, &record.request);
    receipt_read_drop(&record);
    if (!same) return false;
  }
  return true;
}

static status take_line(void *context, char *text, size_t bytes, uint32_t number) {
  reader *self = context;
  eval_pass *pass = self->pass;
  json_t *line = NULL;
  if (self->is_over || pass->written == pass->tasks->item_count || number != pass->written + 1) {
    self->is_over = true;
    return OK;
  }
  uint32_t index;
  const eval_run_task *task = eval_tasks_find(pass->tasks, pass->written, &index);
  const eval_request *request = &pass->requests[pass->written];
  line = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  if (line && is_next(self, task, index, request, line) && keep_sample(pass, task, index, line) == OK) {
    self->bytes += bytes + 1;
    self->requests += request->request_count;
    pass->written++;
  } else self->is_over = true;
  fail_clear(); /* unreadable items are computed again */
  json_decref(line);
  return OK;
}

/* Drops a last line without a line feed, which was not written completely. */
static status drop_torn_line(const char *path) {
  char *text = NULL;
  size_t bytes = 0;
  TRY(eval_tasks_read(path, UINT64_MAX, &text, &bytes));
  size_t whole = bytes;
  while (whole && text[whole - 1] != '\n') whole--;
  free(text);
  return whole == bytes || truncate(path, (off_t)whole) == 0 ? OK : FAIL(ERR_IO, "%s: cannot be truncated: %s", path, strerror(errno));
}

static status read_earlier(eval_pass *self, reader *r) {
  struct stat info;
  if (stat(self->results_path, &info) != 0 || stat(self->receipt_path, &info) != 0 || info.st_size == 0) return OK;
  if (receipt_read_open(&r->receipt, self->receipt_path) != OK && r->receipt.count == 0) { /* it has no complete request */
    fail_clear();
    return OK;
  }
  fail_clear();
  TRY(drop_torn_line(self->results_path));
  return cli_lines_read(self->results_path, take_line, r);
}

static status open_outputs(eval_pass *self, bool resume) {
  reader r = {.pass = self};
  status result = resume ? read_earlier(self, &r) : OK;
  receipt_read_close(&r.receipt);
  TRY(result);
  self->resumed = self->submitted = self->written;
  self->engine.receipt_path = self->receipt_path;
  TRY(cli_engine_continue(&self->engine, self->tokenizer, r.requests));
  self->results = fopen(self->results_path, resume ? "ab" : "wb");
  if (self->results && ftruncate(fileno(self->results), (off_t)r.bytes) == 0) return OK;
  return FAIL(ERR_IO, "%s: cannot be written: %s", self->results_path, strerror(errno));
}

/* === Items ================================================================================================================== */

static void sync_outputs(eval_pass *self, bool now) {
  double time = clock_seconds();
  if (!now && time - self->synced < SYNC_SECONDS) return;
  self->synced = time;
  (void)fsync(fileno(self->results));
  if (self->engine.receipt.file) (void)fsync(fileno(self->engine.receipt.file));
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

/* Requests first: the run could not continue after a line whose requests are missing. */
static status write_item(eval_pass *self, const eval_run_task *task, uint32_t index, eval_request *request) {
  const eval_results_item from = {.task = &task->task, .item = &task->items.list[index], .request = request, .judge = task->judge,
                                  .tokenizer = self->tokenizer, .index = index};
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
  if (result == OK && (fwrite(text, 1, bytes, self->results) != bytes || fflush(self->results) != 0))
    result = FAIL(ERR_IO, "%s: cannot be written: %s", self->results_path, strerror(errno));
  free(text);
  TRY(result);
  note_failure(self, task, index, request);
  self->in_flight -= request->request_count;
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
  sync_outputs(self, false);
  return OK;
}

static status submit_item(eval_pass *self, const eval_run_task *task, eval_request *request) {
  TRY(eval_request_open(request, &task->task, eval_tasks_params(task), NULL));
  for (uint32_t k = 0; k < request->request_count; k++) TRY((status)verbatim_submit(self->engine.engine, &request->requests[k]));
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
  if (self->resumed && !self->engine.quiet)
    fprintf(stderr, "%" PRIu64 " of %" PRIu64 " %s are complete already\n", self->resumed, self->tasks->item_count, self->what);
  self->started = self->synced = clock_seconds();
  TRY(ask_all(self));
  sync_outputs(self, true);
  FILE *results = self->results;
  self->results = NULL;
  if (fclose(results) != 0) return FAIL(ERR_IO, "%s: could not be written completely; hint: is the disk full?", self->results_path);
  return self->is_interrupted ? OK : cli_engine_end(&self->engine);
}

status eval_pass_run(eval_pass *self, const char *folder, const char *name, const char *receipt_name, bool resume) {
  if (snprintf(self->results_path, sizeof self->results_path, "%s/%s.jsonl", folder, name) >= (int)sizeof self->results_path ||
      snprintf(self->receipt_path, sizeof self->receipt_path, "%s/%s", folder, receipt_name) >= (int)sizeof self->receipt_path)
    return FAIL(ERR_USAGE, "%s: the path is too long", folder);
  return run(self, resume);
}

void eval_pass_close(eval_pass *self) {
  if (self->is_interrupted) (void)FAIL(ERR_IO, "interrupted");
  cli_engine_close(&self->engine);
  for (uint64_t i = 0; self->requests && i < self->tasks->item_count; i++) eval_request_release(&self->requests[i]);
  for (uint32_t i = 0; self->scores && i < self->tasks->count; i++) {
    eval_metric_drop(&self->scores[i].subsets);
    free(self->scores[i].samples);
  }
  free(self->requests);
  free(self->scores);
  if (self->results) fclose(self->results);
  if (self->is_holding) sigprocmask(SIG_SETMASK, &self->signals, NULL);
  *self = (eval_pass){0};
}
