/* cli/rescore.c - `verbatim rescore`: scores the saved answers of an evaluation again, without a model.
 *
 * Owns the arguments and the text. Read next: eval/run/rescored.h. */
#include "cli/cli.h"
#include "common/options.h"
#include "common/output.h"
#include "eval/run/rescored.h"
#include "eval/run/run.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TASK_FILES_MAX 256u

static const char HELP[] =
  "usage: verbatim rescore MANIFEST [options]\n\n"
  "Judges the saved answers of an evaluation again, for example after its rule of extraction or its\n"
  "key of answers was corrected; the model is not needed. MANIFEST may also be the results.jsonl\n"
  "beside it. What was asked must be the same: `verbatim eval` asks anew.\n\n"
  "Examples:\n"
  "  verbatim rescore out/manifest.json --task corrected.yaml\n"
  "  verbatim rescore out/results.jsonl --task corrected.yaml --output corrected\n\n"
  "  --task FILE         a task file in place of the recorded one of the same name; may be repeated\n"
  "  --tasks DIR         folder of the files that the manifest names but does not contain\n"
  "  --output DIR        write manifest, results and report into this new folder\n"
  "  --output-format F   text: a table of the scores; json: the new manifest's outcome (text)\n\n"
  "The new manifest says of which one it was made. The answers' own digests stay: the receipt's, and\n"
  "those of every request.\n";

typedef struct rescore_run {
  eval_saved saved;
  eval_rescored rescored;
  const char *task_files[TASK_FILES_MAX];
  uint32_t task_file_count;
  const char *format, *path;
} rescore_run;

static status take_task(const char *name, const char *value, void *target) {
  rescore_run *self = target;
  if (self->task_file_count == TASK_FILES_MAX) return FAIL(ERR_USAGE, "%s: at most %u times", name, TASK_FILES_MAX);
  self->task_files[self->task_file_count++] = value;
  return OK;
}

static status parse_arguments(rescore_run *self, int argc, char **argv, const char **words) {
  uint32_t count = 0;
  const cli_option table[] = {
    {"--task", take_task, self}, {"--tasks", cli_options_text, &self->rescored.tasks_folder},
    {"--output", cli_options_text, &self->rescored.folder}, {"--output-format", cli_options_text, &self->format}, {NULL, NULL, NULL}};
  TRY(cli_options_parse(table, argc, argv, words, &count));
  if (count != 1) return FAIL(ERR_USAGE, "rescore: expected one MANIFEST, found %" PRIu32 " words; hint: verbatim rescore --help", count);
  if (strcmp(self->format, "text") != 0 && strcmp(self->format, "json") != 0)
    return FAIL(ERR_USAGE, "--output-format: expected text or json, found \"%s\"", self->format);
  self->path = words[0];
  self->rescored.task_files = self->task_files;
  self->rescored.task_file_count = self->task_file_count;
  return OK;
}

/* The manifest of results.jsonl lies beside it. */
static status open_saved(rescore_run *self) {
  static const char results[] = "results.jsonl";
  size_t bytes = strlen(self->path), tail = sizeof results - 1;
  char path[EVAL_SAVED_PATH_BYTES];
  bool is_results = bytes >= tail && strcmp(self->path + bytes - tail,
                                            results) == 0 && (bytes == tail || self->path[bytes - tail - 1] == '/');
  if (snprintf(path, sizeof path, "%.*smanifest.json", is_results ? (int)(bytes - tail) : 0, self->path) >= (int)sizeof path)
    return FAIL(ERR_USAGE, "%s: the path is too long", self->path);
  TRY(eval_saved_open(&self->saved, is_results ? path : self->path));
  return eval_saved_lines(&self->saved);
}

static const char *text_in(const json_t *manifest, const char *key) {
  return json_string_value(json_object_get(json_object_get(manifest, "outcome"), key));
}

static void print_all(const rescore_run *self) {
  const eval_rescored *r = &self->rescored;
  eval_run_print(r->manifest, stdout);
  bool same = strcmp(text_in(self->saved.manifest, "results_digest"), text_in(r->manifest, "results_digest")) == 0;
  printf("rescored from %s\n", json_string_value(json_object_get(self->saved.manifest, "manifest_digest")));
  printf("receipt %s: holds, the answers are the same\n", text_in(r->manifest, "receipt_digest"));
  printf("results %s: %s\n", text_in(r->manifest, "results_digest"), same ? "holds" : "new");
  printf("%" PRIu64 " of %zu lines changed; right before and wrong now %" PRIu64 ", wrong before and right now %" PRIu64 "\n", r->changed,
         json_array_size(r->results), r->lost, r->gained);
  if (json_array_size(json_object_get(json_object_get(self->saved.manifest, "setup"), "perturbed")))
    printf("the results under other numerics are not scored again\n");
}

static status rescore_steps(rescore_run *self) {
  TRY(open_saved(self));
  TRY(eval_rescored_all(&self->rescored, &self->saved));
  if (strcmp(self->format, "json") == 0)
    return cli_output_json(json_incref(json_object_get(self->rescored.manifest, "outcome")), JSON_INDENT(2));
  print_all(self);
  return cli_output_flush();
}

int cli_rescore(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  rescore_run *self = calloc(1, sizeof *self);
  const char **words = calloc((size_t)argc, sizeof *words);
  status result = self && words ? OK : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) self->format = "text";
  if (result == OK) result = parse_arguments(self, argc, argv, words);
  if (result == OK) result = rescore_steps(self);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  if (self) eval_rescored_close(&self->rescored);
  if (self) eval_saved_close(&self->saved);
  free(self);
  free(words);
  return fail_exit_code(result);
}
