/* main.c - the program `verbatim`: finds the subcommand and hands over. Read next: cli.h, cli/run.c. */
#include "cli/cli.h"
#include "base/base.h"
#include "verbatim.h"
#include "plan/format.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct { const char *name, *what; int (*run)(int argc, char **argv); } COMMANDS[] = {
  {"plan", "make a plan from a model directory and a deployment file", cli_plan},
  {"show", "tell what a plan holds: memory, kernels, guarantees", cli_show},
  {"run", "prompts in, tokens out, with a receipt", cli_run},
  {"score", "log-probabilities of given continuations and texts", cli_score},
  {"eval", "ask a model the items of task files, with scores and a manifest", cli_eval},
  {"replay", "run an evaluation again from its manifest, and compare", cli_replay},
  {"serve", "answer HTTP as OpenAI's API does", cli_serve},
  {"verify", "run the requests of a receipt again, and compare", cli_verify},
  {"diff", "where two runs part, by their receipts or traces", cli_diff},
  {"audit", "compute recorded rows of a trace again, op by op, and compare", cli_audit},
  {"bench", "measure how fast this machine runs a plan: ops, steps, start", cli_bench},
  {"doctor", "what this machine has and lacks for a plan, a model or a deployment", cli_doctor},
  {"digest", "the digest of a model's weights, tensor by tensor", cli_digest},
  {"calibrate", "measure the scales that an fp8 KV cache needs, and write them beside the model", cli_calibrate},
  {"probe", "measure which library algorithms of a GPU give our bits", cli_probe},
};

static void print_help(FILE *to) {
  fputs("usage: verbatim COMMAND ...   (verbatim COMMAND --help tells more)\n\n", to);
  for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++) fprintf(to, "  %-9s %s\n", COMMANDS[i].name, COMMANDS[i].what);
  fputs("  version   print the version\n  help      print this\n\n"
        "VERBATIM_LIBRARY_PATH: folders to search for the CUDA libraries first, separated by colons\n", to);
}

/* A file opened while a standard descriptor is closed would take its number, and be written what was meant for the terminal. The
 * descriptors are opened the wrong way round, so that using them is an error, as it was before. */
static void occupy_descriptors(void) {
  for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
    if (fcntl(i, F_GETFD) < 0 && open("/dev/null", i == STDIN_FILENO ? O_WRONLY : O_RDONLY) != i) abort();
}

static int run_command(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++)
    if (strcmp(name, COMMANDS[i].name) == 0) return COMMANDS[i].run(argc - 1, argv + 1);
  if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
    printf("verbatim %s, %s, plan format %u\n", VERBATIM_VERSION, NUMERICS_VERSION, PLAN_FORMAT_VERSION);
    return 0;
  }
  if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
    print_help(stdout);
    return 0;
  }
  if (*name) fprintf(stderr, "verbatim: no command \"%s\"\n", name);
  print_help(stderr);
  return 2;
}

int main(int argc, char **argv) {
  occupy_descriptors();
  int code = run_command(argc, argv);
  if (code != 0 || (fflush(stdout) == 0 && !ferror(stdout))) return code;
  fprintf(stderr, "verbatim: stdout: cannot be written: %s\n", strerror(errno));
  return fail_exit_code(ERR_IO);
}
