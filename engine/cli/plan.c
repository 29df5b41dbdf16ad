/* cli/plan.c - `verbatim plan`: reads a model folder's config.json and a deployment file, writes the plan.
 *
 * Owns the subcommand's arguments; planner/ makes all decisions. Nothing is written before the plan has been generated and checked, and the
 * file is written completely or not at all. Read next: common/plan_file.h, common/config.h, planner/planner.h. */
#include "cli/cli.h"
#include "base/base.h"
#include "base/whole_file.h"
#include "common/config.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/generation.h"
#include "common/hub.h"
#include "common/plan_file.h"
#include "common/stop_ids.h"
#include "planner/print.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HELP[] =
  "usage: verbatim plan MODEL_DIR -o FILE [--config FILE] [options]\n\n"
  "Makes a plan: every buffer, kernel and constant that the model and the limits below need. A model or\n"
  "limit that is not supported is refused by name, before anything is written.\n\n"
  "Examples:\n"
  "  verbatim plan MODEL_DIR -o my.plan --max-num-seqs 16 --max-model-len 8192\n"
  "  verbatim plan tests/tiny --config tests/tiny/deploy.yaml -o build/tiny.plan\n"
  "  verbatim plan MODEL_DIR --config deploy.yaml --dump-config\n\n"
  "  -o, --output FILE   the plan to write; an earlier plan is replaced\n"
  CLI_CONFIG_HELP
  "                      (the keys model and plan name the model folder and the plan to write)\n"
  "  --profile FILE      measurements of `verbatim probe`: library algorithms to pin, which the engine\n"
  "                      then requires; none: no library. Default: the shipped profile of the H200,\n"
  "                      whose algorithms the engine drops where it cannot use them\n"
  "  --force             replace FILE even if it is not a plan\n"
  "  --quiet             no summary\n\n"
  "Limits; each is also a key of the deployment file (max-num-seqs: 64):\n"
  "  --max-num-seqs N    sequences at once (64)\n"
  "  --max-num-batched-tokens N  token rows per step (2048)\n"
  "  --max-model-len N   tokens of a prompt and its answer (4096, or the model's)\n"
  "  --max-logit-rows N  logits rows per step (max-num-seqs)\n"
  "  --kv-pages N        KV pages of 64 tokens (enough for all sequences, or what fits)\n"
  "  --kv-memory-bytes B the same in bytes; sizes may be written as 140GiB\n"
  "  --device-memory-bytes B  memory of the GPU; the plan must fit in it (default: not checked). auto:\n"
  "                      what is free on the GPU now, less 1 GiB; on the CPU three quarters of the RAM\n"
  "  --gpu-memory-utilization X  share of device-memory-bytes that the plan may take (0.9)\n"
  "  --ladder N,N,...    row counts of captured decode graphs (1, 2, 4, ... max-num-seqs)\n"
  "  --tensor-parallel-size N  GPUs of one machine that share the model, a divisor of its heads; no bit\n"
  "                      depends on it (1)\n"
  "  --speculative-config JSON  guess tokens and check several at once; no bit depends on it (off):\n"
  "                      {\"method\": \"ngram\", \"num_speculative_tokens\": 4, \"prompt_lookup_min\": 3};\n"
  "                      \"mtp\": by the model's prediction layer, in its folder (1 token)\n"
  "  --exchange-transport WORD  between these GPUs: peer, into each other's memory; nccl, for GPUs that\n"
  "                      do not reach it (peer)\n"
  "  --divide-rows-from N  least rows of a step that they divide (512)\n"
  "  --attention-by-requests-from N  least tokens of a context, on average over a step that generates,\n"
  "                      from which each GPU attends for its share of the requests with all heads, not\n"
  "                      for all requests with its heads (never); latent attention only\n"
  "  --structured-outputs on|off  room for token masks, so that requests may ask for a regex or a JSON\n"
  "                      schema; no bit of another request depends on it (off)\n"
  "  --expand-tokens N   fast-prefill: context tokens expanded at a time (8 * max-model-len, or 256 *\n"
  "                      max-num-seqs if that is more; at most 65536). With a KV cache other than bf16:\n"
  "                      context tokens that a step dequantizes for prompts; longer ones are read as\n"
  "                      they are (65536, at least max-model-len; none for up to 32 heads)\n\n";

static const char NUMERICS_HELP[] =
  "Numerics; another value is another numerics id:\n"
  "  --parity WORD       strict; fast-prefill: prompts use another form of attention, with other bits\n"
  "                      (strict)\n"
  "  --kv-cache-dtype D  bf16; fp8: one scale per layer, from the model's files; fp8_ds_mla: scales in\n"
  "                      every row; auto: fp8_ds_mla for sparse models with e4m3 weights, else bf16.\n"
  "                      fp8 costs accuracy; the summary says how much\n"
  "  --kv-cache-scales KIND  of fp8_ds_mla: ue8m0, powers of two, or float32 (ue8m0)\n"
  "  --chunk-tokens N    tokens per attention chunk (256; with 64 heads and more 512; with 65 to 128\n"
  "                      heads over top-k lists of up to 2,048 tokens 2048); larger chunks are\n"
  "                      faster for many long requests and slower for few\n"
  "  --group-chunks N    chunks per group (2048 / chunk-tokens)\n"
  "  --latent-norm-eps hf|config  epsilon of the latent norms (hf)\n";

typedef struct plan_run {
  cli_config config;
  const char *model_dir, *profile, *output;
  const char **words; /* from argv: the model folder */
  char model_path[CLI_HUB_PATH_BYTES_MAX]; /* model_dir, if it was a name on the Hub */
  bool force, quiet;
} plan_run;

static status parse_arguments(plan_run *self, int argc, char **argv) {
  uint32_t count = 0;
  cli_option table[34] = {{"--output", cli_options_text, &self->output}, {"-o", cli_options_text, &self->output},
                          {"--profile", cli_options_text, &self->profile}, {"--force", NULL, &self->force},
                          {"--quiet", NULL, &self->quiet}};
  cli_config_options(&self->config, CLI_CONFIG_PLAN, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, self->words, &count));
  if (count > 1) return FAIL(ERR_USAGE, "expected one model folder, found also \"%s\"; hint: verbatim plan --help", self->words[1]);
  if (count == 1) self->model_dir = self->words[0];
  TRY(cli_config_apply(&self->config, table, argc, argv));
  cli_config_place(&self->config, "model", &self->model_dir);
  cli_config_place(&self->config, "plan", &self->output);
  if (self->config.dump) return OK;
  TRY(cli_hub_resolve(&self->model_dir, self->model_path));
  if (!self->model_dir) return FAIL(ERR_USAGE, "expected a model folder; hint: verbatim plan --help");
  if (!self->output) return FAIL(ERR_USAGE, "expected -o FILE; hint: verbatim plan --help");
  return OK;
}

static status check_output(const plan_run *self) {
  const cli_files_row files[] = {{CLI_FILES_WRITTEN, self->output, "the plan"}, CLI_CONFIG_FILES(&self->config),
                                 {CLI_FILES_MODEL, self->model_dir, "the model"}, {CLI_FILES_READ, self->profile, "the profile"}};
  TRY(cli_files_check(files, ARRAY_LEN(files)));
  return cli_plan_file_check(self->output, self->model_dir, self->force);
}

static status write_plan(const plan_run *self, const char *deploy, const cli_memory *memory) {
  const cli_plan_file_source source = {.model_dir = self->model_dir, .deploy = deploy, .profile = self->profile};
  void *plan = NULL;
  size_t bytes = 0;
  char stop_ids[CLI_STOP_IDS_BYTES], sampling[CLI_GENERATION_NOTE_BYTES];
  json_t *values = NULL;
  TRY(cli_stop_ids_note(self->model_dir, stop_ids));
  TRY(cli_generation_read(self->model_dir, &values));
  cli_generation_note(values, false, sampling);
  json_decref(values);
  TRY(cli_plan_file_make(&source, &plan, &bytes));
  status result = whole_file_write(self->output, plan, bytes);
  if (result == OK && !self->quiet) {
    print_summary(stdout, plan);
    print_notes(stdout, plan);
    if (*stop_ids) printf("  %s\n", stop_ids);
    if (*sampling) printf("  %s\n", sampling);
    if (memory->bytes) cli_memory_print(memory, stdout);
    printf("written        %s (%zu bytes)\n", self->output, bytes);
  }
  free(plan);
  return result;
}

static status make(plan_run *self) {
  const char *device = cli_config_value(&self->config, "device");
  cli_memory memory;
  char *deploy = NULL;
  TRY(check_output(self));
  if (device) TRY(cli_engine_device("device", device, &self->config.device));
  TRY(cli_config_deploy(&self->config, &memory, &deploy));
  status result = write_plan(self, deploy, &memory);
  free(deploy);
  return result;
}

int cli_plan(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    printf("%s%s", HELP, NUMERICS_HELP);
    return 0;
  }
  plan_run self = {.words = calloc((size_t)argc, sizeof(char *))};
  status result = self.words ? parse_arguments(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) result = self.config.dump ? cli_config_dump(&self.config, stdout) : make(&self);
  cli_config_close(&self.config);
  free(self.words);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  return fail_exit_code(result);
}
