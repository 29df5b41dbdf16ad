/* schedule_fuzz.c - the schedule fuzzer's command line: options, progress and the report. Read next: README.md in this folder, fuzz.h. */
#include "engine/common/options.h"
#include "engine/base/clock.h"
#include "kernels_src/abi.h"
#include "fuzz.h"
#include "shrink.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKENS_MOST 170u /* three pages: requests that are admitted together outgrow small plans */

static const char HELP[] =
  "schedule_fuzz - random schedules; every request must end in the receipt that it has alone\n"
  "\n"
  "  schedule_fuzz [--seconds S] [--schedules N] [options]   random cases until the time or the number is reached\n"
  "  schedule_fuzz --case TEXT|FILE [options]                one case again, as a failing run prints it\n"
  "\n"
  "  --device cpu|gpu        where schedules run (default cpu)\n"
  "  --alone-device cpu|gpu  where requests run alone (default: as --device)\n"
  "  --seconds S             about so long (default 60, with --schedules: no limit)\n"
  "  --schedules N           at least so many; a case holds several, on one engine as a rule\n"
  "  --seed S                of all cases (default 1)\n"
  "  --jobs N                processes (default 1)\n"
  "  --per-case N            schedules of a case, 1 to 10 (default 2; 8 on a GPU, where engines are slow to open)\n"
  "  --requests N            most requests of a schedule, 2 to 16 (default 12)\n"
  "  --len N                 most tokens of a sequence, 128 to 1024 (default 384)\n"
  "  --ranks N               of every engine but those for requests alone, as far as its model can be divided (default: drawn; 1 on a\n"
  "                          GPU, where each rank takes one)\n"
  "  --threads N             most threads of an engine on the CPU (default 2)\n"
  "  --shrink-seconds S      for making a failing case smaller (default 60; 0: not at all)\n"
  "  --case-seconds S        longer, and a case counts as hanging (default 180)\n"
  "  --model-dir-cache DIR   models, made once, and compiled kernels (default: schedule_fuzz.models beside the program)\n"
  "  --shrink                with --case: makes it smaller\n"
  "  --json                  the report as JSON\n"
  "\n"
  "Run in the root of the repository. Exit code: 0, or 1 when a case fails or a witness is missing after 30 schedules or more; 2 and\n"
  "more: wrong usage, files, devices.\n";

typedef struct arguments {
  const char *device, *alone_device, *case_text, *folder;
  double seconds, shrink_seconds, case_seconds;
  uint64_t schedules, seed;
  uint32_t jobs, per_case, requests, len, threads, ranks;
  bool shrink, json;
} arguments;

/* === Options ================================================================================================================ */

static status parse(int argc, char **argv, arguments *a) {
  const cli_option options[] = {
    {"--device", cli_options_text, &a->device},       {"--alone-device", cli_options_text, &a->alone_device},
    {"--seconds", cli_options_real, &a->seconds},     {"--schedules", cli_options_u64, &a->schedules},
    {"--seed", cli_options_u64, &a->seed},            {"--jobs", cli_options_u32, &a->jobs},
    {"--per-case", cli_options_u32, &a->per_case},    {"--requests", cli_options_u32, &a->requests},
    {"--len", cli_options_u32, &a->len},              {"--threads", cli_options_u32, &a->threads},
    {"--case", cli_options_text, &a->case_text},      {"--model-dir-cache", cli_options_text, &a->folder},
    {"--shrink-seconds", cli_options_real, &a->shrink_seconds}, {"--case-seconds", cli_options_real, &a->case_seconds},
    {"--shrink", NULL, &a->shrink},                   {"--json", NULL, &a->json},
    {"--ranks", cli_options_u32, &a->ranks},
    {NULL, NULL, NULL}};
  const char **words = calloc((size_t)argc, sizeof *words);
  uint32_t word_count = 0;
  ASSERT(words);
  status result = cli_options_parse(options, argc, argv, words, &word_count);
  if (result == OK && word_count) result = FAIL(ERR_USAGE, "unexpected argument %s; hint: --help", words[0]);
  free(words);
  return result;
}

static status in_range(const char *name, uint32_t value, uint32_t low, uint32_t high) {
  return value >= low && value <= high ? OK : FAIL(ERR_USAGE, "%s: expected %u to %u, found %u", name, low, high, value);
}

static status device_of(const char *name, const char *text, int *device) {
  if (strcmp(text, "cpu") != 0 && strcmp(text, "gpu") != 0) return FAIL(ERR_USAGE, "%s: expected cpu or gpu, found \"%s\"", name, text);
  *device = strcmp(text, "gpu") == 0 ? 0 : VERBATIM_DEVICE_CPU;
  return OK;
}

static status resolve(arguments *a, const char *program, fuzz_options *o) {
  static char kernels[MODELS_PATH_MAX + 16];
  char folder[MODELS_PATH_MAX], tool[MODELS_PATH_MAX];
  const char *slash = strrchr(program, '/');
  int inner = slash ? (int)(slash - program) : 1;
  TRY(device_of("--device", a->device, &o->stage.device));
  TRY(device_of("--alone-device", a->alone_device ? a->alone_device : a->device, &o->stage.alone_device));
  if (a->per_case == 0) a->per_case = o->stage.device == VERBATIM_DEVICE_CPU ? 2 : 8;
  TRY(in_range("--per-case", a->per_case, 1, DRAW_SCHEDULES_MAX));
  TRY(in_range("--requests", a->requests, 2, 16));
  TRY(in_range("--len", a->len, 128, 1024));
  TRY(in_range("--threads", a->threads, 1, 16));
  TRY(in_range("--ranks", a->ranks, 0, RANKS_MAX));
  TRY(in_range("--jobs", a->jobs, 1, FUZZ_JOBS_MAX));
  snprintf(folder, sizeof folder, "%.*s/schedule_fuzz.models", inner, slash ? program : ".");
  snprintf(tool, sizeof tool, "%.*s/random_model", inner, slash ? program : ".");
  if (access(tool, X_OK) != 0) snprintf(tool, sizeof tool, "%.*s/../random_model", inner, slash ? program : "."); /* of a sanitizer build */
  TRY(models_open(&o->stage.models, a->folder ? a->folder : folder, tool));
  snprintf(kernels, sizeof kernels, "%s/kernels", o->stage.models.folder);
  o->stage.cache_dir = kernels;
  o->stage.program_path = getenv("PATH");
  o->limits = (draw_limits){.schedules = a->per_case, .requests = a->requests, .threads = a->threads, .len = a->len,
                            .tokens = TOKENS_MOST, .ranks = a->ranks};
  if (a->ranks == 0 && o->stage.device != VERBATIM_DEVICE_CPU) o->limits.ranks = 1;
  o->limits.models = draw_model_count(o->stage.device);
  o->seed = a->seed;
  o->schedules = a->schedules;
  o->seconds = a->seconds > 0 || a->schedules ? a->seconds : 60;
  o->jobs = a->jobs;
  o->case_seconds = a->case_seconds;
  o->shrink_seconds = a->shrink_seconds;
  return OK;
}

/* The text itself, or the content of the file of this name. */
static status read_case(const char *text, schedule_case *c) {
  static char bytes[CASE_TEXT_MAX];
  FILE *file = strchr(text, '=') ? NULL : fopen(text, "rb");
  if (!file) return case_parse(text, c);
  size_t count = fread(bytes, 1, sizeof bytes - 1, file);
  fclose(file);
  bytes[count] = 0;
  return case_parse(bytes, c);
}

/* === Report ================================================================================================================= */

static void show_progress(const run_counts *c, double seconds) {
  fprintf(stderr, "\r%.0f s: %" PRIu64 " schedules, %" PRIu64 " requests, %" PRIu64 " reused tokens, %" PRIu64 " preemptions  ", seconds,
          c->schedules, c->requests, c->engine.reused_tokens, c->engine.preemptions);
}

static json_t *counts_json(const run_counts *c) {
  const verbatim_counters *e = &c->engine;
  const struct {
    const char *name;
    uint64_t value;
  } rows[] = {{"cases", c->cases}, {"schedules", c->schedules}, {"requests", c->requests}, {"cut_requests", c->cut}, {"steps", e->steps},
              {"decode_steps", e->decode_steps}, {"mixed_steps", e->mixed_steps}, {"request_steps", e->request_steps},
               {"most_sequences", e->most_sequences},
              {"token_rows", e->token_rows}, {"reused_tokens", e->reused_tokens}, {"admissions", e->admissions},
              {"preemptions", e->preemptions}, {"drafted_tokens", e->drafted_tokens}, {"accepted_tokens", e->accepted_tokens},
              {"recomputed_tokens", e->recomputed_tokens}, {"evicted_pages", e->evicted_pages},
              {"cancellations", e->cancellations}, {"deadlines", e->deadlines}, {"restarts", c->restarts}, {"divided_engines", c->divided}};
  json_t *object = json_object();
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) json_object_set_new(object, rows[i].name, json_integer((json_int_t)rows[i].value));
  return object;
}

static void show_counts(const run_counts *c) {
  const char *key;
  json_t *object = counts_json(c), *value;
  json_object_foreach(object, key, value) printf("  %-18s %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(value));
  json_decref(object);
}

static void write_command(const arguments *a, const char *program, const schedule_case *c, char *text) {
  int used = snprintf(text, CASE_TEXT_MAX, "%s --device %s%s%s%s%s --case '", program, a->device, a->alone_device ? " --alone-device " : "",
                      a->alone_device ? a->alone_device : "", a->folder ? " --model-dir-cache " : "", a->folder ? a->folder : "");
  case_print(c, text + used); /* twice the room */
  strcat(text, "'");
}

static void show_json(const arguments *a, const fuzz_report *r, const char *failure, const char *missing, const char *command) {
  json_t *object = json_pack("{s:s,s:I,s:f,s:o,s:b,s:s?,s:s?}", "device", a->device, "seed", (json_int_t)a->seed, "seconds", r->seconds,
                             "counts", counts_json(&r->counts), "failed", r->failed || missing, "missing_witness", missing, "failure",
                             r->failed ? failure : NULL);
  if (r->failed) json_object_set_new(object, "replay", json_string(command));
  if (r->failed) json_object_set_new(object, "repeats", json_boolean(r->repeats));
  json_dumpf(object, stdout, JSON_COMPACT);
  printf("\n");
  json_decref(object);
}

/* Returns the exit code. */
static int show(const arguments *a, const char *program, const fuzz_report *r, const draw_limits *limits, bool is_long) {
  static char command[2 * CASE_TEXT_MAX], failure[FAIL_TEXT_MAX + 64];
  const char *missing = is_long && !r->failed ? fuzz_missing(&r->counts, limits) : NULL;
  if (r->failed) {
    trial_text(&r->result, failure, sizeof failure);
    write_command(a, program, &r->smallest, command);
  }
  if (a->json) {
    show_json(a, r, failure, missing, command);
  } else {
    printf("%s, seed %" PRIu64 ", %.1f s, %.0f schedules and %.0f requests a minute\n", a->device, a->seed, r->seconds,
           (double)r->counts.schedules * 60 / r->seconds, (double)r->counts.requests * 60 / r->seconds);
    show_counts(&r->counts);
    if (r->failed) printf("FAILED: %s\n", failure);
    if (r->failed && !r->repeats) printf("This case does not fail by itself; hint: again with the same --seed and --jobs 1\n");
    if (r->failed) printf("%s (%u tried); again with:\n%s\n", r->tried ? "The smallest case found" : "The case", r->tried, command);
    else if (missing) printf("FAILED: never seen: %s\n", missing);
    else printf("Every receipt is the one of the request alone.\n");
  }
  return r->failed || missing;
}

/* === Running ================================================================================================================ */

static status play_one(const arguments *a, const fuzz_options *o, fuzz_report *r) {
  double begun = clock_seconds();
  TRY(read_case(a->case_text, &r->smallest));
  TRY(trial_run(&o->stage, &r->smallest, o->case_seconds, false, &r->result));
  r->counts = r->result.counts;
  r->seconds = clock_seconds() - begun;
  if (r->result.end == TRIAL_ERROR) return FAIL(ERR_USAGE, "%s", r->result.error);
  r->failed = r->repeats = trial_fails(&r->result);
  if (!r->failed || !a->shrink) return OK;
  return shrink_case(&o->stage, &r->smallest, &r->result, o->shrink_seconds, o->case_seconds, &r->tried);
}

int main(int argc, char **argv) {
  static fuzz_report report;
  fuzz_options options = {0};
  arguments a = {.device = "cpu", .seed = 1, .jobs = 1, .requests = 12, .len = 384, .threads = 2, .shrink_seconds = 60,
                 .case_seconds = 180};
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  status result = parse(argc, argv, &a);
  if (result == OK) result = resolve(&a, argv[0], &options);
  if (result == OK && isatty(STDERR_FILENO)) options.on_progress = show_progress;
  if (result == OK) result = a.case_text ? play_one(&a, &options, &report) : fuzz_run(&options, &report);
  if (options.on_progress) fprintf(stderr, "\r%78s\r", "");
  if (result == OK) return show(&a, argv[0], &report, &options.limits, !a.case_text && report.counts.schedules >= FUZZ_WITNESS_SCHEDULES);
  fprintf(stderr, "schedule_fuzz: %s\n", fail_text());
  return fail_exit_code(result);
}
