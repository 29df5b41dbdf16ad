/* cli/calibrate.c - `verbatim calibrate`: runs prompts with a bf16 KV cache and writes the scale of every layer's KV rows, which an fp8
 * cache needs, to a file in the model's folder.
 *
 * A scale is the largest magnitude in a layer's rows / 448, so the same prompts give the same file however they are batched. Nothing else
 * generates scales: a run that needs them and finds none fails. Read next: verbatim.h (on_values), weights.c. */
#include "cli/cli.h"
#include "kernels_src/abi.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/lines.h"
#include "common/options.h"
#include "jsonl/items.h"
#include "base/limits.h"
#include "base/input_file.h"
#include "base/whole_file.h"
#include "kernels_src/num.h"
#include "plan/plan.h"
#include "weights/safetensors.h"
#include "text/tokenizer.h"
#include "verbatim.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define SCALE_NAME "model.layers.%u." PLAN_KV_SCALE
#define E4M3_MAX 448.0f
#define LEAST 1e-4f /* NUMERICS.md, "Scaled e4m3" */

static const char HELP[] =
  "usage: verbatim calibrate PLAN MODEL_DIR --jsonl FILE [options]\n\n"
  "Runs prompts and writes MODEL_DIR/" SAFETENSORS_KV_SCALES ": for each layer the scale that\n"
  "kv-cache-dtype fp8 needs, the largest magnitude of the layer's KV rows / 448. PLAN is a plan of the\n"
  "model with kv-cache-dtype bf16. A few hundred prompts like those of production are enough; larger\n"
  "values are later clamped to 448 times the scale.\n\n"
  "Examples:\n"
  "  verbatim calibrate my.plan MODEL_DIR --jsonl prompts.jsonl\n"
  "  verbatim calibrate my.plan MODEL_DIR --jsonl prompts.jsonl --force --batch 16\n"
  "  verbatim plan MODEL_DIR -o fp8.plan --kv-cache-dtype fp8\n\n"
  "  --jsonl FILE        prompts, as `verbatim run` reads them; each generates one token unless it has\n"
  "                      \"max_tokens\"; - is stdin\n"
  "  --no-bos            do not add the begin-of-sequence token to text\n"
  "  --force             replace the scales of an earlier calibration\n"
  CLI_ENGINE_HELP;

typedef struct calibration calibration;

typedef struct prompt_run { /* an item in flight */
  verbatim_request request;
  calibration *owner;
  int32_t *encoded_ids; /* encoded prompt; NULL when the item has ids */
} prompt_run;

struct calibration {
  const char **words; /* from argv: plan and model folder */
  const char *jsonl;
  bool no_bos, force;
  cli_engine engine;
  items items;
  tokenizer *tokenizer;
  prompt_run *runs; /* [items.count] */
  uint32_t layers, added, tokens_generated;
  float largest[LAYERS_MAX]; /* largest magnitude in a layer's rows */
  bool is_seen[LAYERS_MAX], is_bad[LAYERS_MAX]; /* is_bad: NaN or Inf */
  char path[PATH_BYTES_MAX];
};

static status parse_arguments(calibration *self, int argc, char **argv) {
  uint32_t count = 0;
  cli_option table[32] = {{"--jsonl", cli_options_text, &self->jsonl}, {"--no-bos", NULL, &self->no_bos},
                          {"--force", NULL, &self->force}};
  cli_engine_options(&self->engine, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, self->words, &count));
  if (count != 2) return FAIL(ERR_USAGE, "calibrate: expected PLAN MODEL_DIR, found %u word%s; hint: verbatim calibrate --help",
                              count, CLI_OPTIONS_PLURAL(count));
  if (!self->jsonl) return FAIL(ERR_USAGE, "calibrate: expected --jsonl FILE; hint: verbatim calibrate --help");
  self->engine.plan_path = self->words[0];
  self->engine.model_dir = self->words[1];
  TRY(cli_hub_resolve(&self->engine.model_dir, self->engine.model_path));
  return OK;
}

/* === Before any work ==================================================================================================== */

static status check_plan(calibration *self) {
  static const char *const NAMES[] = {[KV_BF16] = "bf16", [KV_FP8_DS_MLA] = "fp8_ds_mla", [KV_FP8] = "fp8"};
  plan view;
  TRY(plan_open(&view, self->engine.plan_path));
  const uint32_t format = view.header->quant.kv_format;
  self->layers = view.header->model.layers;
  plan_close(&view);
  if (format == KV_BF16) return OK;
  return FAIL(ERR_USAGE, "%s has a KV cache of %s, whose rows are rounded already; hint: calibrate with a plan of kv-cache-dtype: bf16",
              self->engine.plan_path, NAMES[format]);
}

static bool ends_with(const char *text, const char *end) {
  size_t bytes = strlen(text), end_bytes = strlen(end);
  return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

/* Scales are generated once; those a model was published with are never replaced. */
static status check_scales(calibration *self) {
  int length = snprintf(self->path, sizeof self->path, "%s/" SAFETENSORS_KV_SCALES, self->engine.model_dir);
  if (length < 0 || (size_t)length >= sizeof self->path) return FAIL(ERR_USAGE, "%s: the path is too long", self->engine.model_dir);
  TRY(input_file_check_model(self->engine.model_dir));
  TRY(cli_files_check_output(self->path));
  if (access(self->path, F_OK) == 0)
    return self->force ? OK : FAIL(ERR_USAGE, "%s exists: the model is calibrated already; hint: --force replaces it", self->path);
  safetensors *set = NULL;
  status result = safetensors_open(&set, self->engine.model_dir);
  for (uint32_t i = 0; result == OK && i < safetensors_count(set); i++) {
    const char *name = safetensors_at(set, i)->name;
    if (ends_with(name, ".k_scale") || ends_with(name, ".kv_scale"))
      result = FAIL(ERR_USAGE, "the model's files hold the scales, such as %s; there is nothing to calibrate", name);
  }
  safetensors_close(set);
  return result;
}

/* === Prompts ============================================================================================================ */

static status add_line(void *context, char *line, size_t bytes, uint32_t number) {
  calibration *self = context;
  item_params params = ITEMS_DEFAULTS;
  params.max_tokens = 1;
  return items_add_json(&self->items, line, bytes, number, &params);
}

static status read_prompts(calibration *self) {
  bool has_text = false;
  TRY(cli_lines_read(self->jsonl, add_line, self));
  if (self->items.count == 0)
    return FAIL(ERR_USAGE, "calibrate: expected a prompt, found an input without one; hint: {\"prompt\": \"...\"} on a line");
  for (uint32_t i = 0; i < self->items.count; i++) {
    has_text |= self->items.list[i].prompt != NULL;
    self->engine.config.text |= self->items.list[i].params.stop_text_count != 0;
  }
  return has_text ? tokenizer_open(&self->tokenizer, self->engine.model_dir) : OK;
}

static status encode(calibration *self, const item *from, prompt_run *r) {
  size_t room = from->prompt_bytes + 8, count = 0;
  r->request.prompt = from->ids;
  r->request.prompt_count = from->id_count;
  if (from->ids) return OK;
  if (!(r->encoded_ids = malloc(room * sizeof *r->encoded_ids))) return FAIL(ERR_LIMIT, "prompts: no memory");
  TRY(tokenizer_encode(self->tokenizer, from->prompt, from->prompt_bytes, !self->no_bos, true, r->encoded_ids, room, &count));
  r->request.prompt = r->encoded_ids;
  r->request.prompt_count = (uint32_t)count;
  return OK;
}

/* === Rows =============================================================================================================== */

static const verbatim_point *point_at(const calibration *self, uint32_t point) { return &self->engine.info.points[point]; }

/* Selects "layer 3 qkv_rope kv" or "layer 3 kv_rope kv". */
static bool wants_values(const verbatim_request *request, uint32_t position, uint32_t point) {
  const prompt_run *r = request->context;
  const verbatim_point *p = point_at(r->owner, point);
  (void)position;
  return p->type == VERBATIM_POINT_BF16 && ends_with(p->name, "kv_rope kv");
}

static void on_values(verbatim_request *request, uint32_t position, uint32_t point, const void *row, size_t bytes) {
  const prompt_run *r = request->context;
  const uint32_t layer = point_at(r->owner, point)->layer;
  const uint16_t *numbers = row;
  (void)position;
  ASSERT(layer < LAYERS_MAX);
  for (size_t i = 0; i < bytes / 2; i++) {
    float magnitude = num_from_bf16(numbers[i] & 0x7fffu);
    if (!(magnitude < (float)INFINITY)) r->owner->is_bad[layer] = true;
    else if (magnitude > r->owner->largest[layer]) r->owner->largest[layer] = magnitude;
  }
  r->owner->is_seen[layer] = true;
}

static status submit(calibration *self) {
  char name[NAME_BYTES_MAX];
  self->runs = calloc(self->items.count, sizeof *self->runs);
  if (!self->runs) return FAIL(ERR_LIMIT, "requests: no memory");
  for (uint32_t i = 0; i < self->items.count; i++) {
    prompt_run *r = &self->runs[i];
    r->owner = self;
    items_request(&self->items.list[i].params, 0, &r->request);
    r->request.context = r;
    r->request.wants_values = wants_values;
    r->request.on_values = on_values;
    TRY(encode(self, &self->items.list[i], r));
    uint64_t most = min_u32(r->request.max_tokens, self->engine.info.max_len);
    r->request.tokens = calloc(most + 1, sizeof *r->request.tokens);
    r->request.alternatives = calloc(most * r->request.top_logprobs + 1, sizeof *r->request.alternatives);
    if (!r->request.tokens || !r->request.alternatives) return FAIL(ERR_LIMIT, "requests: no memory");
    status result = (status)verbatim_submit(self->engine.engine, &r->request);
    snprintf(name, sizeof name, "item %.200s", self->items.list[i].id);
    if (result != OK) fail_prefix(name);
    TRY(result);
  }
  return OK;
}

static status run_all(calibration *self) {
  bool busy = true;
  while (busy) {
    TRY((status)verbatim_poll(self->engine.engine, &busy));
    for (; self->added < self->items.count && self->runs[self->added].request.finish != VERBATIM_RUNNING; self->added++) {
      const verbatim_request *request = &self->runs[self->added].request;
      self->tokens_generated += request->token_count;
      TRY(cli_engine_add(&self->engine, self->items.list[self->added].id, request));
    }
    cli_engine_progress(&self->engine, self->added, self->items.count, self->tokens_generated, !busy);
  }
  return cli_engine_end(&self->engine);
}

/* === The file =========================================================================================================== */

static status take_scales(const calibration *self, float *scales) {
  for (uint32_t i = 0; i < self->layers; i++) {
    if (self->is_bad[i])
      return FAIL(ERR_MISMATCH, "calibrate: KV rows of layer %u hold NaN or Inf; hint: are the weights damaged?", i);
    if (!self->is_seen[i]) return FAIL(ERR_UNSUPPORTED, "calibrate: no KV row of layer %u was seen", i);
    scales[i] = (self->largest[i] > LEAST ? self->largest[i] : LEAST) / E4M3_MAX;
  }
  return OK;
}

/* Writes the header, padded to a multiple of 8 bytes, after the field for its size. */
static void write_header(const calibration *self, const float *scales, FILE *to) {
  char id[DIGEST_TEXT_BYTES], weights[DIGEST_TEXT_BYTES], data[DIGEST_TEXT_BYTES];
  const digest of_scales = digest_of(scales, self->layers * sizeof *scales);
  uint64_t tokens = 0;
  for (uint32_t i = 0; i < self->items.count; i++) tokens += self->runs[i].request.prompt_count;
  fprintf(to, "%8s{\"__metadata__\":{\"made_by\":\"verbatim calibrate\",\"numerics_id\":\"%s\",\"weights\":\"%s\",\"prompts\":\"%u\","
          "\"prompt_tokens\":\"%" PRIu64 "\",\"" SAFETENSORS_DATA_DIGEST "\":\"%s\"}", "", digest_text(self->engine.info.numerics_id, id),
          digest_text(self->engine.info.weights_digest, weights), self->items.count, tokens, digest_text(of_scales.bytes, data));
  for (uint32_t i = 0; i < self->layers; i++)
    fprintf(to, ",\"" SCALE_NAME "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%u,%u]}", i, 4 * i, 4 * i + 4);
  putc('}', to);
  for (long at = ftell(to); at % 8 != 0; at++) putc(' ', to);
}

static status write_scales(const calibration *self) {
  float scales[LAYERS_MAX];
  char *bytes = NULL;
  size_t count = 0;
  TRY(take_scales(self, scales));
  FILE *to = open_memstream(&bytes, &count);
  if (!to) return FAIL(ERR_LIMIT, "calibrate: no memory");
  write_header(self, scales, to);
  bool good = ferror(to) == 0;
  const uint64_t header_bytes = (uint64_t)ftell(to) - 8;
  good = fwrite(scales, sizeof *scales, self->layers, to) == self->layers && good;
  good = fclose(to) == 0 && good;
  for (int i = 0; good && i < 8; i++) bytes[i] = (char)(header_bytes >> (8 * i));
  status result = good ? whole_file_write(self->path, bytes, count) : FAIL(ERR_LIMIT, "calibrate: no memory");
  free(bytes);
  if (result == OK) printf("written        %s: scales of %u layers, from %u prompts\n", self->path, self->layers, self->items.count);
  return result;
}

/* === The command ======================================================================================================== */

static status run(calibration *self) {
  TRY(check_plan(self));
  TRY(check_scales(self));
  const cli_files_row files[] = {CLI_ENGINE_FILES(&self->engine), {CLI_FILES_READ, self->jsonl, "the input"}};
  TRY(cli_files_check(files, ARRAY_LEN(files)));
  TRY(read_prompts(self));
  self->engine.config.trace = true;
  TRY(cli_engine_open(&self->engine));
  TRY(submit(self));
  TRY(cli_engine_begin(&self->engine, self->tokenizer));
  TRY(run_all(self));
  return write_scales(self);
}

static void close_run(calibration *self) {
  cli_engine_close(&self->engine);
  tokenizer_close(self->tokenizer);
  for (uint32_t i = 0; self->runs && i < self->items.count; i++) {
    free(self->runs[i].encoded_ids);
    free(self->runs[i].request.tokens);
    free(self->runs[i].request.alternatives);
  }
  free(self->runs);
  items_close(&self->items);
  free(self->words);
}

int cli_calibrate(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  calibration self = {.words = calloc((size_t)argc, sizeof *self.words)};
  status result = self.words ? parse_arguments(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) result = run(&self);
  if (result != OK) {
    fputs("verbatim: ", stderr);
    cli_output_plain(stderr, fail_text());
    putc('\n', stderr);
  }
  close_run(&self);
  return fail_exit_code(result);
}
