/* cli/plan.c - `verbatim plan`: reads a model folder's config.json and a deployment, writes the plan.
 *
 * Owns the arguments of the subcommand; everything that decides something is planner/. Nothing is written before the plan has been made and
 * checked, and the file appears whole or not at all. Read next: common/make.h, common/config.h, planner/planner.h. */
#include "cli/cli.h"
#include "base/base.h"
#include "common/config.h"
#include "common/files.h"
#include "common/make.h"
#include "planner/print.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HELP[] =
  "usage: verbatim plan MODEL_DIR -o FILE [--config FILE] [options]\n\n"
  "  -o FILE             the plan to write; an earlier plan is replaced\n"
  CLI_CONFIG_HELP
  "                      with the keys model and plan: the model folder, and the plan to write\n"
  "  --profile FILE      what `verbatim probe` measured: library algorithms to pin, which the engine then demands; none: no library\n"
  "                      without it: the shipped profile of the H200, whose algorithms the engine leaves out where it cannot use them\n"
  "  --force             replace FILE even if it is not a plan\n"
  "  --quiet             no summary\n\n"
  "What the plan is made for, as an option or as a key of the file (max-num-seqs: 64); in brackets what holds without it:\n"
  "  --max-num-seqs N (64), --max-num-batched-tokens N (2048), --max-model-len N (4096 or the model's), --max-logit-rows N (max-num-seqs)\n"
  "  --kv-pages N of 64 tokens, or --kv-memory-bytes B (enough for all sequences, or what fits)\n"
  "  --device-memory-bytes B (not checked), --gpu-memory-utilization X, a fraction of it (0.9); sizes may be written 140GiB\n"
  "  --ladder N,N,...: rows of captured decode graphs (1, 2, 4, ... max-num-seqs)\n"
  "  --tensor-parallel-size 1: a plan is of one GPU\n"
  "  --chunk-tokens N (256, of 64 heads and more 512, of 65 to 128 that read lists of up to 2,048 tokens 2048),\n"
  "     --group-chunks N (2048 / chunk-tokens), --latent-norm-eps hf or config (hf),\n"
  "  --parity strict, or fast-prefill: prompts attend in another form, with other bits (strict)\n"
  "  --kv-cache-dtype auto, bf16, fp8 (one scale a layer, of the model's files) or fp8_ds_mla (scales of their own in every row);\n"
  "     auto: fp8_ds_mla for sparse models with e4m3 weights, else bf16\n"
  "  --kv-cache-scales ue8m0, powers of two, or float32: of fp8_ds_mla (ue8m0)\n"
  "     these six are part of the numerics: another value is another numerics id\n"
  "  --expand-tokens N: fast-prefill: tokens of contexts expanded at a time (8 * max-model-len, or 256 * max-num-seqs if that is more;\n"
  "     at most 65536); with a KV cache of another format than bf16: tokens of contexts that a step widens for its prompts, longer ones\n"
  "     are read as they are (65536, at least max-model-len; none for up to 32 heads)\n";

typedef struct plan_run {
  cli_config config;
  const char *model_dir, *profile, *output;
  const char **words; /* of argv: the model folder */
  bool force, quiet;
} plan_run;

static status parse_arguments(plan_run *self, int argc, char **argv) {
  uint32_t count = 0;
  cli_option table[32] = {{"--output", cli_options_text, &self->output}, {"-o", cli_options_text, &self->output},
                          {"--profile", cli_options_text, &self->profile}, {"--force", NULL, &self->force},
                          {"--quiet", NULL, &self->quiet}};
  cli_config_options(&self->config, CLI_CONFIG_PLAN, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, self->words, &count));
  if (count > 1) return FAIL(ERR_USAGE, "%s: one model folder expected; hint: verbatim plan --help", self->words[1]);
  if (count == 1) self->model_dir = self->words[0];
  TRY(cli_config_apply(&self->config, table, argc, argv));
  cli_config_place(&self->config, "model", &self->model_dir);
  cli_config_place(&self->config, "plan", &self->output);
  if (self->config.dump) return OK;
  if (!self->model_dir) return FAIL(ERR_USAGE, "expected a model folder; hint: verbatim plan --help");
  if (!self->output) return FAIL(ERR_USAGE, "expected -o FILE; hint: verbatim plan --help");
  return OK;
}

static status check_output(const plan_run *self) {
  TRY(cli_files_check_output(self->output));
  TRY(cli_files_check_apart(self->output, self->config.path, "the deployment"));
  if (self->profile && strcmp(self->profile, "none") != 0) TRY(cli_files_check_apart(self->output, self->profile, "the profile"));
  return cli_make_check(self->output, self->model_dir, self->force);
}

static status make(const plan_run *self, const char *deploy) {
  const cli_make_source source = {.model_dir = self->model_dir, .deploy = deploy, .profile = self->profile};
  void *plan = NULL;
  size_t bytes = 0;
  TRY(check_output(self));
  TRY(cli_make_plan(&source, &plan, &bytes));
  status result = cli_make_write(self->output, plan, bytes);
  if (result == OK && !self->quiet) {
    print_summary(stdout, plan);
    printf("written        %s (%zu bytes)\n", self->output, bytes);
  }
  free(plan);
  return result;
}

int cli_plan(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  plan_run self = {.words = calloc((size_t)argc, sizeof(char *))};
  status result = self.words ? parse_arguments(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  char *deploy = result == OK ? cli_config_deploy(&self.config) : NULL;
  if (result == OK) result = self.config.dump ? cli_config_dump(&self.config, stdout) : make(&self, deploy);
  free(deploy);
  cli_config_close(&self.config);
  free(self.words);
  if (result != OK) fprintf(stderr, "verbatim: plan: %s\n", fail_text());
  return fail_exit_code(result);
}
