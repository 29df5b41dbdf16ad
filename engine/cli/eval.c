/* cli/eval.c - `verbatim eval`: task files, a plan and a model in; a folder with results, scores and a manifest out.
 *
 * Owns the subcommand's arguments. EVALUATION.md is normative. Read next: eval/run/run.h. */
#include "cli/cli.h"
#include "common/config.h"
#include "common/generation.h"
#include "eval/run/run.h"
#include "common/options.h"
#include "common/output.h"
#include "common/plan_cache.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXIT_INTERRUPTED 130
#define PATH_BYTES 4096

static const char HELP[] =
  "usage: verbatim eval TASK.yaml... --model MODEL_DIR [--plan PLAN] [--output DIR] [options]\n\n"
  "Runs the items of task files and writes DIR/manifest.json (scores, and all that is needed to repeat\n"
  "the run), DIR/results.jsonl (a line per item), DIR/receipt and DIR/report.html. EVALUATION.md has a\n"
  "guide and defines the formats. `verbatim replay` repeats the run.\n\n"
  CLI_PLAN_CACHE_HELP
  "Examples:\n"
  "  verbatim eval task.yaml --model MODEL_DIR\n"
  "  verbatim eval tests/examples/*.yaml --plan build/tiny.plan --model tests/tiny --output out\n"
  "  verbatim eval task.yaml --plan my.plan --model MODEL_DIR --output out --resume\n"
  "  verbatim eval task.yaml --config deploy.yaml --output out --perturb parity=fast-prefill\n\n"
  "  --plan PLAN         the plan\n"
  "  --model MODEL_DIR   the model's folder\n"
  "  --output DIR        a new folder, or with --resume that of an interrupted evaluation (a new\n"
  "                      one in the current folder, eval-YYYYMMDD-HHMMSS)\n"
  "  --resume            continue an interrupted evaluation after the items that are complete\n"
  "  --no-text           no texts of items in manifest, results and report, only digests and figures;\n"
  "                      for data that must not be passed on; the receipt holds token ids\n"
  "  --limit N           only the first N items of every task; part of the setup\n"
  "  --perturb WORD      also run under another numerics of the model and report which answers flip: a\n"
  "                      plan's file, or KEY=VALUE of chunk-tokens, group-chunks, parity,\n"
  "                      latent-norm-eps, kv-cache-dtype, kv-cache-scales; may be repeated\n"
  "  --chat-template FILE  a Jinja template in place of the model's own\n"
  CLI_GENERATION_HELP
  "  --output-format F   text: a table of the scores; json: the manifest's outcome (text)\n"
  CLI_CONFIG_HELP;

typedef struct eval_options {
  const char *format;
  const char **words;
  const char *const *tasks; /* [task_count]: from the command line, or from the deployment file */
  uint32_t task_count;
  cli_config config;
  bool uses_generation; /* generation_config.json has defaults of tasks */
  json_t *generation;   /* these; NULL: none */
  char folder[32]; /* the name of --output if none is given */
} eval_options;

static status take_limit(const char *name, const char *value, void *target) {
  eval_tasks *tasks = target;
  uint32_t limit = 0;
  TRY(cli_options_u32(name, value, &limit));
  if (limit == 0 || limit > INT32_MAX) return FAIL(ERR_USAGE, "%s: expected 1 to 2147483647, found %u", name, limit);
  tasks->limit = limit;
  return OK;
}

static status parse_arguments(eval_run *self, eval_options *o, int argc, char **argv) {
  cli_option table[40] = {
    {"--plan", cli_options_text, &self->engine.plan_path}, {"--model", cli_options_text, &self->engine.model_dir},
    {"--output", cli_options_text, &self->folder}, {"--resume", NULL, &self->resume}, {"--no-text", NULL, &self->without_text},
    {"--limit", take_limit, &self->tasks}, {"--perturb", eval_run_perturb, self},
    {"--output-format", cli_options_text, &o->format}, {"--chat-template", cli_options_text, &self->chat_template},
    {"--generation-config", cli_generation_take, &o->uses_generation}};
  cli_engine_options(&self->engine, table, ARRAY_LEN(table));
  cli_config_options(&o->config, CLI_CONFIG_EVAL, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, o->words, &o->task_count));
  TRY(cli_config_apply(&o->config, table, argc, argv));
  o->tasks = cli_config_words(&o->config, "tasks", o->words, &o->task_count);
  if (o->config.dump) return OK;
  if (o->task_count == 0) return FAIL(ERR_USAGE, "eval: expected task files; hint: verbatim eval --help");
  if (!self->engine.model_dir) return FAIL(ERR_USAGE, "eval: expected --model MODEL_DIR, found no --model; hint: verbatim eval --help");
  TRY(cli_hub_resolve(&self->engine.model_dir, self->engine.model_path));
  if (!self->folder && self->resume)
    return FAIL(ERR_USAGE, "--resume: expected --output DIR, the folder of the interrupted evaluation, found no --output; hint: name it");
  if (self->engine.receipt_path) return FAIL(ERR_USAGE, "--receipt: the receipt of an evaluation is DIR/receipt");
  if (strcmp(o->format, "text") != 0 && strcmp(o->format, "json") != 0)
    return FAIL(ERR_USAGE, "--output-format: expected text or json, found \"%s\"", o->format);
  return OK;
}

static status show(const eval_run *self, const eval_options *o) {
  if (strcmp(o->format, "json") == 0) return cli_output_json(json_incref(json_object_get(self->manifest, "outcome")), JSON_INDENT(2));
  eval_run_print(self->manifest, stdout);
  return cli_output_flush();
}

static status tell_sha256(const eval_run *self) {
  char path[PATH_BYTES];
  if (self->engine.quiet || snprintf(path, sizeof path, "%s/manifest.json", self->folder) >= (int)sizeof path) return OK;
  return cli_engine_print_sha256(path);
}

static void name_folder(eval_run *self, eval_options *o) {
  struct tm parts;
  const time_t seconds = time(NULL);
  gmtime_r(&seconds, &parts);
  strftime(o->folder, sizeof o->folder, "eval-%Y%m%d-%H%M%S", &parts);
  self->folder = o->folder;
  if (!self->engine.quiet) fprintf(stderr, "results go to %s\n", o->folder);
}

static status eval_steps(eval_run *self, eval_options *o, int argc, char **argv) {
  TRY(parse_arguments(self, o, argc, argv));
  if (o->config.dump) return cli_config_dump(&o->config, stdout);
  if (o->uses_generation) TRY(cli_generation_read(self->engine.model_dir, &o->generation));
  self->generation = self->tasks.defaults = o->generation;
  for (uint32_t i = 0; i < o->task_count; i++) TRY(eval_tasks_add(&self->tasks, o->tasks[i]));
  TRY(cli_plan_cache_ensure(&self->engine, &o->config));
  if (!self->folder) name_folder(self, o);
  const cli_files_row files[] = {CLI_CONFIG_FILES(&o->config)};
  self->files = files;
  self->file_count = ARRAY_LEN(files);
  TRY(eval_run_all(self));
  if (self->is_interrupted) {
    fprintf(stderr, "verbatim: interrupted; hint: run the same command with --resume to continue\n");
    return OK;
  }
  TRY(show(self, o));
  TRY(tell_sha256(self));
  return self->failure.code == OK ? OK : fail_give(&self->failure);
}

int cli_eval(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    fputs(CLI_ENGINE_HELP, stdout);
    return 0;
  }
  eval_run self = {.tasks.limit = -1};
  eval_options options = {.format = "text", .words = calloc((size_t)argc, sizeof *options.words)};
  status result = options.words ? eval_steps(&self, &options, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  bool interrupted = self.is_interrupted;
  eval_run_close(&self);
  json_decref(options.generation);
  cli_config_close(&options.config);
  free(options.words);
  return result == OK && interrupted ? EXIT_INTERRUPTED : fail_exit_code(result);
}
