/* eval/run/run.c - see eval/run/run.h. Order: the folder, the setup, the passes, merging, the outcome. */
#include "eval/run/run.h"
#include "base/json_text.h"
#include "eval/run/pass.h"
#include "eval/run/paths.h"
#include "eval/run/saved.h"
#include "eval/run/strong.h"
#include "common/lines.h"
#include "eval/manifest.h"
#include "eval/metric.h"
#include "eval/report/report.h"
#include "eval/results.h"
#include "receipts/read.h"
#include "base/whole_file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define TIME_BYTES 32u
#define HUGE_FIGURE 1e7 /* shown with an exponent: perplexities have no bound */

typedef struct other { /* a plan other than the first */
  char path[PATH_BYTES_MAX];
  eval_perturb_ids ids;
  json_t *outcome;       /* of its pass */
  digest written;        /* of its lines of results */
} other;

typedef struct keeper { /* what one run uses and leaves */
  eval_run *run;
  tokenizer *tokenizer;
  chat *chat;
  other others[EVAL_RUN_PERTURB_MAX];
  json_t *setup, *facts, *outcome; /* facts: "run" of the manifest */
  json_t *strong;                  /* its "sha256"              */
  uint64_t requests, tokens;
  uint32_t max_len;                /* of the plan: what is longer is too long */
  double seconds;
  digest written;                  /* of the first pass's lines of results */
  bool is_finished;                /* the folder had a finished run, whose manifest is run->manifest */
  int folder;                      /* open and locked while the evaluation writes into it; -1: not open yet */
} keeper;

static status no_memory(void) { return FAIL(ERR_LIMIT, "evaluation: no memory"); }

status eval_run_perturb(const char *name, const char *value, void *target) {
  eval_run *self = target;
  if (self->perturb_count == EVAL_RUN_PERTURB_MAX) return FAIL(ERR_USAGE, "%s: at most %u times", name, EVAL_RUN_PERTURB_MAX);
  self->perturb[self->perturb_count++] = value;
  return OK;
}

/* === The folder ============================================================================================================= */

static status path_in(const eval_run *self, const char *name, char path[PATH_BYTES_MAX]) {
  int length = snprintf(path, PATH_BYTES_MAX, "%s/%s", self->folder, name);
  return length > 0 && length < PATH_BYTES_MAX ? OK : FAIL(ERR_USAGE, "%s: the path is too long", self->folder);
}

/* Whether the folder has at most the leftovers of a start that failed: plans, or a manifest under its temporary name. */
static bool is_unused(const char *folder) {
  DIR *dir = opendir(folder);
  bool unused = dir != NULL;
  for (const struct dirent *entry; unused && (entry = readdir(dir)) != NULL;)
    unused = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
             strncmp(entry->d_name, "manifest.json.tmp", 17) == 0 ||
             (strncmp(entry->d_name, "perturbed-", 10) == 0 && strstr(entry->d_name, ".plan"));
  if (dir) closedir(dir);
  return unused;
}

/* Files are truncated by name here, and whoever created the folder may have put a link or a pipe there. */
static status check_entries(const char *folder) {
  DIR *dir = opendir(folder);
  status result = dir ? OK : FAIL(ERR_IO, "%s: cannot be opened: %s", folder, strerror(errno));
  for (const struct dirent *entry; result == OK && (entry = readdir(dir)) != NULL;) {
    struct stat info;
    if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) continue;
    result = FAIL(ERR_USAGE, "%s/%s: expected regular files, found a link or a special file", folder, entry->d_name);
  }
  if (dir) closedir(dir);
  return result;
}

/* Only one evaluation at a time writes into a folder. Without file locks in the file system, nothing prevents a second one. */
static status lock_folder(keeper *k) {
  k->folder = open(k->run->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (k->folder < 0)
    return FAIL(ERR_IO, "%s: expected a folder for the evaluation: %s; hint: name a new one", k->run->folder, strerror(errno));
  if (flock(k->folder, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return OK;
  return FAIL(ERR_USAGE, "%s: another evaluation is writing into it; hint: use another folder, or wait", k->run->folder);
}

static status check_files(const eval_run *self) {
  const cli_files_row own[] = {CLI_ENGINE_FILES(&self->engine), {CLI_FILES_FOLDER, self->folder, "in the folder of the evaluation"},
                               {CLI_FILES_READ, self->chat_template, "the chat template"}};
  size_t count = 0, room = ARRAY_LEN(own) + self->file_count + self->perturb_count + 3 * (size_t)self->tasks.count;
  cli_files_row *rows = calloc(room, sizeof *rows);
  if (!rows) return no_memory();
  for (; count < ARRAY_LEN(own); count++) rows[count] = own[count];
  for (size_t i = 0; i < self->file_count; i++) rows[count++] = self->files[i];
  for (uint32_t i = 0; i < self->perturb_count; i++) rows[count++] = (cli_files_row){CLI_FILES_READ, self->perturb[i], "a plan"};
  for (uint32_t i = 0; i < self->tasks.count; i++) {
    const eval_run_task *task = &self->tasks.list[i];
    const char *const paths[] = {task->path, task->items_file.path, task->shots_file.path};
    for (size_t j = 0; j < ARRAY_LEN(paths); j++) rows[count++] = (cli_files_row){CLI_FILES_READ, paths[j], "a file of a task"};
  }
  status result = cli_files_check(rows, count);
  free(rows);
  return result;
}

static status prepare_folder(keeper *k) {
  const eval_run *self = k->run;
  char manifest[PATH_BYTES_MAX];
  TRY(path_in(self, "manifest.json", manifest));
  bool is_new = mkdir(self->folder, 0777) == 0;
  if (!is_new && errno != EEXIST)
    return FAIL(ERR_IO, "%s: cannot be created: %s; hint: its parent must be a folder that can be written", self->folder, strerror(errno));
  TRY(lock_folder(k));
  TRY(check_entries(self->folder));
  if (is_unused(self->folder)) return OK;
  bool has_manifest = access(manifest, F_OK) == 0;
  if (has_manifest && self->resume) return OK;
  if (!has_manifest) return FAIL(ERR_USAGE, "%s: the folder is not empty; hint: name a new one", self->folder);
  return FAIL(ERR_USAGE, "%s: an evaluation is there already; hint: %s", self->folder,
              self->on_setup ? "name a new folder" : "use --resume to continue it"); /* a replay cannot be resumed */
}

/* *temporary: of manifest.json, to be committed. */
static status prepare_manifest(const keeper *k, char temporary[WHOLE_FILE_PATH_BYTES_MAX], json_t **out) {
  char path[PATH_BYTES_MAX];
  json_t *manifest = NULL;
  TRY(path_in(k->run, "manifest.json", path));
  TRY(eval_manifest_make(k->setup, k->outcome, k->facts, &manifest));
  char *text = json_object_set(manifest, "sha256", k->strong) == 0 ? json_dumps(manifest, JSON_INDENT(2)) : NULL;
  status result = text ? whole_file_prepare(path, text, strlen(text), temporary) : no_memory();
  free(text);
  if (result == OK) *out = json_incref(manifest);
  json_decref(manifest);
  return result;
}

/* The manifest of a run that begins. */
static status write_manifest(const keeper *k) {
  char path[PATH_BYTES_MAX], temporary[WHOLE_FILE_PATH_BYTES_MAX];
  json_t *manifest = NULL;
  TRY(path_in(k->run, "manifest.json", path));
  TRY(prepare_manifest(k, temporary, &manifest));
  json_decref(manifest);
  return whole_file_commit(path, temporary);
}

/* Checks that the evaluation in the folder has the same setup, and notes whether it has ended. */
static status check_earlier(keeper *k) {
  char path[PATH_BYTES_MAX], difference[EVAL_MANIFEST_DIFFERENCE_BYTES], *text = NULL;
  size_t bytes = 0;
  json_t *manifest = NULL;
  TRY(path_in(k->run, "manifest.json", path));
  if (!k->run->resume || access(path, F_OK) != 0) return write_manifest(k);
  TRY(eval_tasks_read(path, EVAL_MANIFEST_BYTES_MAX, &text, &bytes));
  status result = eval_manifest_parse(text, bytes, &manifest);
  free(text);
  if (result == OK && eval_manifest_difference(json_object_get(manifest, "setup"), k->setup, difference))
    result = FAIL(ERR_MISMATCH, "%s: it was created with a different setup; cannot resume: %s", path, difference);
  json_t *started = json_object_get(json_object_get(manifest, "run"), "started");
  if (result == OK && json_is_string(started)) json_object_set(k->facts, "started", started);
  k->is_finished = result == OK && json_is_object(json_object_get(manifest, "outcome"));
  if (k->is_finished) k->run->manifest = json_incref(manifest);
  json_decref(manifest);
  return result;
}

/* === The setup ============================================================================================================== */

static json_t *hex(const uint8_t *bytes) {
  char text[DIGEST_TEXT_BYTES];
  return json_string(digest_text(bytes, text));
}

static json_t *now(void) {
  char text[TIME_BYTES];
  struct tm parts;
  time_t seconds = time(NULL);
  gmtime_r(&seconds, &parts);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return json_string(text);
}

static status find_others(keeper *k) {
  const eval_run *run = k->run;
  eval_perturb_ids first;
  TRY(eval_perturb_read(run->engine.plan_path, &first));
  k->max_len = first.max_len;
  for (uint32_t i = 0; i < run->perturb_count; i++) {
    other *o = &k->others[i];
    const char *word = run->perturb[i];
    char name[32];
    snprintf(name, sizeof name, "perturbed-%u.plan", i + 1);
    if (eval_perturb_is_key(word)) {
      TRY(path_in(run, name, o->path));
      if (!run->resume || access(o->path, F_OK) != 0)
        TRY(eval_perturb_make(run->engine.plan_path, run->engine.model_dir, word, o->path));
    } else if (access(word, F_OK) != 0) {
      return FAIL(ERR_USAGE, "--perturb %s: expected a plan's file, or KEY=VALUE of chunk-tokens, group-chunks, parity, latent-norm-eps, "
                  "kv-cache-dtype, kv-cache-scales; found no file of that name", word);
    } else if (snprintf(o->path, sizeof o->path, "%s", word) >= (int)sizeof o->path)
      return FAIL(ERR_USAGE, "--perturb: the path is too long");
    TRY(eval_perturb_read(o->path, &o->ids));
    if (memcmp(first.config_digest, o->ids.config_digest, DIGEST_BYTES) != 0)
      return FAIL(ERR_MISMATCH, "--perturb %s: the plan is for another config.json", word);
    if (memcmp(first.numerics_id, o->ids.numerics_id, DIGEST_BYTES) == 0)
      return FAIL(ERR_USAGE, "--perturb %s: it has the same numerics as the plan, so its bits would be the same", word);
  }
  return OK;
}

static status make_setup(keeper *k, const verbatim_info *info) {
  digest vocabulary = tokenizer_digest(k->tokenizer);
  eval_manifest_model model = {info->numerics_id, info->config_digest, info->weights_digest, vocabulary.bytes, NULL, NULL, k->max_len,
                               k->run->without_text};
  for (uint32_t i = 0; i < k->run->tasks.count; i++) {
    if (!k->run->tasks.list[i].task.chat) continue;
    model.chat_name = chat_name(k->chat);
    model.chat_digest = chat_digest(k->chat);
  }
  json_t *perturbed = json_array();
  eval_manifest_task *tasks = eval_tasks_describe(&k->run->tasks);
  status result = perturbed && tasks ? OK : no_memory();
  for (uint32_t i = 0; i < k->run->perturb_count && result == OK; i++) {
    const eval_perturb_ids *ids = &k->others[i].ids;
    json_t *one = json_pack("{s:o, s:o}", "numerics_id", hex(ids->numerics_id), "config_digest", hex(ids->config_digest));
    if (json_array_append_new(perturbed, one) != 0) result = no_memory();
  }
  if (result == OK) result = eval_manifest_setup(&model, tasks, k->run->tasks.count, perturbed, &k->setup);
  if (result == OK) result = eval_strong_begin(info, tasks, k->run->tasks.count, &k->strong);
  free(tasks);
  json_decref(perturbed);
  if (result == OK && k->run->generation && json_object_set(k->setup, "generation_config", (json_t *)(uintptr_t)k->run->generation) != 0)
    result = no_memory();
  if (result == OK && k->run->rescored_from && json_object_set(k->setup, "rescored_from", k->run->rescored_from) != 0) result = no_memory();
  return result;
}

static json_t *text_or_null(const char *text) {
  json_t *built = text ? json_string(text) : NULL;
  return built ? built : json_null(); /* a path need not be UTF-8 */
}

/* The path as seen from the folder. */
static json_t *path_or_null(const eval_run *run, const char *path) {
  char text[EVAL_PATHS_BYTES_MAX];
  if (eval_paths_from(run->folder, path, text) == OK) return text_or_null(text);
  fail_clear();
  return json_null();
}

static json_t *perturb_word(const eval_run *run, const char *word) {
  return eval_perturb_is_key(word) ? text_or_null(word) : path_or_null(run, word);
}

static status make_facts(keeper *k, const verbatim_info *info) {
  const eval_run *run = k->run;
  json_t *files = json_array(), *perturb = json_array();
  k->facts = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:n, s:f, s:i, s:i}", "version", VERBATIM_VERSION, "device",
                       text_or_null(info->device), "plan_digest", hex(info->plan_digest), "plan", path_or_null(run, run->engine.plan_path),
                       "model", path_or_null(run, run->engine.model_dir), "task_files", files, "perturb", perturb, "started", now(),
                       "finished",
                       "seconds", 0.0, "requests", 0, "tokens", 0);
  if (!k->facts) return no_memory();
  for (uint32_t i = 0; i < run->tasks.count; i++) json_array_append_new(files, path_or_null(run, run->tasks.list[i].path));
  for (uint32_t i = 0; i < run->perturb_count; i++) json_array_append_new(perturb, perturb_word(run, run->perturb[i]));
  return OK;
}

/* === Passes ================================================================================================================= */

static status score_pass(const eval_pass *pass, const keeper *k, json_t **scores) {
  return eval_metric_scores(pass->scores, k->run->tasks.count, scores);
}

static void count_pass(keeper *k, const eval_pass *pass) {
  k->requests += pass->engine.done.requests;
  k->tokens += pass->engine.done.prompt_tokens + pass->engine.done.generated_tokens;
  k->seconds += pass->engine.done.seconds;
  if (k->run->failure.code == OK) k->run->failure = pass->failure;
}

static void begin_pass(keeper *k, eval_pass *pass, const char *what) {
  *pass = (eval_pass){.engine = k->run->engine, .what = what, .max_len = k->max_len, .without_text = k->run->without_text};
}

static status first_pass(keeper *k, eval_pass *pass) {
  json_t *scores = NULL;
  TRY(eval_pass_open(pass, &k->run->tasks, k->tokenizer, k->chat));
  TRY(make_setup(k, &pass->engine.info));
  TRY(make_facts(k, &pass->engine.info));
  if (k->run->on_setup) TRY(k->run->on_setup(k->run->context, k->setup));
  TRY(check_earlier(k));
  if (k->is_finished) return OK;
  TRY(eval_pass_run(pass, k->run->folder, "results", "receipt", k->run->resume));
  k->run->is_interrupted = pass->is_interrupted;
  if (pass->is_interrupted) return OK;
  count_pass(k, pass);
  k->written = digest_end(&pass->kept.results);
  TRY(score_pass(pass, k, &scores));
  k->outcome = json_pack("{s:I, s:i, s:o, s:n, s:o, s:o}", "items", (json_int_t)k->run->tasks.item_count, "failed", (int)pass->failed,
                         "scores", scores, "results_digest", "receipt_digest",
                         hex(pass->engine.receipt_digest.bytes), "perturbed", json_array());
  return k->outcome ? OK : no_memory();
}

static status other_pass(keeper *k, uint32_t index, eval_pass *pass) {
  other *o = &k->others[index];
  char name[32], receipt_name[40], text[DIGEST_TEXT_BYTES];
  json_t *scores = NULL;
  snprintf(name, sizeof name, "perturbed-%u", index + 1);
  snprintf(receipt_name, sizeof receipt_name, "%s.receipt", name);
  if (!k->run->engine.quiet) fprintf(stderr, "under numerics id %s\n", digest_text(o->ids.numerics_id, text));
  pass->engine.plan_path = o->path;
  TRY(eval_pass_open(pass, &k->run->tasks, k->tokenizer, k->chat));
  if (memcmp(pass->engine.info.numerics_id, o->ids.numerics_id, DIGEST_BYTES) != 0)
    return FAIL(ERR_MISMATCH, "%s: the plan was changed while the evaluation ran", o->path);
  TRY(eval_pass_run(pass, k->run->folder, name, receipt_name, k->run->resume));
  k->run->is_interrupted = pass->is_interrupted;
  if (pass->is_interrupted) return OK;
  count_pass(k, pass);
  o->written = digest_end(&pass->kept.results);
  TRY(score_pass(pass, k, &scores));
  o->outcome = json_pack("{s:o, s:i, s:o, s:o}", "numerics_id", hex(o->ids.numerics_id), "failed", (int)pass->failed, "scores", scores,
                         "receipt_digest", hex(pass->engine.receipt_digest.bytes));
  return o->outcome ? OK : no_memory();
}

static status run_passes(keeper *k) {
  eval_pass pass;
  begin_pass(k, &pass, "items");
  pass.recorded_path = k->run->recorded;
  status result = first_pass(k, &pass);
  eval_pass_close(&pass);
  for (uint32_t i = 0; i < k->run->perturb_count && result == OK && !k->run->is_interrupted && !k->is_finished; i++) {
    begin_pass(k, &pass, "items");
    pass.engine.stats_path = NULL; /* statistics are those of the first pass */
    result = other_pass(k, i, &pass);
    eval_pass_close(&pass);
  }
  return result;
}

/* === Flips ================================================================================================================== */

typedef struct merge { /* lines of the first pass, joined with the results of the others */
  keeper *k;
  FILE *others[EVAL_RUN_PERTURB_MAX];
  char *text;            /* of the new file */
  size_t bytes;
  FILE *to;
  uint64_t position, flipped[EVAL_RUN_PERTURB_MAX];
} merge;

static status merge_other(merge *self, uint32_t index, eval_kind kind, const json_t *line, json_t *list) {
  json_error_t error;
  json_t *same = json_loadf(self->others[index], JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &error);
  if (!same || !json_equal(json_object_get(same, "id"), json_object_get(line, "id"))) {
    json_decref(same);
    return FAIL(ERR_FORMAT, "perturbed-%u.jsonl: line %" PRIu64 " does not match results.jsonl", index + 1, self->position + 1);
  }
  bool flipped = eval_results_flipped(line, same, kind);
  const char *key = kind == EVAL_CHOICE ? "acc" : "correct";
  json_t *one = json_pack("{s:o, s:O, s:b}", "numerics_id", hex(self->k->others[index].ids.numerics_id), key, json_object_get(same, key),
                          "flipped", flipped);
  json_decref(same);
  self->flipped[index] += flipped;
  return json_array_append_new(list, one) == 0 ? OK : no_memory();
}

static status merge_line(merge *self, const eval_run_task *task, json_t *line) {
  eval_kind kind = task->task.kind;
  json_t *list = json_array();
  for (uint32_t i = 0; i < self->k->run->perturb_count && kind != EVAL_PERPLEXITY; i++) TRY(merge_other(self, i, kind, line, list));
  for (uint32_t i = 0; i < self->k->run->perturb_count && kind == EVAL_PERPLEXITY; i++)
    json_decref(json_loadf(self->others[i], JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL));
  if (kind == EVAL_PERPLEXITY) json_decref(list);
  else if (json_object_set_new(line, "perturbed", list) != 0) return no_memory();
  char *text = NULL;
  size_t bytes = 0;
  TRY(eval_results_text(line, &text, &bytes));
  bool good = fwrite(text, 1, bytes, self->to) == bytes;
  free(text);
  return good ? OK : no_memory();
}

static status take_line(void *context, char *text, size_t bytes, uint32_t number) {
  merge *self = context;
  uint32_t index;
  json_error_t error = {.line = 0};
  json_t *line = json_text_load(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!line || self->position >= self->k->run->tasks.item_count) {
    json_decref(line);
    return FAIL(json_text_fault(&error, ERR_FORMAT), "results.jsonl: line %u does not belong to this evaluation: %s", number, error.text);
  }
  status result = merge_line(self, eval_tasks_find(&self->k->run->tasks, self->position, &index), line);
  json_decref(line);
  self->position++;
  return result;
}

static status merge_files(merge *self) {
  char path[PATH_BYTES_MAX], name[32];
  for (uint32_t i = 0; i < self->k->run->perturb_count; i++) {
    snprintf(name, sizeof name, "perturbed-%u.jsonl", i + 1);
    TRY(path_in(self->k->run, name, path));
    if (!(self->others[i] = fopen(path, "rb"))) return FAIL(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  }
  if (!(self->to = open_memstream(&self->text, &self->bytes))) return no_memory();
  TRY(path_in(self->k->run, "results.jsonl", path));
  TRY(cli_lines_read(path, take_line, self));
  FILE *to = self->to;
  self->to = NULL;
  return fclose(to) == 0 ? OK : no_memory();
}

/* *temporary: of results.jsonl, to be committed. Without other plans results.jsonl stays as it is, and *temporary is "". */
static status merge_others(keeper *k, char temporary[WHOLE_FILE_PATH_BYTES_MAX]) {
  merge self = {.k = k};
  char path[PATH_BYTES_MAX];
  json_t *list = json_object_get(k->outcome, "perturbed");
  *temporary = 0;
  if (k->run->perturb_count == 0) return OK;
  TRY(path_in(k->run, "results.jsonl", path));
  status result = merge_files(&self);
  if (result == OK) k->written = digest_of(self.text, self.bytes);
  if (result == OK) result = whole_file_prepare(path, self.text, self.bytes, temporary);
  for (uint32_t i = 0; i < EVAL_RUN_PERTURB_MAX; i++)
    if (self.others[i]) fclose(self.others[i]);
  if (self.to) fclose(self.to);
  free(self.text);
  for (uint32_t i = 0; i < k->run->perturb_count && result == OK; i++) {
    json_object_set_new(k->others[i].outcome, "flipped", json_integer((json_int_t)self.flipped[i]));
    if (json_array_append(list, k->others[i].outcome) != 0) result = no_memory();
  }
  return result;
}

/* === The run ================================================================================================================ */

/* Checks that a file has the bytes that were written, before anything is computed from it. */
static status check_written(const keeper *k, const char *name, const digest *written) {
  char path[PATH_BYTES_MAX], *text = NULL;
  size_t bytes = 0;
  TRY(path_in(k->run, name, path));
  TRY(eval_tasks_read(path, UINT64_MAX, &text, &bytes));
  digest found = digest_of(text, bytes);
  free(text);
  if (memcmp(found.bytes, written->bytes, DIGEST_BYTES) == 0) return OK;
  return FAIL(ERR_MISMATCH, "%s: it does not have the bytes that this run has written; hint: does another program write to it?", path);
}

static status check_all_written(const keeper *k) {
  char name[32];
  TRY(check_written(k, "results.jsonl", &k->written));
  for (uint32_t i = 0; i < k->run->perturb_count; i++) {
    snprintf(name, sizeof name, "perturbed-%u.jsonl", i + 1);
    TRY(check_written(k, name, &k->others[i].written));
  }
  return OK;
}

/* The manifest's digests hold from here on. */
static void remove_progress(const keeper *k) {
  char path[PATH_BYTES_MAX], name[32];
  for (uint32_t i = 0; i <= k->run->perturb_count; i++) {
    snprintf(name, sizeof name, i ? "perturbed-%u.progress" : "results.progress", i);
    if (path_in(k->run, name, path) == OK) (void)unlink(path);
  }
}

/* Writes the report from the contents of the other files. */
static status write_report(const eval_run *run) {
  char path[PATH_BYTES_MAX];
  json_t *results = NULL;
  TRY(path_in(run, "results.jsonl", path));
  TRY(eval_saved_read(path, &results));
  status result = path_in(run, "report.html", path);
  if (result == OK) result = eval_report_write(path, run->manifest, results);
  json_decref(results);
  return result;
}

/* Both files are on the disk before either is renamed: a full disk leaves a run that can be resumed. */
static status publish(keeper *k, const char *temporary_results) {
  char results[PATH_BYTES_MAX], path[PATH_BYTES_MAX], temporary[WHOLE_FILE_PATH_BYTES_MAX];
  TRY(path_in(k->run, "results.jsonl", results));
  TRY(path_in(k->run, "manifest.json", path));
  TRY(eval_strong_end(k->strong, k->run->folder, *temporary_results ? temporary_results : results, k->run->perturb_count));
  TRY(prepare_manifest(k, temporary, &k->run->manifest));
  status result = *temporary_results ? whole_file_commit(results, temporary_results) : OK;
  if (result == OK) return whole_file_commit(path, temporary);
  unlink(temporary);
  return result;
}

static status finish(keeper *k) {
  char temporary[WHOLE_FILE_PATH_BYTES_MAX];
  TRY(check_all_written(k));
  TRY(merge_others(k, temporary));
  json_object_set_new(k->outcome, "results_digest", hex(k->written.bytes));
  json_object_set_new(k->facts, "finished", now());
  json_object_set_new(k->facts, "seconds", json_real(k->seconds));
  json_object_set_new(k->facts, "requests", json_integer((json_int_t)k->requests));
  json_object_set_new(k->facts, "tokens", json_integer((json_int_t)k->tokens));
  status result = publish(k, temporary);
  if (result != OK && *temporary) unlink(temporary);
  TRY(result);
  remove_progress(k);
  return write_report(k->run);
}

/* === A finished run ========================================================================================================= */

static status is_recorded(const char *path, const digest *found, const json_t *recorded) {
  char text[DIGEST_TEXT_BYTES];
  const char *expected = json_string_value(recorded);
  digest_text(found->bytes, text);
  if (expected && strcmp(text, expected) == 0) return OK;
  return FAIL(ERR_MISMATCH, "%s: its digest is %s, expected %s, which manifest.json has recorded: it was altered after the run had ended; "
              "hint: evaluate into a new folder", path, text, expected ? expected : "one");
}

static status check_receipt(const keeper *k, const char *name, const json_t *outcome) {
  char path[PATH_BYTES_MAX];
  receipt_read old = {0};
  TRY(path_in(k->run, name, path));
  status result = receipt_read_open(&old, path);
  if (result == OK && !old.complete) result = FAIL(ERR_FORMAT, "%s: expected a complete receipt: its end is missing", path);
  if (result == OK) result = is_recorded(path, &old.digest, json_object_get(outcome, "receipt_digest"));
  receipt_read_close(&old);
  return result;
}

/* Nothing of a finished run is written again, but for a report that is missing. */
static status check_finished(keeper *k) {
  const json_t *outcome = json_object_get(k->run->manifest, "outcome"), *others = json_object_get(outcome, "perturbed");
  char path[PATH_BYTES_MAX], name[40], *text = NULL;
  size_t bytes = 0;
  TRY(path_in(k->run, "results.jsonl", path));
  TRY(eval_tasks_read(path, UINT64_MAX, &text, &bytes));
  digest results = digest_of(text, bytes);
  free(text);
  TRY(is_recorded(path, &results, json_object_get(outcome, "results_digest")));
  TRY(check_receipt(k, "receipt", outcome));
  for (size_t i = 0; i < json_array_size(others); i++) {
    snprintf(name, sizeof name, "perturbed-%zu.receipt", i + 1);
    TRY(check_receipt(k, name, json_array_get(others, i)));
  }
  TRY(eval_strong_check(k->run->manifest, k->run->folder, false, NULL));
  remove_progress(k);
  TRY(path_in(k->run, "report.html", path));
  return access(path, F_OK) == 0 ? OK : write_report(k->run);
}

static status run_all(keeper *k) {
  TRY(check_files(k->run));
  TRY(prepare_folder(k));
  TRY(find_others(k));
  TRY(tokenizer_open(&k->tokenizer, k->run->engine.model_dir));
  TRY(chat_open(&k->chat, k->run->engine.model_dir, k->run->chat_template));
  TRY(run_passes(k));
  if (k->is_finished) return check_finished(k);
  return k->run->is_interrupted ? OK : finish(k);
}

status eval_run_all(eval_run *self) {
  keeper k = {.run = self, .folder = -1};
  status result = run_all(&k);
  if (k.folder >= 0) close(k.folder);
  for (uint32_t i = 0; i < self->perturb_count; i++) json_decref(k.others[i].outcome);
  json_decref(k.setup);
  json_decref(k.facts);
  json_decref(k.outcome);
  json_decref(k.strong);
  chat_close(k.chat);
  tokenizer_close(k.tokenizer);
  return result;
}

void eval_run_close(eval_run *self) {
  json_decref(self->manifest);
  eval_tasks_close(&self->tasks);
}

/* === The table ============================================================================================================== */

static void print_plain(FILE *to, const char *text) { cli_output_plain(to, text ? text : ""); }

/* Prints how much of the score depends on close decisions. */
static void print_risk(FILE *to, const json_t *row) {
  const json_t *risk = json_object_get(row, "flip_risk");
  char text[80];
  if (!json_is_object(risk)) return;
  snprintf(text, sizeof text, "fragile %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT,
           json_integer_value(json_object_get(risk, "fragile_right")) + json_integer_value(json_object_get(risk, "fragile_wrong")),
           json_integer_value(json_object_get(risk, "known")));
  fprintf(to, "%-36s %8s  %-41s[%.4f, %.4f]\n", "", "", text, json_number_value(json_object_get(risk, "score_lowest")),
          json_number_value(json_object_get(risk, "score_highest")));
}

static void print_number(FILE *to, const char *before, const json_t *value, const char *after) {
  double number = json_number_value(value);
  if (json_is_number(value)) fprintf(to, number < HUGE_FIGURE ? "%s%.4f%s" : "%s%.4e%s", before, number, after);
  else fprintf(to, "%s-%s", before, after);
}

/* Standard error, interval and what kind of interval it is. */
static void print_interval(FILE *to, const json_t *row, const json_t *metric) {
  const json_t *clusters = json_object_get(row, "clusters");
  print_number(to, "  +- ", json_object_get(metric, "stderr"), "  ");
  print_number(to, "[", json_object_get(metric, "low"), ", ");
  print_number(to, "", json_object_get(metric, "high"), "]  ");
  print_plain(to, json_string_value(json_object_get(metric, "interval")));
  if (json_is_integer(clusters)) fprintf(to, ", %" JSON_INTEGER_FORMAT " clusters", json_integer_value(clusters));
  fputc('\n', to);
}

static void print_metrics(FILE *to, const json_t *row, const char *indent, bool is_group) {
  const json_t *metrics = json_object_get(row, "metrics");
  for (size_t i = 0; i < json_array_size(metrics); i++) {
    const json_t *m = json_array_get(metrics, i), *value = json_object_get(m, "value");
    char name[40];
    snprintf(name, sizeof name, "%s%.34s", indent, json_string_value(json_object_get(row, "name")));
    if (i > 0) *name = 0;
    for (char *c = name; *c; c++) *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    if (is_group) fprintf(to, "%-36s %8zu  ", name, json_array_size(json_object_get(row, "tasks")));
    else fprintf(to, "%-36s %8" JSON_INTEGER_FORMAT "  ", name, json_integer_value(json_object_get(row, "items")));
    print_plain(to, json_string_value(json_object_get(m, "name")));
    if (!json_is_number(value)) {
      fprintf(to, "  not finite\n");
      continue;
    }
    fprintf(to, json_number_value(value) < HUGE_FIGURE ? "%*s %10.4f" : "%*s %10.4e",
            (int)(17 - strlen(json_string_value(json_object_get(m, "name")))), "", json_number_value(value));
    print_interval(to, row, m);
  }
}

/* What happened to items and answers, if anything did. */
static void print_counts(FILE *to, const json_t *row) {
  static const char *const what[][2] = {{"failed", "items not computed to their end"}, {"skipped", "items too long, skipped"},
                                        {"shortened", "prompts too long, cut from the left"}, {"cut", "answers cut at max_tokens"},
                                        {"unended", "answers whose thought did not end"}};
  for (size_t i = 0; i < ARRAY_LEN(what); i++) {
    json_int_t count = json_integer_value(json_object_get(row, what[i][0]));
    if (count) fprintf(to, "%-36s %8s  %" JSON_INTEGER_FORMAT " %s\n", "", "", count, what[i][1]);
  }
}

static void print_scores(const json_t *scores, FILE *to) {
  const json_t *tasks = json_object_get(scores, "tasks"), *groups = json_object_get(scores, "groups");
  fprintf(to, "%-36s %8s  %-17s %10s     %s  %s\n", "task", "items", "metric", "value", "stderr", "[95 % interval]");
  for (size_t i = 0; i < json_array_size(tasks); i++) {
    const json_t *task = json_array_get(tasks, i), *subsets = json_object_get(task, "subsets");
    print_metrics(to, task, "", false);
    print_counts(to, task);
    print_risk(to, task);
    for (size_t s = 0; s < json_array_size(subsets); s++) print_metrics(to, json_array_get(subsets, s), "  ", false);
  }
  if (json_array_size(groups)) fprintf(to, "%-36s %8s\n", "group", "tasks");
  for (size_t i = 0; i < json_array_size(groups); i++) print_metrics(to, json_array_get(groups, i), "", true);
}

void eval_run_print(const json_t *manifest, FILE *to) {
  const json_t *outcome = json_object_get(manifest, "outcome"), *others = json_object_get(outcome, "perturbed");
  print_scores(json_object_get(outcome, "scores"), to);
  for (size_t i = 0; i < json_array_size(others); i++) {
    const json_t *o = json_array_get(others, i);
    fprintf(to, "\nunder numerics id %s, %" JSON_INTEGER_FORMAT " items flip:\n", json_string_value(json_object_get(o, "numerics_id")),
            json_integer_value(json_object_get(o, "flipped")));
    print_scores(json_object_get(o, "scores"), to);
  }
  fprintf(to, "manifest %s\n", json_string_value(json_object_get(manifest, "manifest_digest")));
}
