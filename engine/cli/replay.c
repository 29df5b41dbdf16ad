/* cli/replay.c - `verbatim replay`: repeats an evaluation from its manifest alone, and reports where it differs from the record.
 *
 * Owns the subcommand's arguments and the comparison: files next to the manifest line by line and token by token, the manifest's own
 * content by digests. Read next: eval/run/run.h, eval/manifest.h. */
#include "cli/cli.h"
#include "common/compare.h"
#include "eval/run/paths.h"
#include "eval/run/run.h"
#include "eval/run/saved.h"
#include "eval/run/strong.h"
#include "common/lines.h"
#include "common/options.h"
#include "common/output.h"
#include "eval/manifest.h"
#include "eval/results.h"
#include "receipts/compare.h"
#include "receipts/read.h"
#include "base/input_file.h"
#include "base/special_file.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define EXIT_INTERRUPTED 130

static const char HELP[] =
  "usage: verbatim replay MANIFEST [options]\n\n"
  "Repeats the evaluation of the manifest and compares every line of results, the receipt, the scores\n"
  "and the manifest's digest. Exit code 0: all are equal. Otherwise the first item and the first token\n"
  "that differ are named.\n\n"
  "Examples:\n"
  "  verbatim replay out/manifest.json\n"
  "  verbatim replay out/manifest.json --plan my.plan --model MODEL_DIR --output again\n\n"
  "  --plan PLAN         the plan (default: the one that the manifest names)\n"
  "  --model DIR         the model's folder (default: the one that the manifest names)\n"
  "  --chat-template FILE  a Jinja template in place of the model's own\n"
  "  --tasks DIR         folder of the files that the manifest names but does not contain\n"
  "  --output DIR        keep the results, in a new folder\n"
  "  --stepwise          make every token by a step of its own; else the tokens of the receipt next\n"
  "                      to the manifest are checked many at a time, which is faster and as exact\n"
  "  --force             accept other numerics, weights or tokenizer, and report the differences\n\n";

typedef struct replay {
  eval_run run;
  const char *manifest_path, *tasks_folder;
  const char **words;
  bool force, stepwise;
  eval_saved saved;
  char temporary[PATH_BYTES_MAX]; /* "": none */
  char receipt[PATH_BYTES_MAX];   /* next to it                 */
  char plan[EVAL_PATHS_BYTES_MAX], model[EVAL_PATHS_BYTES_MAX], others[EVAL_RUN_PERTURB_MAX][EVAL_PATHS_BYTES_MAX]; /* as it names them */
  uint64_t lines, differing, flipped;
  uint64_t first_request;         /* of the first line that differs: the number of requests before it */
  uint32_t first_requests;        /* and the number of its own requests */
  FILE *again;                    /* the new results */
} replay;

/* === Arguments and the manifest ============================================================================================= */

static status parse_arguments(replay *self, int argc, char **argv) {
  uint32_t count = 0;
  cli_option table[40] = {
    {"--plan", cli_options_text, &self->run.engine.plan_path}, {"--model", cli_options_text, &self->run.engine.model_dir},
    {"--tasks", cli_options_text, &self->tasks_folder}, {"--output", cli_options_text, &self->run.folder}, {"--force", NULL, &self->force},
    {"--stepwise", NULL, &self->stepwise}, {"--chat-template", cli_options_text, &self->run.chat_template}};
  cli_engine_options(&self->run.engine, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, self->words, &count));
  if (count != 1) return FAIL(ERR_USAGE, "replay: expected one MANIFEST, found %u word%s; hint: verbatim replay --help",
                              count, CLI_OPTIONS_PLURAL(count));
  if (self->run.engine.receipt_path) return FAIL(ERR_USAGE, "--receipt: with --output DIR the receipt is DIR/receipt");
  self->manifest_path = self->words[0];
  self->run.engine.config.no_drafts |= self->stepwise;
  return OK;
}

static const char *hint(const json_t *facts, const char *key) { return json_string_value(json_object_get(facts, key)); }

static status take_hints(replay *self) {
  TRY(cli_hub_resolve(&self->run.engine.model_dir, self->run.engine.model_path));
  const json_t *facts = json_object_get(self->saved.manifest, "run"), *words = json_object_get(facts, "perturb");
  size_t others = json_array_size(json_object_get(json_object_get(self->saved.manifest, "setup"), "perturbed"));
  cli_engine *engine = &self->run.engine;
  const json_t *setup = json_object_get(self->saved.manifest, "setup");
  self->run.without_text = json_is_false(json_object_get(setup, "with_text"));
  self->run.rescored_from = json_object_get(setup, "rescored_from");
  self->run.generation = json_object_get(setup, "generation_config");
  if (!engine->plan_path && hint(facts, "plan")) {
    TRY(eval_paths_in(self->saved.folder, hint(facts, "plan"), self->plan));
    engine->plan_path = self->plan;
  }
  if (!engine->model_dir && hint(facts, "model")) {
    TRY(eval_paths_in(self->saved.folder, hint(facts, "model"), self->model));
    engine->model_dir = self->model;
  }
  if (!engine->plan_path || !engine->model_dir)
    return FAIL(ERR_USAGE, "the manifest names no plan and model; hint: give --plan PLAN --model DIR");
  for (size_t i = 0; i < others; i++) {
    const char *word = json_string_value(json_array_get(words, i));
    if (!word) return FAIL(ERR_FORMAT, "manifest: run.perturb: expected the words of --perturb");
    if (i < EVAL_RUN_PERTURB_MAX && !eval_perturb_is_key(word)) {
      TRY(eval_paths_in(self->saved.folder, word, self->others[i]));
      word = self->others[i];
    }
    TRY(eval_run_perturb("perturb", word, &self->run));
  }
  return OK;
}

/* Called before the first request. */
static status check_setup(void *context, const json_t *setup) {
  const replay *self = context;
  char text[EVAL_MANIFEST_DIFFERENCE_BYTES];
  if (!eval_manifest_difference(json_object_get(self->saved.manifest, "setup"), setup, text)) return OK;
  if (!self->force)
    return FAIL(ERR_MISMATCH, "the setup differs from the manifest's (its value, then the one here): %s; hint: --force runs it "
                              "anyway", text);
  fprintf(stderr, "note: the setup differs (the manifest's value, then the one here): %s\n", text);
  return OK;
}

/* === The folder ============================================================================================================= */

static status choose_folder(replay *self) {
  const char *base = getenv("TMPDIR");
  if (self->run.folder) return OK;
  if (snprintf(self->temporary, sizeof self->temporary, "%s/verbatim-replay-XXXXXX", base && *base ? base : "/tmp") >= PATH_BYTES_MAX)
    return FAIL(ERR_USAGE, "TMPDIR: the path is too long");
  if (!mkdtemp(self->temporary)) {
    *self->temporary = 0;
    return FAIL(ERR_IO, "%s: cannot create a folder: %s", base ? base : "/tmp", strerror(errno));
  }
  self->run.folder = self->temporary;
  return OK;
}

static void remove_folder(const replay *self) {
  DIR *dir = *self->temporary ? opendir(self->temporary) : NULL;
  if (!dir) return;
  for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) (void)unlinkat(dirfd(dir), entry->d_name, 0);
  closedir(dir);
  (void)rmdir(self->temporary);
}

static status path_in(const char *folder, const char *name, char path[PATH_BYTES_MAX]) {
  return snprintf(path, PATH_BYTES_MAX, "%s/%s", folder, name) < PATH_BYTES_MAX ? OK : FAIL(ERR_USAGE, "%s: the path is too long", folder);
}

/* === Lines ================================================================================================================== */

static void print_key(const json_t *line, const char *key) {
  const json_t *value = json_object_get(line, key);
  char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
  printf("%.400s", text ? text : "nothing");
  free(text);
}

static eval_kind kind_of(const json_t *line) {
  const char *kind = json_string_value(json_object_get(line, "kind"));
  for (eval_kind k = EVAL_GENERATE; kind && k < EVAL_PERPLEXITY; k++)
    if (strcmp(kind, eval_task_kind_name(k)) == 0) return k;
  return EVAL_PERPLEXITY;
}

static void tell_line(const json_t *old, const json_t *new) {
  const char *key = eval_results_difference(old, new);
  printf("first difference: ");
  cli_output_plain(stdout, hint(new, "task"));
  fputc('/', stdout);
  cli_output_plain(stdout, hint(new, "id"));
  printf(" (item %" JSON_INTEGER_FORMAT " of its task)", json_integer_value(json_object_get(new, "index")));
  if (!key) {
    printf(": the same values in another form\n");
    return;
  }
  printf(": \"");
  cli_output_plain(stdout, key);
  printf("\": recorded ");
  print_key(old, key);
  printf(", again ");
  print_key(new, key);
  putchar('\n');
}

/* A recorded line, and the same line of the new run. */
static status compare_line(replay *self, const char *text, size_t bytes) {
  json_t *new = json_loadf(self->again, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL);
  json_t *old = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  char *again = NULL;
  size_t again_bytes = 0;
  status result = new ? eval_results_text(new, &again, &again_bytes) : OK;
  uint32_t requests = (uint32_t)json_array_size(json_object_get(new, "requests"));
  if (result == OK && !(new && again_bytes == bytes + 1 && memcmp(text, again, bytes) == 0)) {
    if (self->differing++ == 0) {
      self->first_requests = requests;
      if (new && old) tell_line(old, new);
      else printf("first difference: line %" PRIu64 " of results.jsonl is %s\n", self->lines + 1,
                  new ? "not JSON" : "missing in the replay");
    }
    if (new && old) self->flipped += eval_results_flipped(old, new, kind_of(new));
  } else if (self->differing == 0) self->first_request += requests;
  free(again);
  json_decref(new);
  json_decref(old);
  return result;
}

static status take_line(void *context, char *line, size_t bytes, uint32_t number) {
  replay *self = context;
  (void)number;
  TRY(compare_line(self, line, bytes));
  self->lines++;
  return OK;
}

/* *compared: the recorded file exists. */
static status compare_results(replay *self, bool *compared) {
  char old[PATH_BYTES_MAX], new[PATH_BYTES_MAX];
  TRY(path_in(self->saved.folder, "results.jsonl", old));
  TRY(path_in(self->run.folder, "results.jsonl", new));
  *compared = special_file_is_there(old);
  if (!*compared) return OK;
  TRY(input_file_check(old, INPUT_RESULTS));
  TRY(input_file_open_stream(new, INPUT_RESULTS, &self->again));
  status result = cli_lines_read(old, take_line, self);
  if (result == OK && self->lines < self->run.tasks.item_count) {
    if (self->differing++ == 0) printf("first difference: results.jsonl ends after %" PRIu64 " lines\n", self->lines);
  }
  fclose(self->again);
  return result;
}

/* === Tokens ================================================================================================================= */

static status compare_requests(replay *self, receipt_read *old, receipt_read *new) {
  bool differs = false;
  for (uint32_t k = 0; k < self->first_requests && !differs; k++) {
    uint64_t at = self->first_request + k;
    receipt_record a = {0}, b = {0};
    receipt_difference difference;
    if (at >= old->count || at >= new->count) break;
    TRY(receipt_read_get(old, (uint32_t)at, &a));
    status result = receipt_read_get(new, (uint32_t)at, &b);
    if (result == OK) {
      differs = receipt_compare(&a.request, &b.request, !self->force, &difference);
      if (differs) printf("request ");
      if (differs) cli_output_plain(stdout, b.id);
      if (differs) printf(" (recorded, then replayed):\n");
      if (differs) cli_compare_print(&difference);
      receipt_read_drop(&b);
    }
    receipt_read_drop(&a);
    TRY(result);
  }
  if (!differs) printf("its tokens are the same: the recorded line does not follow from them\n");
  return OK;
}

/* Compares the tokens of the first item that differs. Without a receipt next to the manifest there is nothing to compare. */
static status compare_tokens(replay *self) {
  char old[PATH_BYTES_MAX], new[PATH_BYTES_MAX];
  receipt_read a = {0}, b = {0};
  if (self->differing == 0 || self->first_requests == 0) return OK;
  TRY(path_in(self->saved.folder, "receipt", old));
  TRY(path_in(self->run.folder, "receipt", new));
  if (!special_file_is_there(old)) return OK;
  status result = receipt_read_open(&a, old);
  if (result == OK) result = receipt_read_open(&b, new);
  if (result == OK) result = compare_requests(self, &a, &b);
  receipt_read_close(&a);
  receipt_read_close(&b);
  return result;
}

/* === The verdict ============================================================================================================ */

/* Prints for every part whether it is equal; returns whether all are. */
static bool compare_manifests(const replay *self) {
  static const char *const parts[] = {"results_digest", "receipt_digest", "scores", "perturbed"};
  const json_t *old = json_object_get(self->saved.manifest, "outcome"), *new = json_object_get(self->run.manifest, "outcome");
  char text[EVAL_MANIFEST_DIFFERENCE_BYTES];
  bool equal = true;
  for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
    bool differs = eval_manifest_difference(json_object_get(old, parts[i]), json_object_get(new, parts[i]), text);
    printf("%-15s %s%s%s\n", parts[i], differs ? "differs" : "equal", differs && *text != ':' ? ": " : "", differs ? text : "");
    equal = equal && !differs;
  }
  if (json_object_get(self->saved.manifest, "sha256")) {
    bool differs = eval_strong_difference(self->saved.manifest, self->run.manifest, text);
    printf("%-15s %s%s%s\n", "sha256", differs ? "differs" : "equal", differs ? ": " : "", differs ? text : "");
    equal = equal && !differs;
  }
  const char *digests[2] = {hint(self->saved.manifest, "manifest_digest"), hint(self->run.manifest, "manifest_digest")};
  bool same = digests[0] && digests[1] && strcmp(digests[0], digests[1]) == 0;
  printf("%-15s %s\n", "manifest_digest", same ? "equal" : "differs");
  return equal && same;
}

static status judge(replay *self) {
  bool compared = false;
  TRY(compare_results(self, &compared));
  TRY(compare_tokens(self));
  bool equal = compare_manifests(self);
  if (!compared) printf("no results.jsonl next to the manifest: compared by its digest only\n");
  if (self->differing)
    printf("%" PRIu64 " of %" PRIu64 " lines differ, %" PRIu64 " answers\n", self->differing, self->lines, self->flipped);
  if (equal && self->differing == 0) {
    printf("equal: %" PRIu64 " items, manifest %s\n", self->run.tasks.item_count, hint(self->run.manifest, "manifest_digest"));
    return cli_output_flush();
  }
  TRY(cli_output_flush());
  return FAIL(ERR_MISMATCH, "%s: the replay differs from the recording", self->manifest_path);
}

static status replay_steps(replay *self, int argc, char **argv) {
  TRY(parse_arguments(self, argc, argv));
  TRY(eval_saved_open(&self->saved, self->manifest_path));
  TRY(take_hints(self));
  self->run.engine.config.sha256 |= hint(json_object_get(self->saved.manifest, "sha256"), "weights") != NULL;
  TRY(eval_tasks_recorded(&self->run.tasks, self->saved.manifest, self->saved.folder, self->tasks_folder));
  TRY(choose_folder(self));
  const cli_files_row files[] = {{CLI_FILES_READ, self->manifest_path, "the manifest"}};
  self->run.files = files;
  self->run.file_count = ARRAY_LEN(files);
  TRY(path_in(self->saved.folder, "receipt", self->receipt));
  if (!self->stepwise && special_file_is_there(self->receipt)) self->run.recorded = self->receipt;
  self->run.on_setup = check_setup;
  self->run.context = self;
  TRY(eval_run_all(&self->run));
  if (!self->run.is_interrupted) return judge(self);
  fprintf(stderr, "verbatim: interrupted\n");
  return OK;
}

int cli_replay(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    fputs(CLI_ENGINE_HELP, stdout);
    return 0;
  }
  replay self = {.run.tasks.limit = -1, .words = calloc((size_t)argc, sizeof *self.words)};
  status result = self.words ? replay_steps(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  bool interrupted = self.run.is_interrupted;
  remove_folder(&self);
  eval_run_close(&self.run);
  eval_saved_close(&self.saved);
  free(self.words);
  return result == OK && interrupted ? EXIT_INTERRUPTED : fail_exit_code(result);
}
