/* cli/bench.c - `verbatim bench`: how fast this machine runs a plan.
 *
 * Owns the subcommand's arguments. bench.h decides what is measured, cli/bench_report.h how it is written. */
#include "cli/cli.h"
#include "bench/bench.h"
#include "cli/bench_report.h"
#include "cli/bench_tax.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/options.h"
#include "common/output.h"
#include "base/clock.h"
#include "base/limits.h"
#include "planner/checks/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_PATH_BYTES 4096u

static const char HELP[] =
  "usage: verbatim bench PLAN [options]\n\n"
  "Measures every op of a plan alone, whole decode steps, prompts, and the start, with random weights:\n"
  "no model is needed. Prints a table.\n\n"
  "Examples:\n"
  "  verbatim bench my.plan\n"
  "  verbatim bench my.plan --no-ops --context 1024 --json figures.json\n"
  "  verbatim bench my.plan --op mla_attn --rows 1,16,64 --context 8192\n\n"
  "  --json FILE         write all results as JSON\n"
  "  --roofline FILE     draw the ops (SVG): FLOPs per byte against speed, under the machine's limits\n"
  "  --op NAME[,NAME]    only ops whose name, without its layer, is NAME or begins with that word; no\n"
  "                      steps\n"
  "  --no-ops            only whole steps and prompts\n"
  "  --graph-us N        time an op's launches in graphs of at least N us (64 launches, or 4000 us if\n"
  "                      that is less): to compare with times from graphs of that length\n"
  "  --tax PROFILE       whole steps twice: as planned, and with the fastest products of the profile,\n"
  "                      whatever their bits\n"
  "  --rows N[,N]        rows of the ops (1,8,16,32,64, max-num-batched-tokens): up to max-num-seqs\n"
  "                      they are decoding sequences, beyond it prompt tokens\n"
  "  --context N[,N]     tokens of each sequence (ops 1024,8192; steps 128,1024); sizes that do not fit\n"
  "                      the KV pages are left out\n"
  "  --prompt N[,N]      tokens of prompts, one at a time (512, 8192, and 16 prompts of 512); sizes\n"
  "                      that do not fit the KV pages are left out\n"
  "  --acceptance X[,X]  share of right drafts, by their place, in tokens/s of a plan with speculation\n"
  "                      (0.83,0.72,0.65); \"16+3\" is 16 sequences with 3 drafts each\n"
  "  --gb-per-s X        memory bandwidth for the floors (4300 on a GPU; none on a CPU)\n"
  "  --tflop-per-s X     bf16 speed for the floors, e4m3 being twice as fast (790 on a GPU; none on a\n"
  "                      CPU)\n"
  "  --link-gb-per-s X   bandwidth from one GPU to the others, one way, for the floors of\n"
  "                      exchanges (450 on a GPU: NVLink 4; none on a CPU)\n"
  "  --device D          gpu, gpu:N, or cpu with few repetitions (gpu)\n"
  "  --threads N         CPU threads (all cores)\n"
  "  --cache-dir DIR     folder of compiled kernels (default: the user's cache folder); \"\" for none\n"
  "  --quiet             no progress messages\n\n"
  "An op's time is that of all its instances over the layers in one graph, the median of 31 replays.\n"
  "Its floor is the least time for the bytes it must move and for its FLOPs, counting the experts that\n"
  "the step's tokens use. A step's floor counts weights, KV rows and what its GPU sends. With several\n"
  "GPUs all figures are of one of them; the bytes of an exchange are those that it sends, and next to\n"
  "it is the time of NCCL's all-gather of as many, without multicast, where NCCL is installed.\n";

typedef struct bench_command {
  bench_options options;
  const char *plan_path, *json_path, *roofline_path, *tax_path, *cache_dir;
  bool quiet;
  plan plan;
  bench *bench;
  char cache_path[CACHE_PATH_BYTES];
} bench_command;

/* === Arguments ============================================================================================================== */

static status take_list(const char *name, const char *value, void *target) {
  bench_list *list = target;
  list->count = 0;
  for (const char *at = value, *end; at; at = *end ? end + 1 : NULL) {
    uint32_t last;
    end = at + strcspn(at, ",");
    if (list->count == BENCH_LIST_MAX) return FAIL(ERR_USAGE, "%s: expected at most %u numbers, found \"%s\"", name, BENCH_LIST_MAX, value);
    uint32_t *number = &list->values[list->count++];
    TRY(cli_options_range(name, at, (size_t)(end - at), BATCH_TOKENS_MAX > LENGTH_MAX ? BATCH_TOKENS_MAX : LENGTH_MAX, number, &last));
    if (*number == 0 || last != *number) return FAIL(ERR_USAGE, "%s: expected numbers of 1 or more, found \"%s\"", name, value);
  }
  return OK;
}

static status take_rate(const char *name, const char *value, void *target) {
  double *rate = target;
  TRY(cli_options_real(name, value, rate));
  return *rate > 0 && *rate < 1e12 ? OK : FAIL(ERR_USAGE, "%s: expected a number above 0, found \"%s\"", name, value);
}

static status take_shares(const char *name, const char *value, void *target) {
  bench_options *o = target;
  o->acceptance_count = 0;
  for (const char *at = value; *at;) {
    char *end = NULL;
    const double share = strtod(at, &end);
    if (end == at || (*end && *end != ',') || !(share >= 0 && share <= 1) || o->acceptance_count == BENCH_LIST_MAX)
      return FAIL(ERR_USAGE, "%s: expected up to %u numbers of 0 to 1 such as 0.8,0.7, found \"%s\"", name, BENCH_LIST_MAX, value);
    o->acceptance[o->acceptance_count++] = share;
    at = *end ? end + 1 : end;
  }
  return o->acceptance_count ? OK : FAIL(ERR_USAGE, "%s: expected numbers such as 0.8,0.7, found none", name);
}

static status read_arguments(bench_command *self, int argc, char **argv) {
  bench_options *o = &self->options;
  double gb_per_s = 0, tflop_per_s = 0, link_gb_per_s = 0;
  const cli_option table[] = {{"--json", cli_options_text, &self->json_path}, {"--roofline", cli_options_text, &self->roofline_path},
                              {"--op", cli_options_text, &o->op},             {"--no-ops", NULL, &o->no_ops},
                              {"--graph-us", cli_options_u32, &o->graph_us},
                              {"--rows", take_list, &o->rows},                {"--context", take_list, &o->contexts},
                              {"--prompt", take_list, &o->prompts},           {"--acceptance", take_shares, o},
                              {"--gb-per-s", take_rate, &gb_per_s},           {"--tflop-per-s", take_rate, &tflop_per_s},
                              {"--device", cli_engine_device, &o->device},          {"--threads", cli_options_u32, &o->threads},
                              {"--cache-dir", cli_options_text, &self->cache_dir}, {"--tax", cli_options_text, &self->tax_path},
                              {"--link-gb-per-s", take_rate, &link_gb_per_s},      {"--quiet", NULL, &self->quiet}, {0}};
  const char **words = calloc((size_t)argc, sizeof *words);
  uint32_t count = 0;
  TRY(take_shares("--acceptance", "0.83,0.72,0.65", o));
  if (!words) return FAIL(ERR_LIMIT, "bench: no memory");
  status result = cli_options_parse(table, argc, argv, words, &count);
  if (result == OK && count != 1) result = FAIL(ERR_USAGE, "bench: expected PLAN, found %u word%s; hint: verbatim bench --help",
                                                count, CLI_OPTIONS_PLURAL(count));
  if (result == OK) self->plan_path = words[0];
  free(words);
  TRY(result);
  if (self->tax_path && (o->op || self->roofline_path)) return FAIL(ERR_USAGE, "bench: --tax measures no ops for --op and --roofline");
  if (o->no_ops && (o->op || self->roofline_path)) return FAIL(ERR_USAGE, "bench: --no-ops leaves nothing for --op and --roofline");
  if (o->no_ops && o->graph_us) return FAIL(ERR_USAGE, "bench: --no-ops leaves nothing for --graph-us");
  if (o->graph_us > BENCH_GRAPH_US_MAX)
    return FAIL(ERR_USAGE, "--graph-us: expected at most %u, found %u", BENCH_GRAPH_US_MAX, o->graph_us);
  if (o->op && o->prompts.count) return FAIL(ERR_USAGE, "bench: --op measures no prompts for --prompt");
  o->rates = (bench_rates){.bytes = gb_per_s * 1e9, .flops = tflop_per_s * 1e12, .link_bytes = link_gb_per_s * 1e9};
  return OK;
}

/* === Run ==================================================================================================================== */

static void on_progress(void *context, const char *what) {
  const bench_command *self = context;
  if (!self->quiet) fprintf(stderr, "bench: %s\n", what);
}

static status run(bench_command *self) {
  const cli_files_row files[] = {{CLI_FILES_READ, self->plan_path, "the plan"}, {CLI_FILES_READ, self->tax_path, "the profile"},
                                 {CLI_FILES_WRITTEN, self->json_path, "the figures"},
                                 {CLI_FILES_WRITTEN, self->roofline_path, "the page"}};
  TRY(cli_files_check(files, ARRAY_LEN(files)));
  double from = clock_seconds();
  TRY(plan_open(&self->plan, self->plan_path));
  TRY(check_plan(self->plan.memory, (size_t)self->plan.header->file_bytes));
  bench_options *o = &self->options;
  o->plan = &self->plan;
  o->plan_seconds = clock_seconds() - from;
  o->cache_dir = cli_files_cache(self->cache_dir, self->cache_path, sizeof self->cache_path);
  o->library_path = getenv("VERBATIM_LIBRARY_PATH");
  o->program_path = getenv("PATH");
  o->on_progress = on_progress;
  o->context = self;
  if (self->tax_path) return cli_bench_tax_run(o, self->tax_path, self->json_path);
  TRY(bench_open(&self->bench, o));
  const cli_bench_report report = {.plan = &self->plan, .results = bench_results(self->bench)};
  cli_bench_report_print(&report);
  if (self->json_path) TRY(cli_bench_report_json(&report, self->json_path));
  if (self->roofline_path) TRY(cli_bench_report_roofline(&report, self->roofline_path));
  return cli_output_flush();
}

int cli_bench(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  bench_command self = {.options.device = VERBATIM_DEVICE_AUTO};
  status result = read_arguments(&self, argc, argv);
  if (result == OK) result = run(&self);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  bench_close(self.bench);
  plan_close(&self.plan);
  return fail_exit_code(result);
}
