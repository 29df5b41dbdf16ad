/* models.c - see models.h. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "models.h"
#include "planner/planner.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define VARIATIONS_TRIED 20u

static status write_path(char path[MODELS_PATH_MAX], const char *format, ...) __attribute__((format(printf, 2, 3)));
static status write_path(char path[MODELS_PATH_MAX], const char *format, ...) {
  va_list args;
  va_start(args, format);
  int bytes = vsnprintf(path, MODELS_PATH_MAX, format, args);
  va_end(args);
  return bytes >= 0 && bytes < (int)MODELS_PATH_MAX ? OK : FAIL(ERR_LIMIT, "path too long: %.200s", path);
}

static status make_folder(const char *path) {
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return OK;
  return FAIL(ERR_IO, "%s: cannot be made: %s", path, strerror(errno));
}

status models_open(models *self, const char *folder, const char *tool) {
  TRY(write_path(self->folder, "%s", folder));
  TRY(write_path(self->tool, "%s", tool));
  if (access(self->tool, X_OK) != 0) return FAIL(ERR_IO, "%s: not a program that can be run; hint: ninja", self->tool);
  return make_folder(self->folder);
}

/* === Sizes ================================================================================================================== */

static uint64_t scramble(uint64_t z) {
  z = (z + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/* Replaces an existing number. */
static void set(json_t *config, const char *key, json_int_t value) {
  if (json_is_integer(json_object_get(config, key))) json_object_set_new(config, key, json_integer(value));
}

/* Small values: the test is of schedules, and a step's time goes into the weights. */
static void vary(json_t *config, uint64_t seed) {
  static const int hidden[] = {128, 128, 192, 64}, heads[] = {2, 6, 4, 8}, inter[] = {64, 128, 192, 256};
  uint64_t r = scramble(seed);
  json_int_t layers = 1 + (json_int_t)(r >> 8) % 2, head_count = heads[r >> 12 & 3], experts = r >> 16 & 1 ? 16 : 8;
  if (json_integer_value(json_object_get(config, "num_attention_heads")) > 64) head_count = 66 + 3 * head_count; /* its purpose */
  set(config, "hidden_size", hidden[r & 3]);
  set(config, "num_hidden_layers", layers);
  set(config, "first_k_dense_replace", (json_int_t)(r >> 24) % layers);
  set(config, "num_attention_heads", head_count);
  set(config, "num_key_value_heads", json_object_get(config, "kv_lora_rank") ? head_count : head_count / (1 + (json_int_t)(r >> 44) % 2));
  if (!json_object_get(config, "index_topk")) set(config, "kv_lora_rank", 256); /* the format of their cache supports only 512 */
  set(config, "q_lora_rank", r >> 32 & 1 ? 64 : 128);
  set(config, "intermediate_size", inter[r >> 36 & 3]);
  set(config, "n_routed_experts", experts);
  set(config, "num_experts_per_tok", 1 + (json_int_t)(r >> 40) % 3);
}

static const char DEPLOY[] = "max-num-seqs: 1\nmax-model-len: 512\n";

static bool can_be_planned(const char *text) {
  planner_input input = {.config = {text, strlen(text)}};
  void *plan = NULL;
  size_t bytes;
  input.deploy = (planner_text){DEPLOY, sizeof DEPLOY - 1};
  bool is_good = planner_make(&input, &plan, &bytes) == OK;
  fail_clear();
  free(plan);
  return is_good;
}

/* The first variation that the planner accepts, otherwise the configuration unchanged. */
static status make_config(const schedule_case *c, char **text) {
  char path[MODELS_PATH_MAX];
  json_error_t error;
  TRY(write_path(path, "tests/oracle/%s.json", c->model));
  json_t *plain = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (!plain) return FAIL(ERR_IO, "%s: %s; hint: run in the root of the repository", path, error.text);
  *text = NULL;
  if (json_object_get(plain, "num_nextn_predict_layers")) set(plain, "num_nextn_predict_layers", 1);
  for (uint32_t i = 0; i < VARIATIONS_TRIED && c->vary && !*text; i++) {
    json_t *varied = json_deep_copy(plain);
    vary(varied, (uint64_t)c->vary * VARIATIONS_TRIED + i);
    *text = json_dumps(varied, JSON_INDENT(1));
    if (!can_be_planned(*text)) free(*text), *text = NULL;
    json_decref(varied);
  }
  if (!*text) *text = json_dumps(plain, JSON_INDENT(1));
  json_decref(plain);
  return OK;
}

/* === Files ================================================================================================================== */

static status write_file(const char *path, const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  if (!file) return FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
  bool is_written = fwrite(bytes, 1, count, file) == count;
  if (fclose(file) != 0 || !is_written) return FAIL(ERR_IO, "%s: could not be written completely", path);
  return OK;
}

static status run_tool(const models *self, const char *config_path, const char *dir, int64_t seed) {
  char seed_text[32];
  int state = 0;
  snprintf(seed_text, sizeof seed_text, "%" PRId64, seed);
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) return FAIL(ERR_IO, "fork: %s", strerror(errno));
  if (child == 0) {
    execl(self->tool, self->tool, config_path, dir, "--seed", seed_text, "--vocab-tokenizer", (char *)NULL);
    _exit(127);
  }
  if (waitpid(child, &state, 0) != child || !WIFEXITED(state) || WEXITSTATUS(state) != 0)
    return FAIL(ERR_IO, "%s: failed for %s", self->tool, config_path);
  return OK;
}

static status remove_model(const char *folder) {
  static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
  char path[MODELS_PATH_MAX];
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    TRY(write_path(path, "%s/%s", folder, names[i]));
    remove(path);
  }
  return rmdir(folder) == 0 ? OK : FAIL(ERR_IO, "%s: cannot be removed: %s", folder, strerror(errno));
}

/* Built in a folder of its own first, so that a folder with the final name is complete. */
static status make_model(const models *self, const schedule_case *c, const char *path) {
  char scratch[MODELS_PATH_MAX], config_path[MODELS_PATH_MAX], *text = NULL;
  TRY(write_path(scratch, "%s/making-XXXXXX", self->folder));
  if (!mkdtemp(scratch)) return FAIL(ERR_IO, "%s: cannot be made: %s", scratch, strerror(errno));
  TRY(write_path(config_path, "%s/config.json", scratch));
  TRY(make_config(c, &text));
  status result = write_file(config_path, text, strlen(text));
  free(text);
  TRY(result);
  TRY(run_tool(self, config_path, scratch, c->weights));
  if (rename(scratch, path) == 0) return OK;
  bool is_there = errno == ENOTEMPTY || errno == EEXIST; /* another process was first */
  if (!is_there) return FAIL(ERR_IO, "%s: cannot be made: %s", path, strerror(errno));
  return remove_model(scratch);
}

status models_folder(const models *self, const schedule_case *c, char path[MODELS_PATH_MAX]) {
  TRY(write_path(path, "%s/%s-%" PRId64 "-%" PRId64, self->folder, c->model, c->weights, c->vary));
  return access(path, F_OK) == 0 ? OK : make_model(self, c, path);
}

static status plan_path(const models *self, char path[MODELS_PATH_MAX]) {
  return write_path(path, "%s/%ld.plan", self->folder, (long)getpid());
}

status models_plan(const models *self, const char *model_dir, const char *deploy, char path[MODELS_PATH_MAX]) {
  static char config[1u << 16];
  char config_path[MODELS_PATH_MAX];
  void *plan = NULL;
  size_t plan_bytes;
  TRY(write_path(config_path, "%s/config.json", model_dir));
  FILE *file = fopen(config_path, "rb");
  if (!file) return FAIL(ERR_IO, "%s: cannot be opened: %s", config_path, strerror(errno));
  size_t bytes = fread(config, 1, sizeof config, file);
  fclose(file);
  planner_input input = {.config = {config, bytes}, .deploy = {deploy, strlen(deploy)}};
  TRY(planner_make(&input, &plan, &plan_bytes));
  status result = plan_path(self, path);
  if (result == OK) result = write_file(path, plan, plan_bytes);
  free(plan);
  return result;
}

void models_close(const models *self) {
  char path[MODELS_PATH_MAX];
  if (plan_path(self, path) == OK) remove(path);
}
