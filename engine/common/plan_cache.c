/* common/plan_cache.c - see common/plan_cache.h. Chooses the sizes that fit by asking the planner for plans. */
#include "common/plan_cache.h"
#include "base/digest.h"
#include "base/folder.h"
#include "base/special_file.h"
#include "base/whole_file.h"
#include "common/files.h"
#include "common/memory.h"
#include "common/plan_file.h"
#include "plan/format.h"
#include "planner/model_config.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES_MAX CLI_ENGINE_PATH_BYTES_MAX
#define LENGTH_GPU 32768u /* tokens of a request that a GPU reads in seconds */
#define LENGTH_CPU 8192u
#define LENGTH_WISH 4096u /* rather fewer slots than shorter requests */
#define LENGTH_LEAST 1024u
#define SIZES_MAX 24u
#define GIB (1024.0 * 1024.0 * 1024.0)

typedef struct sizes { /* 0: the deployment says it, or the planner's default */
  uint32_t seqs, batch_tokens, len;
} sizes;

static const sizes GPU_SLOTS[] = {{64, 2048, 0}, {16, 512, 0}, {4, 256, 0}};
static const sizes CPU_SLOTS[] = {{16, 512, 0}, {4, 256, 0}};

typedef struct maker { /* a plan in the making */
  cli_engine *engine;
  const cli_config *config;
  cli_memory memory;      /* bytes 0: the deployment states the number */
  char *given;            /* the deployment's keys as YAML */
  char head[256];         /* comments: what else the plan depends on */
  uint32_t longest;       /* tokens of a sequence that the model supports */
  char *deploy;           /* head, given, and what was chosen: the file next to the plan */
  void *bytes;            /* the plan */
  size_t byte_count;
} maker;

/* === What the plan depends on =============================================================================================== */

static const char *value_of(const maker *self, const char *key) { return self->config ? cli_config_value(self->config, key) : NULL; }

static status digest_file(const char *path, input_file_kind kind, char text[DIGEST_TEXT_BYTES]) {
  char *bytes = NULL;
  size_t count = 0;
  TRY(input_file_check(path, kind));
  TRY(cli_files_read_config(path, kind, &bytes, &count));
  const digest id = digest_of(bytes, count);
  free(bytes);
  digest_text(id.bytes, text);
  return OK;
}

static status read_model(maker *self, char text[DIGEST_TEXT_BYTES]) {
  char path[PATH_BYTES_MAX], *bytes = NULL;
  size_t count = 0;
  const int length = snprintf(path, sizeof path, "%s/config.json", self->engine->model_dir);
  if (length < 0 || (size_t)length >= sizeof path) return FAIL(ERR_USAGE, "%s: the path is too long", self->engine->model_dir);
  TRY(digest_file(path, INPUT_CONFIG, text));
  TRY(cli_files_read_config(path, INPUT_CONFIG, &bytes, &count));
  model_config *model = calloc(1, sizeof *model);
  ASSERT(model != NULL);
  const status result = model_config_parse(bytes, count, model);
  self->longest = min_u32(model->max_position, model->window ? model->window : UINT32_MAX);
  free(model);
  free(bytes);
  return result;
}

static status begin(maker *self) {
  static const cli_config none = {.path = NULL};
  const cli_config *config = self->config ? self->config : &none;
  const char *profile = value_of(self, "profile");
  char model[DIGEST_TEXT_BYTES], shipped[DIGEST_TEXT_BYTES] = "";
  TRY(input_file_check_model(self->engine->model_dir));
  TRY(read_model(self, model));
  if (profile && strcmp(profile, "none") != 0) TRY(digest_file(profile, INPUT_PROFILE, shipped));
  snprintf(self->head, sizeof self->head, "# verbatim %s\n# config.json %s\n# profile %s\n", VERBATIM_VERSION, model,
           *shipped ? shipped : profile ? profile : "shipped");
  TRY(cli_config_deploy(config, &self->memory, &self->given));
  if (self->memory.bytes || value_of(self, "device-memory-bytes")) return OK;
  return cli_memory_find(self->engine->config.device, cli_config_gpus(config), &self->memory);
}

/* === Sizes that fit ========================================================================================================= */

static uint32_t list_sizes(const maker *self, sizes list[SIZES_MAX]) {
  static const char *const slot_keys[] = {"max-num-seqs", "max-num-batched-tokens", "max-logit-rows", "ladder"};
  static const sizes given = {0, 0, 0};
  const bool is_gpu = self->memory.is_gpu || (self->memory.bytes == 0 && self->engine->config.device != VERBATIM_DEVICE_CPU);
  const sizes *slots = is_gpu ? GPU_SLOTS : CPU_SLOTS;
  uint32_t count = 0, slot_count = is_gpu ? ARRAY_LEN(GPU_SLOTS) : ARRAY_LEN(CPU_SLOTS);
  for (size_t i = 0; i < ARRAY_LEN(slot_keys); i++)
    if (self->config && flat_yaml_find(&self->config->file, slot_keys[i])) slots = &given, slot_count = 1;
  const bool has_length = value_of(self, "max-model-len") != NULL;
  const uint32_t longest = min_u32(self->longest, is_gpu ? LENGTH_GPU : LENGTH_CPU);
  for (uint32_t i = 0; i < slot_count; i++) {
    const uint32_t least = min_u32(i + 1 < slot_count ? LENGTH_WISH : LENGTH_LEAST, longest);
    for (uint32_t len = longest; len >= least && count < SIZES_MAX; len /= 2) {
      list[count] = slots[i];
      list[count++].len = has_length ? 0 : len;
      if (has_length || len < 2) break;
    }
  }
  return count;
}

/* Makes the plan of these sizes in place of an earlier one. */
static status try_sizes(maker *self, const sizes *s) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *to = open_memstream(&text, &bytes);
  ASSERT(to != NULL);
  fprintf(to, "%s%s", self->head, self->given);
  if (s->seqs) fprintf(to, "max-num-seqs: %" PRIu32 "\n", s->seqs);
  if (s->batch_tokens) fprintf(to, "max-num-batched-tokens: %" PRIu32 "\n", s->batch_tokens);
  if (s->len) fprintf(to, "max-model-len: %" PRIu32 "\n", s->len);
  if (self->memory.bytes && !value_of(self, "device-memory-bytes"))
    fprintf(to, "device-memory-bytes: %" PRIu64 "\n", self->memory.bytes);
  ASSERT(fclose(to) == 0);
  free(self->deploy);
  self->deploy = text;
  const cli_plan_file_source source = {.model_dir = self->engine->model_dir, .deploy = text, .profile = value_of(self, "profile")};
  return cli_plan_file_make(&source, &self->bytes, &self->byte_count);
}

/* The first sizes that fit; the least of them come second, so that a model that is too large is soon refused. */
static status choose(maker *self) {
  sizes list[SIZES_MAX];
  const uint32_t count = list_sizes(self, list);
  status result = try_sizes(self, &list[0]);
  if (result != ERR_LIMIT || count == 1) return result;
  fail_clear();
  TRY(try_sizes(self, &list[count - 1]));
  for (uint32_t i = 1; i < count; i++) {
    free(self->bytes);
    self->bytes = NULL;
    result = try_sizes(self, &list[i]);
    if (result != ERR_LIMIT) return result;
    fail_clear();
  }
  return FAIL(ERR_LIMIT, "%s: sizes that fitted do not fit any more", self->engine->model_dir);
}

/* === The folder ============================================================================================================= */

static status name_files(const maker *self, char plan_path[PATH_BYTES_MAX], char deploy_path[PATH_BYTES_MAX]) {
  char folder[PATH_BYTES_MAX], room[PATH_BYTES_MAX], text[DIGEST_TEXT_BYTES];
  const char *cache = cli_files_cache(self->engine->cache_dir, room, sizeof room);
  const digest id = digest_of(self->deploy, strlen(self->deploy));
  if (!cache)
    return FAIL(ERR_USAGE, "expected a plan, or a cache folder to keep one in, found neither; hint: --cache-dir DIR, or "
                "`verbatim plan %s -o PLAN` and then PLAN before the model", self->engine->model_dir);
  if (snprintf(folder, sizeof folder, "%s/plans", cache) >= (int)sizeof folder) return FAIL(ERR_USAGE, "%s: the path is too long", cache);
  TRY(folder_make(folder));
  digest_text(id.bytes, text);
  int length = snprintf(plan_path, PATH_BYTES_MAX, "%s/%s.plan", folder, text);
  if (length < (int)PATH_BYTES_MAX) length = snprintf(deploy_path, PATH_BYTES_MAX, "%s/%s.yaml", folder, text);
  return length < (int)PATH_BYTES_MAX ? OK : FAIL(ERR_USAGE, "%s: the path is too long", folder);
}

static status check_equal(const maker *self, const char *plan_path) {
  char *found = malloc(self->byte_count + 1);
  ASSERT(found != NULL);
  FILE *file = NULL;
  status result = input_file_open(plan_path, INPUT_PLAN, &file);
  const size_t count = result == OK ? fread(found, 1, self->byte_count + 1, file) : 0;
  if (file) fclose(file);
  const bool is_equal = result == OK && count == self->byte_count && memcmp(found, self->bytes, count) == 0;
  free(found);
  if (result != OK || is_equal) return result;
  return FAIL(ERR_MISMATCH, "%s: expected the plan that its name stands for, found another file; hint: remove it, and it is made again",
              plan_path);
}

static void tell(const maker *self, const char *plan_path, bool is_new) {
  const plan_header *header = self->bytes;
  const plan_limits *l = &header->limits;
  fprintf(stderr, "plan %s: %s for ", plan_path, is_new ? "made" : "found, made");
  if (self->memory.bytes) fprintf(stderr, "%s", self->memory.from);
  else fprintf(stderr, "device-memory-bytes: %s", value_of(self, "device-memory-bytes"));
  fprintf(stderr,
          "; takes %.2f GiB: max-model-len %u, max-num-seqs %u, %u KV pages; to use it by name: verbatim COMMAND PLAN MODEL_DIR\n",
          (double)header->device_bytes / GIB, l->max_len, l->max_seqs, l->kv_pages);
}

static status keep(maker *self) {
  char deploy_path[PATH_BYTES_MAX];
  char *plan_path = self->engine->made_plan;
  TRY(name_files(self, plan_path, deploy_path));
  const bool is_there = special_file_is_there(plan_path);
  if (is_there) TRY(check_equal(self, plan_path));
  else {
    TRY(whole_file_write(deploy_path, self->deploy, strlen(self->deploy)));
    TRY(whole_file_write(plan_path, self->bytes, self->byte_count));
  }
  if (!self->engine->quiet) tell(self, plan_path, !is_there);
  self->engine->plan_path = plan_path;
  return OK;
}

status cli_plan_cache_ensure(cli_engine *engine, cli_config *config) {
  if (config) config->device = engine->config.device;
  if (engine->plan_path) return config ? cli_config_plan(config, engine->plan_path, engine->model_dir, engine->quiet) : OK;
  maker self = {.engine = engine, .config = config};
  status result = begin(&self);
  if (result == OK) result = choose(&self);
  if (result == ERR_LIMIT && self.memory.bytes) cli_memory_print(&self.memory, stderr);
  if (result == OK) result = keep(&self);
  free(self.given);
  free(self.deploy);
  free(self.bytes);
  return result;
}
