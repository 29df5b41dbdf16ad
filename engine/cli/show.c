/* cli/show.c - `verbatim show`: a plan in words.
 *
 * Owns the subcommand's arguments. plan.h validates the file's structure, planner/checks/check.h that it computes what it should, and
 * planner/print.h writes the text. */
#include "cli/cli.h"
#include "base/base.h"
#include "common/output.h"
#include "plan/plan.h"
#include "planner/checks/check.h"
#include "planner/print.h"
#include <stdio.h>
#include <string.h>

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
  bool memory, ops, json, check, help;
} show_options;

static status read_options(int argc, char **argv, show_options *o) {
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) o->help = true;
    else if (strcmp(word, "--memory") == 0) o->memory = true;
    else if (strcmp(word, "--ops") == 0) o->ops = true;
    else if (strcmp(word, "--json") == 0) o->json = true;
    else if (strcmp(word, "--check") == 0) o->check = true;
    else if (word[0] == '-') return FAIL(ERR_USAGE, "unknown option %s; hint: verbatim show --help", word);
    else if (o->path) return FAIL(ERR_USAGE, "expected one plan, found also \"%s\"; hint: verbatim show --help", word);
    else o->path = word;
  }
  if (!o->path && !o->help) return FAIL(ERR_USAGE, "expected a plan; hint: verbatim show --help");
  return OK;
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
  show_options options = {0};
  status result = read_options(argc, argv, &options);
  if (result == OK && options.help) {
    fputs(HELP, stdout);
    return 0;
  }
  if (result == OK) result = show(&options);
  if (result != OK) fprintf(stderr, "verbatim: show: %s\n", fail_text());
  return fail_exit_code(result);
}
