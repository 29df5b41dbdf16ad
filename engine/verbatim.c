/* verbatim.c - the engine: the public functions of verbatim.h, and the order of all work from opening a plan to the last token.
 *
 * Start-up: plan, model files, device, memory, kernels, weights, tables, graphs, then freeze. A step: build and submit the next step, then
 * settle the previous one, so that the device never waits for the host. Must not know the command line. */
#include "verbatim.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/sha256.h"
#include "constrain/masks.h"
#include "exec/devices.h"
#include "exec/exec.h"
#include "plan/format_masks.h"
#include "plan/plan.h"
#include "weights/safetensors.h"
#include "requests/schedule.h"
#include "base/input_file.h"
#include "base/json_text.h"
#include "base/special_file.h"
#include "chat/chat.h"
#include "text/stop_text.h"
#include "text/tokenizer.h"
#include "exec/watch.h"
#include "weights/weights.h"
#include "planner/checks/check.h"
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096

struct verbatim {
  verbatim_config config;
  pid_t process;         /* that opened it: its threads and its device do not exist in a child of it */
  arena host;
  plan plan;
  devices devices;       /* none on the CPU */
  cpu_pool *pool;
  exec *machine;
  watch *watch;
  schedule schedule;
  weights_report weights;
  tokenizer *tokenizer;  /* null without config.text */
  digest vocabulary;     /* its digest, or zeros     */
  sha256 plan_sha256, config_sha256;
  masks masks;           /* with config.text, of a plan with token masks */
  request_model model;
  uint32_t side;       /* of the next step                       */
  bool outstanding[2];   /* submitted and not settled              */
  verbatim_stages stages;
  verbatim_memory memory; /* without free_now */
  verbatim_gpu gpus[RANKS_MAX];
  char device_name[128];
  char note[1024];
};

/* === Start-up =============================================================================================================== */

static void fault(void *context, const char *what) {
  const verbatim *self = context;
  if (self->config.on_fault) self->config.on_fault(self->config.context, what);
}

static status open_cpu(verbatim *self) {
  TRY(cpu_pool_open(&self->pool, self->config.threads));
  snprintf(self->device_name, sizeof self->device_name, "CPU, %u threads, %s", cpu_pool_threads(self->pool), cpu_isa());
  return OK;
}

static status open_device(verbatim *self, const dynlib_search *libraries) {
  int index = self->config.device;
  if (index < VERBATIM_DEVICE_CPU) return FAIL(ERR_USAGE, "device: expected auto, cpu or a GPU's number, found %d", index);
  if (index == VERBATIM_DEVICE_CPU) return open_cpu(self);
  const uint32_t ranks = self->plan.header->limits.ranks;
  status result = devices_open(&self->devices, index < 0 ? 0 : (uint32_t)index, &self->plan.header->limits, libraries);
  if (result == OK) {
    const char *name = gpu_describe(self->devices.list[0])->name;
    if (ranks == 1) snprintf(self->device_name, sizeof self->device_name, "%s", name);
    else snprintf(self->device_name, sizeof self->device_name, "%u x %s", ranks, name);
    devices_on_fault(&self->devices, fault, self);
    return OK;
  }
  if (index != VERBATIM_DEVICE_AUTO) return result;
  fail_drop_hint(); /* it says to use the CPU */
  snprintf(self->note, sizeof self->note, "on the CPU, because: %.480s", fail_text());
  fail_clear();
  return open_cpu(self);
}

static status measure_memory(const verbatim *self, uint64_t *free_bytes) {
  uint64_t total;
  return self->devices.count ? gpu_memory(self->devices.list[0], free_bytes, &total) : OK;
}

static void describe_gpus(verbatim *self) {
  for (uint32_t i = 0; i < self->devices.count; i++) {
    const gpu_info *info = gpu_describe(self->devices.list[i]);
    self->gpus[i] = (verbatim_gpu){.index = info->index, .total = info->memory_bytes,
                                   .reserved = gpu_reserved_bytes(self->devices.list[i])};
  }
}

static void add_note(verbatim *self, const char *text) {
  size_t used = strlen(self->note);
  if (text && *text) snprintf(self->note + used, sizeof self->note - used, "%s%s", used ? "; " : "", text);
}

static status load_weights(verbatim *self) {
  safetensors *set = NULL;
  weights_target target = exec_weights_target(self->machine);
  target.sha256 = self->config.sha256;
  TRY(safetensors_open(&set, self->config.model_dir));
  status result = weights_load(&self->plan, set, &target, self->config.on_progress, self->config.context, &self->weights);
  safetensors_close(set);
  TRY(result);
  self->stages.weights_bytes = self->weights.source_bytes;
  self->stages.weights_threads = self->weights.threads;
  char text[512];
  weights_note(&self->weights, text, sizeof text);
  add_note(self, text);
  return OK;
}

/* A plan holds constants of config.json that no tensor's shape reveals (rope, scales, stop ids), so the config.json next to the weights
 * must be the one that the plan was made from. A folder with weights only has no config.json. */
static status check_config(verbatim *self) {
  char path[PATH_BYTES_MAX];
  int length = snprintf(path, sizeof path, "%s/config.json", self->config.model_dir);
  if (length < 0 || (size_t)length >= sizeof path) return FAIL(ERR_LIMIT, "path too long: %s", self->config.model_dir);
  if (!special_file_is_there(path)) return OK;
  FILE *file;
  TRY(input_file_open(path, INPUT_CONFIG, &file));
  digest_state state;
  sha256_state strong;
  digest_start(&state);
  sha256_start(&strong);
  uint8_t part[4096];
  for (size_t bytes; (bytes = fread(part, 1, sizeof part, file)) > 0;) digest_add(&state, part, bytes), sha256_add(&strong, part, bytes);
  fclose(file);
  self->config_sha256 = sha256_end(&strong);
  const uint8_t *expected = self->plan.header->config_digest;
  digest found = digest_end(&state);
  if (memcmp(found.bytes, expected, DIGEST_BYTES) == 0) return OK;
  char texts[2][DIGEST_TEXT_BYTES];
  return FAIL(ERR_MISMATCH, "%s: expected digest %s, of which the plan was made, found %s; hint: plan again from this model", path,
              digest_text(expected, texts[0]), digest_text(found.bytes, texts[1]));
}

static status open_text(verbatim *self) {
  if (!self->config.text) return OK;
  TRY(tokenizer_open(&self->tokenizer, self->config.model_dir));
  self->vocabulary = tokenizer_digest(self->tokenizer);
  const uint32_t vocab = self->plan.header->model.vocab;
  if (!plan_has_masks(&self->plan)) return OK;
  return masks_open(&self->masks, self->tokenizer, vocab, plan_mask_words(vocab), plan_mask_room(&self->plan.header->limits, vocab),
                    &self->host);
}

/* The seconds since *from, which becomes now. */
static double lap(double *from) {
  double before = *from;
  *from = clock_seconds();
  return *from - before;
}

static status start_machine(verbatim *self, const exec_options *options, double *from) {
  verbatim_stages *stages = &self->stages;
  TRY(exec_open(&self->machine, &self->plan, options, &self->host));
  self->masks.bits = exec_masks(self->machine);
  stages->memory = lap(from);
  TRY(exec_start_kernels(self->machine, &self->host));
  add_note(self, exec_count(self->machine).cache_note);
  TRY(exec_start_check(self->machine));
  stages->kernels = lap(from);
  TRY(load_weights(self));
  stages->weights = lap(from);
  exec_start_tables(self->machine);
  stages->tables = lap(from);
  TRY(exec_start_library(self->machine));
  add_note(self, exec_count(self->machine).left_out);
  stages->library = lap(from);
  TRY(exec_start_graphs(self->machine));
  stages->graphs = lap(from);
  stages->kernels_cached = exec_count(self->machine).kernels_cached;
  stages->kernels_compiled = exec_count(self->machine).kernels_compiled;
  return OK;
}

static status start(verbatim *self) {
  const verbatim_config *c = &self->config;
  double from = clock_seconds(), begun = from;
  TRY(plan_open(&self->plan, c->plan_path));
  TRY(check_plan(self->plan.memory, (size_t)self->plan.header->file_bytes)); /* a plan is untrusted input */
  self->plan_sha256 = sha256_of(self->plan.memory, (size_t)self->plan.header->file_bytes);
  TRY(input_file_check_model(c->model_dir));
  TRY(check_config(self));
  self->stages.plan = lap(&from);
  TRY(open_text(self));
  self->stages.text = lap(&from);
  const dynlib_search libraries = {.folders = c->library_path, .program_path = c->program_path};
  TRY(open_device(self, &libraries));
  TRY(measure_memory(self, &self->memory.free_opened));
  self->stages.device = lap(&from);
  exec_options machine = {.pool = self->pool, .libraries = &libraries, .cache_dir = c->cache_dir,
                          .direct = c->direct, .poison = c->poison, .logits = c->logits, .timed = c->timed,
                          .check_exchanges = c->check_exchanges,
                          .exchange_timeout_ms = c->exchange_timeout_ms, .on_fault = fault, .fault_context = self};
  devices_use(&self->devices, &machine);
  TRY(start_machine(self, &machine, &from));
  self->model = (request_model){.plan = &self->plan, .weights_digest = self->weights.digest.bytes, .tokenizer = self->tokenizer,
                                .tokenizer_digest = self->vocabulary.bytes, .logits = c->logits, .trace = c->trace,
                                .masks = c->text && plan_has_masks(&self->plan) ? &self->masks : NULL};
  schedule_options batching = {.max_active = c->max_active, .chunk_tokens = c->chunk_tokens, .slot_offset = c->slot_offset,
                               .shuffle_pages = c->shuffle_pages, .no_prefix_cache = c->no_prefix_cache, .no_drafts = c->no_drafts,
                               .trace = c->trace};
  TRY(watch_open(&self->watch, &self->plan, self->machine, c->trace, &self->host));
  TRY(schedule_open(&self->schedule, &self->model, self->machine, self->watch, &batching, &self->host));
  arena_freeze(&self->host);
  devices_freeze(&self->devices);
  TRY(measure_memory(self, &self->memory.free_ready));
  describe_gpus(self);
  self->stages.graphs += lap(&from);
  self->stages.total = from - begun; /* from the same clock readings as the parts, so it is their sum */
  return OK;
}

/* Every public function that computes or uses the device does so between these two. The thread belongs to the caller: it may use another
 * rounding mode, flush subnormals or have its own CUDA context, all of which is restored at the end of the call. */
static void enter(verbatim *self, fenv_t *callers) {
  fegetenv(callers);
  fesetenv(FE_DFL_ENV);
  devices_bind(&self->devices);
}

static void leave(verbatim *self, const fenv_t *callers) {
  devices_unbind(&self->devices);
  fesetenv(callers);
}

/* A call that needs the engine's threads or its device would wait for ever in a process that was forked from the engine's. */
static status check_engine(const verbatim *self) {
  if (!self) return FAIL(ERR_USAGE, "engine: expected one from verbatim_open, found null");
  if (self->process == getpid()) return OK;
  return FAIL(ERR_USAGE, "engine: it belongs to process %ld, which forked this one; hint: open an engine after the fork",
              (long)self->process);
}

static status check_request(const verbatim_request *request) {
  return request ? OK : FAIL(ERR_USAGE, "request: expected one, found null");
}

int verbatim_open(verbatim **engine, const verbatim_config *config) {
  fail_clear();
  if (!engine || !config) return FAIL(ERR_USAGE, "open: expected a place for the engine and a config, found null");
  if (!config->plan_path || !config->model_dir) return FAIL(ERR_USAGE, "config: expected plan_path and model_dir, found null");
  verbatim *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for the engine");
  fenv_t callers;
  self->config = *config;
  self->process = getpid();
  enter(self, &callers);
  status result = start(self); /* gpu_open binds the device, and the CPU backend's threads inherit our environment from here */
  leave(self, &callers);
  if (result != OK) verbatim_close(self);
  else *engine = self;
  return result;
}

void verbatim_close(verbatim *self) {
  if (!self || self->process != getpid()) return;
  fenv_t callers;
  enter(self, &callers);
  exec_close(self->machine);
  devices_close(&self->devices); /* and unbinds */
  leave(self, &callers);
  cpu_pool_close(self->pool);
  plan_close(&self->plan);
  arena_close(&self->host);
  tokenizer_close(self->tokenizer);
  free(self);
}

static verbatim_memory describe_memory(const verbatim *self) {
  verbatim_memory memory = self->memory;
  if (self->devices.count == 0 || self->process != getpid()) return memory;
  gpu *first = self->devices.list[0];
  memory.planned = align_up(self->plan.header->device_bytes, GPU_GRANULARITY);
  memory.reserved = gpu_reserved_bytes(first);
  memory.total = gpu_describe(first)->memory_bytes;
  gpu_bind(first);
  if (measure_memory(self, &memory.free_now) != OK) memory.free_now = 0; /* the device is lost; the next step reports it */
  gpu_unbind(first);
  return memory;
}

verbatim_info verbatim_describe(const verbatim *self) {
  const plan_header *h = self->plan.header;
  exec_counts counts = exec_count(self->machine);
  verbatim_info info = {.device = self->device_name, .note = self->note, .vocab = h->model.vocab, .max_len = h->limits.max_len,
                        .max_seqs = h->limits.max_seqs, .kv_pages = h->limits.kv_pages, .bos = h->model.bos,
                        .eos_count = h->model.eos_count, .eos = h->model.eos,
                        .graph_count = counts.graphs, .ranks = h->limits.ranks,
                        .draft_tokens = h->limits.draft_tokens, .constraints = self->model.masks != NULL,
                        .gpus = self->devices.count ? self->gpus : NULL,
                        .device_bytes = h->device_bytes, .pinned_bytes = counts.pinned_bytes,
                        .host_bytes = self->host.taken_bytes, .stages = self->stages, .memory = describe_memory(self),
                        .nvrtc_version = counts.nvrtc_version, .cublaslt_version = counts.cublaslt_version};
  if (self->devices.count) info.driver_version = gpu_describe(self->devices.list[0])->driver_version;
  if (self->config.trace) {
    info.points = watch_points(self->watch)->list;
    info.point_count = watch_points(self->watch)->count;
  }
  info.kernels = exec_kernels(self->machine, &info.kernel_count);
  memcpy(info.plan_digest, h->digest, sizeof info.plan_digest);
  memcpy(info.numerics_id, h->numerics_id, sizeof info.numerics_id);
  memcpy(info.config_digest, h->config_digest, sizeof info.config_digest);
  memcpy(info.weights_digest, self->weights.digest.bytes, sizeof info.weights_digest);
  memcpy(info.tokenizer_digest, self->vocabulary.bytes, sizeof info.tokenizer_digest);
  memcpy(info.plan_sha256, self->plan_sha256.bytes, sizeof info.plan_sha256);
  memcpy(info.config_sha256, self->config_sha256.bytes, sizeof info.config_sha256);
  memcpy(info.weights_sha256, self->weights.sha256.bytes, sizeof info.weights_sha256);
  return info;
}

verbatim_counters verbatim_count(const verbatim *self) {
  verbatim_counters counters = self->schedule.counters;
  counters.kv_pages_used = self->schedule.pages.total - pages_available(&self->schedule.pages);
  exec_gaps gaps = exec_count(self->machine).gaps;
  counters.gaps = gaps.count;
  counters.gap_us = gaps.sum_us;
  memcpy(counters.gap_bins, gaps.bins, sizeof counters.gap_bins);
  return counters;
}

/* === Work =================================================================================================================== */

int verbatim_submit(verbatim *self, verbatim_request *request) {
  fenv_t callers;
  fail_clear();
  TRY(check_engine(self));
  TRY(check_request(request));
  if (schedule_has(&self->schedule, request))
    return FAIL(ERR_USAGE, "request: it was submitted before and is not finished; hint: each sample needs a struct of its own");
  enter(self, &callers);
  status result = request_check(&self->model, request);
  if (result == OK) {
    request_start(&self->model, request);
    schedule_submit(&self->schedule, request);
  }
  leave(self, &callers);
  return result;
}

int verbatim_cancel(verbatim *self, verbatim_request *request) {
  fail_clear();
  TRY(check_engine(self));
  TRY(check_request(request));
  if (request->finish != VERBATIM_RUNNING) return OK;
  fenv_t callers;
  enter(self, &callers);
  bool found = schedule_cancel(&self->schedule, request);
  leave(self, &callers);
  return found ? OK : FAIL(ERR_USAGE, "cancel: expected a request that was submitted to this engine, found another");
}

void verbatim_reset_prefix_cache(verbatim *self) {
  fail_clear();
  fenv_t callers;
  enter(self, &callers);
  schedule_pages_forget(&self->schedule.kv);
  leave(self, &callers);
}

uint32_t verbatim_stop_ids(const verbatim *self, const verbatim_request *request, int32_t *ids) {
  return request_stop_ids(&self->plan, request, ids);
}

int verbatim_constraint_open(verbatim_constraint **constraint, enum verbatim_constraint_kind kind, const char *text, size_t bytes) {
  fail_clear();
  if (!constraint) return FAIL(ERR_USAGE, "constraint: expected a place for it, found null");
  return constraint_open(constraint, kind, text, bytes);
}

void verbatim_constraint_close(verbatim_constraint *constraint) { constraint_close(constraint); }

verbatim_text verbatim_constraint_text(const verbatim_constraint *constraint, enum verbatim_constraint_kind *kind) {
  *kind = constraint->kind;
  return (verbatim_text){.bytes = constraint->text, .count = constraint->bytes};
}

static void settle(verbatim *self, uint32_t side) {
  if (!self->outstanding[side]) return;
  schedule_settle(&self->schedule, side);
  self->outstanding[side] = false;
}

int verbatim_poll(verbatim *self, bool *busy) {
  fenv_t callers;
  fail_clear();
  TRY(check_engine(self));
  if (!busy) return FAIL(ERR_USAGE, "poll: expected a place for busy, found null");
  uint32_t side = self->side;
  enter(self, &callers);
  schedule_expire(&self->schedule);
  self->outstanding[side] = schedule_step(&self->schedule, side);
  if (self->outstanding[side]) self->side ^= 1;
  settle(self, side ^ 1);
  if (self->config.trace) settle(self, side); /* else a request that has ended would report one row too many */
  leave(self, &callers);
  *busy = self->outstanding[side] || !schedule_idle(&self->schedule);
  return OK;
}

const char *verbatim_error(void) { return fail_text(); }

/* === Text =================================================================================================================== */

/* Needs no thread and no device. */
static status check_text(const verbatim *self, const void *from, size_t from_count, const void *to, size_t to_max, const void *count) {
  if (!self || (from_count && !from) || (to_max && !to) || !count) return FAIL(ERR_USAGE, "text: expected an argument, found null");
  return self->tokenizer ? OK : FAIL(ERR_USAGE, "text: expected an engine opened with config.text, found one without");
}

int verbatim_encode(verbatim *self, const char *text, size_t bytes, bool add_special, bool parse_special, int32_t *ids, size_t ids_max,
                    size_t *count) {
  fail_clear();
  TRY(check_text(self, text, bytes, ids, ids_max, count));
  return tokenizer_encode(self->tokenizer, text, bytes, add_special, parse_special, ids, ids_max, count);
}

typedef struct text_writer {
  char *text;
  size_t text_max, bytes; /* room left; size of the whole text so far */
} text_writer;

static void write_text(void *context, const char *text, size_t bytes) {
  text_writer *w = context;
  size_t room = w->bytes < w->text_max ? w->text_max - w->bytes : 0, written = bytes < room ? bytes : room;
  if (written) memcpy(w->text + w->bytes, text, written);
  w->bytes += bytes;
}

int verbatim_decode(const verbatim *self, const int32_t *ids, size_t count, char *text, size_t text_max, size_t *bytes) {
  fail_clear();
  TRY(check_text(self, ids, count, text, text_max, bytes));
  stop_text made = {0};
  text_writer w = {.text = text, .text_max = text_max};
  for (size_t i = 0; i < count; i++) stop_text_push(&made, self->tokenizer, (stop_text_set){0}, ids[i], UINT64_MAX, write_text, &w);
  stop_text_flush(&made, write_text, &w);
  *bytes = w.bytes;
  return OK;
}

/* === Chat =================================================================================================================== */

struct verbatim_chat {
  chat *templates;
};

int verbatim_chat_open(verbatim_chat **out, const char *model_dir, const char *template_path) {
  fail_clear();
  if (!out || !model_dir) return FAIL(ERR_USAGE, "verbatim_chat_open: expected a place for the result and a model folder, found null");
  chat *templates = NULL;
  TRY(input_file_check_model(model_dir));
  TRY(chat_open(&templates, model_dir, template_path));
  status result = chat_name(templates) ? OK : FAIL(ERR_UNSUPPORTED, "%s", chat_refusal(templates));
  verbatim_chat *self = result == OK ? malloc(sizeof *self) : NULL;
  if (result == OK && !self) result = FAIL(ERR_LIMIT, "chat: no memory");
  if (result != OK) {
    chat_close(templates);
    return result;
  }
  self->templates = templates;
  *out = self;
  return OK;
}

int verbatim_chat_render(const verbatim_chat *self, const char *json, size_t json_bytes, char *text, size_t text_max, size_t *bytes) {
  json_error_t error;
  fail_clear();
  if (!self || !json || !bytes || (!text && text_max)) return FAIL(ERR_USAGE, "verbatim_chat_render: expected no null, found one");
  if (json_bytes > TOKENIZER_TEXT_BYTES_MAX) return FAIL(ERR_LIMIT, "chat: expected at most %u bytes of JSON", TOKENIZER_TEXT_BYTES_MAX);
  json_t *body = json_text_load(json, json_bytes, JSON_REJECT_DUPLICATES, &error);
  if (!body) return FAIL(ERR_FORMAT, "chat: expected JSON, found at line %d column %d: %s", error.line, error.column, error.text);
  if (json_is_array(body)) body = json_pack("{s:o}", "messages", body); /* else it is an object */
  char *made = NULL;
  size_t count = 0;
  status result = body ? chat_render(self->templates, body, NULL, &made, &count) : FAIL(ERR_LIMIT, "chat: no memory");
  json_decref(body);
  TRY(result);
  if (text_max) memcpy(text, made, count < text_max ? count : text_max);
  free(made);
  *bytes = count;
  return OK;
}

void verbatim_chat_close(verbatim_chat *self) {
  if (self) chat_close(self->templates);
  free(self);
}

/* === Callers in other languages ============================================================================================= */

_Static_assert((int)VERBATIM_ERR_USAGE == ERR_USAGE && (int)VERBATIM_ERR_IO == ERR_IO && (int)VERBATIM_ERR_FORMAT == ERR_FORMAT &&
                   (int)VERBATIM_ERR_UNSUPPORTED == ERR_UNSUPPORTED && (int)VERBATIM_ERR_LIMIT == ERR_LIMIT &&
                   (int)VERBATIM_ERR_DEVICE == ERR_DEVICE && (int)VERBATIM_ERR_MISMATCH == ERR_MISMATCH, "two lists of one thing");

size_t verbatim_sizeof(const char *type) {
#define SIZE(type) {#type, sizeof(type)}
  static const struct {
    const char *type;
    size_t bytes;
  } sizes[] = {SIZE(verbatim_config), SIZE(verbatim_info), SIZE(verbatim_stages), SIZE(verbatim_memory), SIZE(verbatim_request),
               SIZE(verbatim_token),  SIZE(verbatim_text), SIZE(verbatim_bias),   SIZE(verbatim_alternative),
               SIZE(verbatim_counters), SIZE(verbatim_kernel), SIZE(verbatim_point), SIZE(verbatim_gpu)};
#undef SIZE
  for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
    if (strcmp(type, sizes[i].type) == 0) return sizes[i].bytes;
  return 0;
}

verbatim_request verbatim_request_defaults(void) { return VERBATIM_REQUEST_DEFAULTS; }
