/* main.c - the program `verbatim`: finds the subcommand and hands over. Read next: cli.h, cli/run.c. */
#include "cli/cli.h"
#include "base/base.h"
#include "base/spelling.h"
#include "common/output.h"
#include "verbatim.h"
#include "plan/format.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct command {
  const char *name, *what;
  int (*run)(int argc, char **argv);
} command;

static const command USE[] = {
  {"plan", "make a plan from a model folder and a deployment file", cli_plan},
  {"run", "generate text from prompts, with a receipt", cli_run},
  {"chat", "talk with a model in the terminal", cli_chat},
  {"serve", "serve OpenAI's HTTP API", cli_serve},
  {"score", "log-probabilities of given continuations and texts", cli_score},
  {"eval", "run the items of task files: scores, intervals, flip risk, a manifest", cli_eval},
  {"import", "tasks and logs of lm-evaluation-harness and inspect-ai to those of `eval`", cli_import},
};

static const command PROVE[] = {
  {"verify", "replay the requests of a receipt, and compare", cli_verify},
  {"replay", "repeat an evaluation from its manifest, and compare", cli_replay},
  {"replay-log", "repeat the requests of a server's log, and compare", cli_replay_log},
  {"rescore", "score the saved answers of an evaluation again, without a model", cli_rescore},
  {"compare", "two evaluations of the same items: differences, intervals, flips", cli_compare},
  {"diff", "the first difference between two receipts or traces", cli_diff},
  {"audit", "recompute recorded rows of a trace on the CPU, op by op, and compare", cli_audit},
  {"digest", "the digest of a model's weights, tensor by tensor", cli_digest},
};

static const command LOOK_INSIDE[] = {
  {"show", "print a plan: memory, kernels, guarantees", cli_show},
  {"bench", "measure how fast this machine runs a plan: ops, steps, start", cli_bench},
  {"probe", "measure which library algorithms of a GPU give our bits", cli_probe},
};

static const command SET_UP[] = {
  {"doctor", "check this machine for a plan, a model or a deployment", cli_doctor},
  {"calibrate", "measure the scales of an fp8 KV cache, and write them beside the model", cli_calibrate},
};

static const struct { const char *title; const command *commands; size_t count; } GROUPS[] = {
  {"Use", USE, ARRAY_LEN(USE)},
  {"Prove", PROVE, ARRAY_LEN(PROVE)},
  {"Look inside", LOOK_INSIDE, ARRAY_LEN(LOOK_INSIDE)},
  {"Set up", SET_UP, ARRAY_LEN(SET_UP)},
};

static void print_help(FILE *to) {
  fputs("usage: verbatim COMMAND ...\n\n"
        "`verbatim COMMAND --help` describes a command, with examples.\n", to);
  for (size_t i = 0; i < ARRAY_LEN(GROUPS); i++) {
    fprintf(to, "\n%s:\n", GROUPS[i].title);
    for (size_t j = 0; j < GROUPS[i].count; j++) fprintf(to, "  %-10s %s\n", GROUPS[i].commands[j].name, GROUPS[i].commands[j].what);
  }
  fputs("\n  version    print the version; --verbose: also of the libraries in the program\n  help       print this\n\n"
        "VERBATIM_LIBRARY_PATH: folders to search first for the CUDA libraries, separated by colons\n", to);
}

/* A file opened while a standard descriptor is closed would get its number, and text meant for the terminal would be written into it.
 * Closed descriptors are therefore opened in the opposite direction, so that using them is still an error. */
static void occupy_descriptors(void) {
  for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
    if (fcntl(i, F_GETFD) < 0 && open("/dev/null", i == STDIN_FILENO ? O_WRONLY : O_RDONLY) != i) abort();
}

static int refuse_command(const char *name) {
  spelling_search search = spelling_begin(name, UINT32_MAX);
  for (size_t i = 0; i < ARRAY_LEN(GROUPS); i++)
    for (const command *c = GROUPS[i].commands; c < GROUPS[i].commands + GROUPS[i].count; c++) spelling_try(&search, c->name);
  spelling_try(&search, "version");
  spelling_try(&search, "help");
  fprintf(stderr, "verbatim: unknown command \"");
  cli_output_plain(stderr, name);
  fprintf(stderr, "\"; hint: the nearest is %s; `verbatim help` lists all\n", search.nearest);
  return 2;
}

static int run_command(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  for (size_t i = 0; i < ARRAY_LEN(GROUPS); i++)
    for (const command *c = GROUPS[i].commands; c < GROUPS[i].commands + GROUPS[i].count; c++)
      if (strcmp(name, c->name) == 0) return c->run(argc - 1, argv + 1);
  if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) return cli_version(argc - 1, argv + 1);
  if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
    print_help(stdout);
    return 0;
  }
  if (*name) return refuse_command(name);
  print_help(stderr);
  return 2;
}

int main(int argc, char **argv) {
  occupy_descriptors();
  signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of the write, as a full disk is */
  int code = run_command(argc, argv);
  if (code != 0 || (fflush(stdout) == 0 && !ferror(stdout))) return code;
  fprintf(stderr, "verbatim: stdout: cannot be written: %s\n", strerror(errno));
  return fail_exit_code(ERR_IO);
}
