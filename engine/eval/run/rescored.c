/* eval/run/rescored.c - see eval/run/rescored.h. Order: tasks, lines, scores, the folder. */
#include "eval/run/rescored.h"
#include "base/digest.h"
#include "base/whole_file.h"
#include "eval/manifest.h"
#include "eval/metric.h"
#include "eval/report/report.h"
#include "eval/rescore.h"
#include "eval/results.h"
#include "eval/run/paths.h"
#include "eval/run/strong.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static status no_memory(void) { return FAIL(ERR_LIMIT, "rescore: no memory"); }

/* === Tasks ================================================================================================================== */

static const json_t *recorded_task(const eval_saved *saved, uint32_t index) {
  return json_array_get(json_object_get(json_object_get(saved->manifest, "setup"), "tasks"), index);
}

/* Adds the task of the file, with the limit that the run had. */
static status add_file(eval_rescored *self, const eval_saved *saved, const char *path, const json_t *recorded) {
  const json_t *parameters = json_object_get(recorded, "parameters"), *limit = json_object_get(parameters, "limit");
  int64_t most = json_is_integer(limit) && json_integer_value(limit) <= INT32_MAX ? json_integer_value(limit) : -1;
  self->tasks.limit = most < 0 ? -1 : most;
  self->tasks.defaults = json_object_get(json_object_get(saved->manifest, "setup"), "generation_config");
  TRY(eval_tasks_add(&self->tasks, path));
  self->tasks.limit = -1;
  status result = eval_rescore_check(parameters, &self->tasks.list[self->tasks.count - 1].task);
  if (result != OK) fail_prefix(path);
  return result;
}

/* The name of the task in a file. */
static status name_of(const char *path, char name[EVAL_TASK_NAME_BYTES_MAX + 1]) {
  eval_task task;
  char *text = NULL;
  size_t bytes = 0;
  TRY(eval_tasks_read(path, EVAL_MANIFEST_EMBED_BYTES_MAX, &text, &bytes));
  status result = eval_task_parse(text, bytes, &task);
  free(text);
  if (result != OK) fail_prefix(path);
  TRY(result);
  snprintf(name, EVAL_TASK_NAME_BYTES_MAX + 1, "%s", task.name);
  eval_task_close(&task);
  return OK;
}

static status add_task(eval_rescored *self, const eval_saved *saved, uint32_t index, const char names[][EVAL_TASK_NAME_BYTES_MAX + 1],
                       bool *used) {
  const json_t *recorded = recorded_task(saved, index);
  const char *name = json_string_value(json_object_get(recorded, "name"));
  for (uint32_t i = 0; name && i < self->task_file_count; i++) {
    if (strcmp(names[i], name) != 0) continue;
    used[i] = true;
    return add_file(self, saved, self->task_files[i], recorded);
  }
  return eval_tasks_recorded_one(&self->tasks, saved->manifest, index, saved->folder, self->tasks_folder);
}

static status add_tasks(eval_rescored *self, const eval_saved *saved) {
  char (*names)[EVAL_TASK_NAME_BYTES_MAX + 1] = calloc(self->task_file_count + 1ull, sizeof *names);
  bool *used = calloc(self->task_file_count + 1ull, sizeof *used);
  status result = names && used ? OK : no_memory();
  self->tasks.limit = -1;
  for (uint32_t i = 0; i < self->task_file_count && result == OK; i++) result = name_of(self->task_files[i], names[i]);
  for (uint32_t i = 0; i < eval_manifest_task_count(saved->manifest) && result == OK; i++)
    result = add_task(self, saved, i, (const char (*)[EVAL_TASK_NAME_BYTES_MAX + 1])names, used);
  for (uint32_t i = 0; i < self->task_file_count && result == OK; i++)
    if (!used[i]) result = FAIL(ERR_USAGE, "%s: the evaluation has no task \"%.64s\"", self->task_files[i], names[i]);
  free(names);
  free(used);
  return result;
}

/* === Lines ================================================================================================================== */

static status rescore_line(eval_rescored *self, const eval_run_task *task, uint32_t index, const json_t *old, eval_score *score) {
  const char *verdict = task->task.kind == EVAL_CHOICE ? "acc" : "correct";
  json_t *line = NULL;
  TRY(eval_rescore_line(old, &task->task, &task->items.list[index], task->judge, &line));
  bool was = json_is_true(json_object_get(old, verdict)), is = json_is_true(json_object_get(line, verdict));
  self->lost += was && !is;
  self->gained += !was && is;
  self->changed += eval_results_difference(old, line) != NULL;
  if (json_array_append_new(self->results, line) != 0) return no_memory();
  score->count = index + 1;
  return eval_results_sample(line, score, &score->samples[index]);
}

static status rescore_lines(eval_rescored *self, const eval_saved *saved, eval_score *scores) {
  size_t count = json_array_size(saved->results);
  if (count != self->tasks.item_count)
    return FAIL(ERR_MISMATCH, "results.jsonl has %zu lines, the tasks have %llu items; hint: items must be those that were asked", count,
                (unsigned long long)self->tasks.item_count);
  if (!(self->results = json_array())) return no_memory();
  for (uint64_t at = 0; at < count; at++) {
    uint32_t index;
    const eval_run_task *task = eval_tasks_find(&self->tasks, at, &index);
    char prefix[48];
    snprintf(prefix, sizeof prefix, "results.jsonl: line %llu", (unsigned long long)at + 1);
    status result = rescore_line(self, task, index, json_array_get(saved->results, at), &scores[task - self->tasks.list]);
    if (result != OK) fail_prefix(prefix);
    TRY(result);
  }
  return OK;
}

/* The bytes of results.jsonl. */
static status join(const json_t *results, char **out, size_t *bytes) {
  FILE *to = open_memstream(out, bytes);
  status result = to ? OK : no_memory();
  for (size_t i = 0; i < json_array_size(results) && result == OK; i++) {
    char *text = NULL;
    size_t count = 0;
    result = eval_results_text(json_array_get(results, i), &text, &count);
    if (result == OK && fwrite(text, 1, count, to) != count) result = no_memory();
    free(text);
  }
  return to && fclose(to) != 0 ? no_memory() : result;
}

/* === The manifest =========================================================================================================== */

static json_t *hex(const uint8_t *bytes) {
  char text[DIGEST_TEXT_BYTES];
  return json_string(digest_text(bytes, text));
}

/* A path of the old manifest as seen from the new folder, if there is one. */
static json_t *moved(const eval_rescored *self, const eval_saved *saved, const char *path) {
  char here[EVAL_PATHS_BYTES_MAX], there[EVAL_PATHS_BYTES_MAX];
  if (!path || !self->folder) return json_null();
  if (eval_paths_in(saved->folder, path, here) == OK && eval_paths_from(self->folder, here, there) == OK) return json_string(there);
  fail_clear();
  return json_null();
}

/* What made the answers, with the hints as seen from the new folder. */
static status make_facts(const eval_rescored *self, const eval_saved *saved, json_t **out) {
  const json_t *old = json_object_get(saved->manifest, "run");
  json_t *files = json_array(), *built = json_copy((json_t *)(uintptr_t)old);
  json_t *hints = json_pack("{s:o, s:o, s:o, s:[]}", "plan", moved(self, saved, json_string_value(json_object_get(old, "plan"))), "model",
                           moved(self, saved, json_string_value(json_object_get(old, "model"))), "task_files", files, "perturb");
  bool good = built && hints && json_object_update(built, hints) == 0;
  for (uint32_t i = 0; good && i < self->tasks.count; i++) {
    const char *path = self->tasks.list[i].path;
    char text[EVAL_PATHS_BYTES_MAX];
    json_t *from = self->folder && *path && eval_paths_from(self->folder, path, text) == OK ? json_string(text) : json_null();
    good = json_array_append_new(files, from ? from : json_null()) == 0;
  }
  json_decref(hints);
  fail_clear();
  if (good) *out = built;
  else json_decref(built);
  return good ? OK : no_memory();
}

static status make_manifest(eval_rescored *self, const eval_saved *saved, const eval_score *scores, const char *text, size_t bytes) {
  const json_t *old = json_object_get(saved->manifest, "outcome");
  json_t *figures = NULL, *setup = NULL, *facts = NULL, *strong = NULL;
  const digest written = digest_of(text, bytes);
  TRY(eval_metric_scores(scores, self->tasks.count, &figures));
  json_t *outcome = json_pack("{s:O?, s:O?, s:o, s:o, s:O, s:[]}", "items", json_object_get(old, "items"), "failed",
                             json_object_get(old, "failed"), "scores", figures, "results_digest", hex(written.bytes), "receipt_digest",
                             json_object_get(old, "receipt_digest"), "perturbed");
  eval_manifest_task *tasks = eval_tasks_describe(&self->tasks);
  status result = outcome && tasks ? OK : no_memory();
  if (result == OK) result = eval_manifest_rescored(saved->manifest, tasks, self->tasks.count, &setup);
  if (result == OK) result = make_facts(self, saved, &facts);
  if (result == OK) result = eval_strong_rescored(saved->manifest, tasks, self->tasks.count, &strong);
  if (result == OK && strong) result = eval_strong_results(strong, text, bytes);
  if (result == OK) result = eval_manifest_make(setup, outcome, facts, &self->manifest);
  if (result == OK && strong && json_object_set(self->manifest, "sha256", strong) != 0) result = no_memory();
  free(tasks);
  json_decref(outcome);
  json_decref(setup);
  json_decref(facts);
  json_decref(strong);
  return result;
}

/* === The folder ============================================================================================================= */

static status write_file(const eval_rescored *self, const char *name, const char *text, size_t bytes) {
  char path[EVAL_SAVED_PATH_BYTES];
  if (snprintf(path, sizeof path, "%s/%s", self->folder, name) >= (int)sizeof path)
    return FAIL(ERR_USAGE, "%s: the path is too long", self->folder);
  return text ? whole_file_write(path, text, bytes) : eval_report_write(path, self->manifest, self->results);
}

static status write_folder(const eval_rescored *self, const char *text, size_t bytes) {
  char *manifest = json_dumps(self->manifest, JSON_INDENT(2));
  status result = manifest ? write_file(self, "results.jsonl", text, bytes) : no_memory();
  if (result == OK) result = write_file(self, "manifest.json", manifest, strlen(manifest));
  if (result == OK) result = write_file(self, "report.html", NULL, 0);
  free(manifest);
  return result;
}

static status make_folder(const eval_rescored *self) {
  if (!self->folder || mkdir(self->folder, 0777) == 0) return OK;
  if (errno == EEXIST) return FAIL(ERR_USAGE, "%s: it is there already; hint: name a new folder", self->folder);
  return FAIL(ERR_IO, "%s: cannot be created: %s", self->folder, strerror(errno));
}

static status score_all(eval_rescored *self, const eval_saved *saved, eval_score *scores) {
  char *text = NULL;
  size_t bytes = 0;
  TRY(rescore_lines(self, saved, scores));
  TRY(make_folder(self));
  status result = join(self->results, &text, &bytes);
  if (result == OK) result = make_manifest(self, saved, scores, text, bytes);
  if (result == OK && self->folder) result = write_folder(self, text, bytes);
  free(text);
  return result;
}

status eval_rescored_all(eval_rescored *self, const eval_saved *saved) {
  TRY(add_tasks(self, saved));
  eval_score *scores = calloc(self->tasks.count + 1ull, sizeof *scores);
  status result = scores ? OK : no_memory();
  for (uint32_t i = 0; scores && i < self->tasks.count; i++) {
    const eval_run_task *task = &self->tasks.list[i];
    scores[i] = (eval_score){.task = &task->task, .samples = calloc(task->items.count + 1ull, sizeof(eval_sample))};
    if (!scores[i].samples) result = no_memory();
  }
  if (result == OK) result = score_all(self, saved, scores);
  for (uint32_t i = 0; scores && i < self->tasks.count; i++) {
    eval_metric_drop(&scores[i].subsets);
    eval_metric_drop(&scores[i].clusters);
    free(scores[i].samples);
  }
  free(scores);
  return result;
}

void eval_rescored_close(eval_rescored *self) {
  json_decref(self->manifest);
  json_decref(self->results);
  eval_tasks_close(&self->tasks);
}
