/* cli/show.c - `verbatim show`: a plan in words.
 *
 * Owns the subcommand's arguments. plan.h validates the file's structure, planner/checks/check.h that it computes what it should, and
 * planner/print.h writes the text. */
#include "cli/cli.h"
#include "base/base.h"
#include "common/options.h"
#include "common/output.h"
#include "plan/plan.h"
#include "planner/checks/check.h"
#include "planner/print.h"
#include <stdio.h>
#include <stdlib.h>

static const char HELP[] =
  "usage: verbatim show PLAN [--memory] [--ops] [--json] [--check]\n\n"
  "Prints a plan: summary, memory map, exchanges between GPUs, graph sizes, kernels with their\n"
  "constants, guarantees, notes.\n\n"
  "Examples:\n"
  "  verbatim show my.plan\n"
  "  verbatim show my.plan --memory --ops\n"
  "  verbatim show my.plan --json | python3 -m json.tool\n\n"
  "  --memory    also the work buffers with their lifetimes, and a chart of them\n"
  "  --ops       also every op: rows, grid, buffers\n"
  "  --json      one JSON object instead\n"
  "  --check     verify the plan: bounds, lifetimes, grids, nothing read before it is written\n";

typedef struct show_options {
  const char *path;
  bool memory, ops, json, check;
} show_options;

static status read_options(int argc, char **argv, show_options *o) {
  const cli_option table[] = {{"--memory", NULL, &o->memory}, {"--ops", NULL, &o->ops}, {"--json", NULL, &o->json},
                              {"--check", NULL, &o->check}, {NULL, NULL, NULL}};
  const char **words = calloc((size_t)argc + 1, sizeof *words);
  uint32_t count = 0;
  if (!words) return FAIL(ERR_LIMIT, "no memory");
  status result = cli_options_parse(table, argc, argv, words, &count);
  if (result == OK && count > 1) result = FAIL(ERR_USAGE, "expected one plan, found also \"%s\"; hint: verbatim show --help", words[1]);
  if (result == OK && count == 0) result = FAIL(ERR_USAGE, "expected a plan; hint: verbatim show --help");
  if (result == OK) o->path = words[0];
  free(words);
  return result;
}

static void print(const show_options *o, const plan_header *header) {
  if (o->json) {
    print_json(stdout, header);
    return;
  }
  print_summary(stdout, header);
  print_regions(stdout, header);
  if (o->memory) print_memory(stdout, header);
  print_exchanges(stdout, header);
  print_kernels(stdout, header);
  if (o->ops) print_ops(stdout, header);
  print_guarantees(stdout, header);
}

static status show(const show_options *o) {
  plan view = {0};
  TRY(plan_open(&view, o->path));
  status result = o->check ? check_plan(view.header, view.header->file_bytes) : OK;
  if (result == OK) print(o, view.header);
  if (result == OK && o->check && !o->json) printf("\nChecked: the plan is valid\n");
  plan_close(&view);
  return result == OK ? cli_output_flush() : result;
}

int cli_show(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  show_options options = {.path = NULL};
  status result = read_options(argc, argv, &options);
  if (result == OK) result = show(&options);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  return fail_exit_code(result);
}
