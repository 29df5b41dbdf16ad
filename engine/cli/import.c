/* cli/import.c - `verbatim import`: tasks of other programs to task files and items of ours.
 *
 * Owns the arguments and the files. EVALUATION.md, "Import", is normative. Read next: eval/import/prompts.h, eval/import/samples.h. */
#include "cli/cli.h"
#include "base/input_file.h"
#include "base/special_file.h"
#include "base/strbuf.h"
#include "base/whole_file.h"
#include "common/options.h"
#include "common/output.h"
#include "eval/import/inspect.h"
#include "eval/import/prompts.h"
#include "eval/import/samples.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096u

static const char HELP[] =
  "usage: verbatim import TASK.yaml | SAMPLES.jsonl | LOG.json --output DIR [options]\n\n"
  "Turns a task of lm-evaluation-harness, its log of samples (--log_samples), or a log of inspect-ai\n"
  "into a task file and a JSONL file of items for `verbatim eval`. The prompts are those that the other\n"
  "program sends, byte for byte. What cannot be carried over exactly is refused by name. EVALUATION.md\n"
  "says what can.\n\n"
  "Examples:\n"
  "  verbatim import gsm8k.yaml --data test.jsonl --fewshot train.jsonl --output tasks\n"
  "  verbatim import samples_hellaswag_2026-01-31T10-00-00.000000.jsonl --output tasks\n"
  "  verbatim import samples_gsm8k.jsonl --task gsm8k.yaml --output tasks\n"
  "  verbatim eval tasks/gsm8k-strict-match.yaml --plan my.plan --model MODEL_DIR --output out\n\n"
  "  --output DIR        folder for the files, made if absent; no file in it is replaced\n"
  "  --data FILE         the task's records: JSON objects, one a line or in a list\n"
  "  --fewshot FILE      the records of the examples, likewise\n"
  "  --num-fewshot N     examples before each prompt, as the harness's option of that name\n"
  "  --fewshot-seed N    seed of the choice of examples, as the harness's third --seed (1234)\n"
  "  --task FILE         with the harness's log of samples: the task's YAML, for the rules of judging\n"
  "  --accept KEY        go without what KEY stands for in a refusal; may be repeated\n"
  "  --output-format F   text, or json: the names of the files (text)\n";

typedef struct import_run {
  eval_import_options options;
  eval_import_accept accept;
  eval_import made;
  const char *path, *task, *folder, *format;
} import_run;

/* === Arguments ============================================================================================================== */

static status take_accept(const char *name, const char *value, void *target) {
  eval_import_accept *accept = target;
  if (accept->count == EVAL_IMPORT_ACCEPT_MAX) return FAIL(ERR_USAGE, "%s: at most %u times", name, EVAL_IMPORT_ACCEPT_MAX);
  accept->names[accept->count++] = value;
  return OK;
}

static status take_count(const char *name, const char *value, void *target) {
  uint32_t count = 0;
  TRY(cli_options_u32(name, value, &count));
  *(int64_t *)target = count;
  return OK;
}

static bool ends(const char *text, const char *end) {
  size_t bytes = strlen(text), tail = strlen(end);
  return bytes >= tail && strcmp(text + bytes - tail, end) == 0;
}

static status parse_arguments(import_run *self, int argc, char **argv, const char **words) {
  uint32_t count = 0;
  const cli_option table[] = {
    {"--output", cli_options_text, &self->folder}, {"--data", cli_options_text, &self->options.data},
    {"--fewshot", cli_options_text, &self->options.shots}, {"--num-fewshot", take_count, &self->options.shot_count},
    {"--fewshot-seed", cli_options_u32, &self->options.seed}, {"--task", cli_options_text, &self->task},
    {"--accept", take_accept, &self->accept}, {"--output-format", cli_options_text, &self->format}, {NULL, NULL, NULL}};
  TRY(cli_options_parse(table, argc, argv, words, &count));
  if (count != 1) return FAIL(ERR_USAGE, "import: expected one file, found %" PRIu32 " words; hint: verbatim import --help", count);
  if (strcmp(self->format, "text") != 0 && strcmp(self->format, "json") != 0)
    return FAIL(ERR_USAGE, "--output-format: expected text or json, found \"%s\"", self->format);
  if (!self->folder) return FAIL(ERR_USAGE, "import: expected --output DIR; hint: verbatim import --help");
  self->path = words[0];
  bool is_log = ends(self->path, ".jsonl") || ends(self->path, ".json");
  if (is_log && (self->options.data || self->options.shots || self->options.shot_count >= 0))
    return FAIL(ERR_USAGE, "%s: a log of samples has its prompts; hint: remove --data, --fewshot and --num-fewshot", self->path);
  if (!ends(self->path, ".jsonl") && self->task)
    return FAIL(ERR_USAGE, "--task: only valid with the harness's log of samples, a .jsonl file");
  return OK;
}

/* === Files ================================================================================================================== */

static status read_rest(FILE *file, const char *path, size_t most, char **text, size_t *bytes) {
  strbuf whole = {0};
  for (;;) {
    char *room = strbuf_reserve(&whole, 65536);
    size_t got = room ? fread(room, 1, 65536, file) : 0;
    if (got == 0) break;
    whole.count += got;
    if (whole.count > most) break;
  }
  status result = whole.count > most ? FAIL(ERR_LIMIT, "%s: more than %zu bytes", path, most)
                  : ferror(file) ? FAIL(ERR_IO, "%s: cannot be read: %s", path, strerror(errno)) : strbuf_take(&whole, text, bytes);
  strbuf_close(&whole);
  return result;
}

static status read_file(void *context, const char *path, bool is_data, char **text, size_t *bytes) {
  FILE *file = NULL;
  (void)context;
  TRY(input_file_open_stream(path, INPUT_TASK, &file));
  status result = read_rest(file, path, is_data ? EVAL_IMPORT_BYTES_MAX : 1u << 20, text, bytes);
  fclose(file);
  return result;
}

static status name_file(const import_run *self, const char *name, const char *end, char path[PATH_BYTES]) {
  if (snprintf(path, PATH_BYTES, "%s/%s%s", self->folder, name, end) >= (int)PATH_BYTES)
    return FAIL(ERR_USAGE, "%s: the path is too long", self->folder);
  return special_file_is_there(path) ? FAIL(ERR_USAGE, "%s: it is there already; hint: name another folder", path) : OK;
}

static const char *task_name(const import_run *self, size_t index) {
  return json_string_value(json_object_get(json_array_get(self->made.tasks, index), "name"));
}

static status write_task(const import_run *self, size_t index) {
  char path[PATH_BYTES], items[PATH_BYTES], comment[PATH_BYTES];
  strbuf text = {0};
  snprintf(items, sizeof items, "%s.jsonl", self->made.name);
  snprintf(comment, sizeof comment, "# Made by `verbatim import`; EVALUATION.md describes the keys.\n");
  TRY(name_file(self, task_name(self, index), ".yaml", path));
  status result = eval_import_task_text(json_object_get(json_array_get(self->made.tasks, index), "keys"), items, comment, &text);
  if (result == OK) result = whole_file_write(path, text.bytes, text.count);
  strbuf_close(&text);
  return result;
}

/* All names are tried before the first file is written. */
static status write_all(const import_run *self) {
  char path[PATH_BYTES];
  if (mkdir(self->folder, 0777) != 0 && errno != EEXIST) return FAIL(ERR_IO, "%s: cannot be created: %s", self->folder, strerror(errno));
  for (size_t i = 0; i < json_array_size(self->made.tasks); i++) TRY(name_file(self, task_name(self, i), ".yaml", path));
  TRY(name_file(self, self->made.name, ".jsonl", path));
  TRY(whole_file_write(path, self->made.items.bytes, self->made.items.count));
  for (size_t i = 0; i < json_array_size(self->made.tasks); i++) TRY(write_task(self, i));
  return OK;
}

/* === Output ================================================================================================================= */

static status print_json(const import_run *self) {
  json_t *tasks = json_array(), *accepted = json_array();
  char path[PATH_BYTES];
  for (size_t i = 0; i < json_array_size(self->made.tasks); i++) {
    snprintf(path, sizeof path, "%s/%s.yaml", self->folder, task_name(self, i));
    json_array_append_new(tasks, json_string(path));
  }
  for (uint32_t i = 0; i < self->accept.count; i++) json_array_append_new(accepted, json_string(self->accept.names[i]));
  snprintf(path, sizeof path, "%s/%s.jsonl", self->folder, self->made.name);
  return cli_output_json(json_pack("{s:s, s:I, s:o, s:o}", "items", path, "count", (json_int_t)self->made.item_count, "tasks", tasks,
                                   "accepted", accepted), 0);
}

static status print_text(const import_run *self) {
  printf("%s/%s.jsonl: %" PRIu32 " items\n", self->folder, self->made.name, self->made.item_count);
  for (size_t i = 0; i < json_array_size(self->made.tasks); i++) printf("%s/%s.yaml\n", self->folder, task_name(self, i));
  for (uint32_t i = 0; i < self->accept.count; i++) printf("gone without: %s\n", self->accept.names[i]);
  if (json_array_size(self->made.tasks) == 0)
    printf("a continuation each: verbatim score PLAN MODEL_DIR --jsonl %s/%s.jsonl\n", self->folder, self->made.name);
  return cli_output_flush();
}

static status import_one(import_run *self) {
  const eval_import_files files = {read_file, NULL};
  if (ends(self->path, ".eval"))
    return FAIL(ERR_UNSUPPORTED, "an archive of inspect-ai; hint: inspect log dump FILE.eval > LOG.json");
  if (ends(self->path, ".jsonl")) return eval_import_samples(&files, &self->accept, self->path, self->task, &self->made);
  if (ends(self->path, ".json")) return eval_import_inspect(&files, &self->accept, self->path, &self->made);
  return eval_import_prompts(&files, &self->accept, self->path, &self->options, &self->made);
}

static status import_steps(import_run *self) {
  status result = import_one(self);
  if (result != OK) fail_prefix(self->path);
  TRY(result);
  TRY(eval_import_check_accepted(&self->accept));
  TRY(eval_import_check(&self->made));
  TRY(write_all(self));
  return strcmp(self->format, "json") == 0 ? print_json(self) : print_text(self);
}

int cli_import(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  import_run *self = calloc(1, sizeof *self);
  const char **words = calloc((size_t)argc, sizeof *words);
  status result = self && words ? OK : FAIL(ERR_LIMIT, "no memory");
  if (self) self->options = (eval_import_options){.shot_count = -1, .seed = 1234};
  if (self) self->format = "text";
  if (result == OK) result = parse_arguments(self, argc, argv, words);
  if (result == OK) result = import_steps(self);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  if (self) eval_import_close(&self->made);
  free(self);
  free(words);
  return fail_exit_code(result);
}
