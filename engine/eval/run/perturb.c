/* eval/run/perturb.c - see eval/run/perturb.h. Reconstructs the base plan's deployment file from the plan. */
#include "eval/run/perturb.h"
#include "common/files.h"
#include "plan/plan.h"
#include "base/input_file.h"
#include "base/special_file.h"
#include "base/whole_file.h"
#include "planner/planner.h"
#include "planner/profile_shipped.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES_MAX 4096
#define DEPLOY_BYTES_MAX 1024u
#define WORD_BYTES_MAX 64u
#define LATENT_EPS_OF_HF 1e-6f

static const char *const KEYS[] = {"chunk-tokens", "group-chunks", "parity", "latent-norm-eps", "kv-cache-dtype",
                                   "kv-cache-scales"};

status eval_perturb_read(const char *path, eval_perturb_ids *out) {
  plan view;
  TRY(plan_open(&view, path));
  memcpy(out->numerics_id, view.header->numerics_id, DIGEST_BYTES);
  memcpy(out->config_digest, view.header->config_digest, DIGEST_BYTES);
  memcpy(out->plan_digest, view.header->digest, DIGEST_BYTES);
  out->max_len = view.header->limits.max_len;
  plan_close(&view);
  return OK;
}

/* The value after "key="; "_" and "-" are the same in the key. NULL: the word has another key. */
static const char *value_of(const char *word, const char *key) {
  while (*key && (*word == *key || (*word == '_' && *key == '-'))) word++, key++;
  return *key == 0 && *word == '=' ? word + 1 : NULL;
}

bool eval_perturb_is_key(const char *word) {
  for (size_t i = 0; i < ARRAY_LEN(KEYS); i++)
    if (value_of(word, KEYS[i])) return true;
  return false;
}

static void put(char *text, const char *word, const char *key, const char *value) {
  size_t used = strlen(text);
  const char *other = value_of(word, key);
  snprintf(text + used, DEPLOY_BYTES_MAX - used, "%s: %s\n", key, other ? other : value);
}

static void put_count(char *text, const char *word, const char *key, uint32_t value) {
  char number[16];
  snprintf(number, sizeof number, "%u", value);
  put(text, word, key, number);
}

/* Names the scales only for a format that has them: the planner refuses them otherwise. */
static void put_formats(char *text, const char *word, const plan_quant *q) {
  static const char *const NAMES[] = {[KV_BF16] = "bf16", [KV_FP8_DS_MLA] = "fp8_ds_mla", [KV_FP8] = "fp8"};
  put(text, word, "kv-cache-dtype", NAMES[q->kv_format]);
  if (value_of(word, "kv-cache-scales") || (q->kv_format == KV_FP8_DS_MLA && !value_of(word, "kv-cache-dtype")))
    put(text, word, "kv-cache-scales", q->kv_scale == SCALE_F32 ? "float32" : "ue8m0");
}

static status describe(const char *base, const char *word, char *text) {
  plan view;
  TRY(plan_open(&view, base));
  const plan_limits *l = &view.header->limits;
  const plan_model *m = &view.header->model;
  *text = 0;
  put_count(text, word, "max-num-seqs", l->max_seqs);
  put_count(text, word, "max-num-batched-tokens", l->max_batch_tokens);
  put_count(text, word, "max-model-len", l->max_len);
  put_count(text, word, "max-logit-rows", l->max_logit_rows);
  put_count(text, word, "kv-pages", l->kv_pages);
  put_count(text, word, "chunk-tokens", l->chunk_tokens);
  put_count(text, word, "group-chunks", l->group_chunks);
  put(text, word, "parity", l->parity == PARITY_FAST_PREFILL ? "fast-prefill" : "strict");
  put(text, word, "latent-norm-eps", m->latent_eps != LATENT_EPS_OF_HF && m->latent_eps == m->norm_eps ? "config" : "hf");
  put_formats(text, word, &view.header->quant);
  plan_close(&view);
  return OK;
}

status eval_perturb_make(const char *base, const char *model_dir, const char *word, const char *path) {
  char deploy[DEPLOY_BYTES_MAX], config_path[PATH_BYTES_MAX], *config = NULL;
  size_t config_bytes = 0, bytes = 0;
  void *plan_bytes = NULL;
  if (strlen(word) > WORD_BYTES_MAX || strpbrk(word, "\r\n#")) /* it becomes a line of a deployment file, and may come from an untrusted
                                                                * manifest */
    return FAIL(ERR_USAGE, "--perturb %.40s: expected KEY=VALUE on one line, of at most %u bytes", word, WORD_BYTES_MAX);
  TRY(describe(base, word, deploy));
  if (snprintf(config_path, sizeof config_path, "%s/config.json", model_dir) >= PATH_BYTES_MAX)
    return FAIL(ERR_USAGE, "%s: the path is too long", model_dir);
  TRY(input_file_check(config_path, INPUT_CONFIG));
  TRY(cli_files_read_config(config_path, INPUT_CONFIG, &config, &config_bytes));
  const planner_input input = {.config = {config, config_bytes}, .deploy = {deploy, strlen(deploy)},
                               .profile = {profile_shipped[0].text, strlen(profile_shipped[0].text)}, .shipped = profile_shipped[0].name};
  status result = planner_make(&input, &plan_bytes, &bytes);
  if (result != OK) fail_prefix(word);
  if (result == OK) result = whole_file_write(path, plan_bytes, bytes);
  free(plan_bytes);
  free(config);
  return result;
}
