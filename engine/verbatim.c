/* verbatim.c - the engine: the order of everything from opening a plan to the last token. The public functions of verbatim.h.
 *
 * Start-up: plan, model files, device, memory, kernels, weights, tables, graphs, then freeze. A step: build and submit one step, then
 * settle the one before, so that the device never waits for the host. Must not know the command line. */
#include "verbatim.h"
#include "arena.h"
#include "digest.h"
#include "exec.h"
#include "plan.h"
#include "safetensors.h"
#include "schedule.h"
#include "special_file.h"
#include "weights.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES_MAX 4096

struct verbatim {
  verbatim_config config;
  arena host;
  plan plan;
  gpu *device;
  cpu_pool *pool;
  exec *machine;
  schedule schedule;
  weights_report weights;
  uint32_t parity;       /* of the next step                       */
  bool outstanding[2];   /* submitted and not settled              */
  char device_name[128];
  char note[512];
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

static status open_device(verbatim *self) {
  int index = self->config.device;
  if (index < VERBATIM_DEVICE_CPU) return FAIL(ERR_USAGE, "device: expected auto, cpu or a GPU's number, found %d", index);
  if (index == VERBATIM_DEVICE_CPU) return open_cpu(self);
  status result = gpu_open(index < 0 ? 0 : (uint32_t)index, &self->device);
  if (result == OK) {
    snprintf(self->device_name, sizeof self->device_name, "%s", gpu_describe(self->device)->name);
    gpu_on_fault(self->device, fault, self);
    return OK;
  }
  if (index != VERBATIM_DEVICE_AUTO) return result;
  snprintf(self->note, sizeof self->note, "on the CPU, because: %.480s", fail_text());
  fail_clear();
  return open_cpu(self);
}

static status load_weights(verbatim *self) {
  safetensors *set = NULL;
  weights_target target = exec_weights_target(self->machine);
  TRY(safetensors_open(&set, self->config.model_dir));
  status result = weights_load(&self->plan, set, &target, self->config.on_progress, self->config.context, &self->weights);
  safetensors_close(set);
  TRY(result);
  if (self->weights.unused_count && !self->note[0])
    snprintf(self->note, sizeof self->note, "%u tensors of the model are not used, e.g. %s", self->weights.unused_count,
             self->weights.unused_first);
  return OK;
}

/* A plan holds constants of config.json that no tensor's shape betrays (rope, scales, stop ids): the one beside the weights must be
 * the one it was made from. A folder of weights alone has none. */
static status check_config(const verbatim *self) {
  char path[PATH_BYTES_MAX];
  int length = snprintf(path, sizeof path, "%s/config.json", self->config.model_dir);
  if (length < 0 || (size_t)length >= sizeof path) return FAIL(ERR_LIMIT, "path too long: %s", self->config.model_dir);
  if (special_file_at(path)) return FAIL(ERR_IO, "%s: expected a regular file", path);
  FILE *file = fopen(path, "rb");
  if (!file) return errno == ENOENT ? OK : FAIL(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  digest_state state;
  digest_start(&state);
  uint8_t part[4096];
  for (size_t bytes; (bytes = fread(part, 1, sizeof part, file)) > 0;) digest_add(&state, part, bytes);
  fclose(file);
  const uint8_t *expected = self->plan.header->config_digest;
  digest found = digest_end(&state);
  if (memcmp(found.bytes, expected, DIGEST_BYTES) == 0) return OK;
  char texts[2][DIGEST_TEXT_BYTES];
  return FAIL(ERR_MISMATCH, "%s: expected digest %s, of which the plan was made, found %s; hint: plan again from this model", path,
              digest_text(expected, texts[0]), digest_text(found.bytes, texts[1]));
}

static status start(verbatim *self) {
  const verbatim_config *c = &self->config;
  TRY(plan_open(&self->plan, c->plan_path));
  TRY(check_config(self));
  TRY(open_device(self));
  exec_options machine = {.device = self->device, .pool = self->pool, .cache_dir = c->cache_dir, .direct = c->direct,
                          .poison = c->poison, .logits = c->logits};
  TRY(exec_open(&self->machine, &self->plan, &machine, &self->host));
  TRY(load_weights(self));
  TRY(exec_start(self->machine));
  schedule_options batching = {.max_active = c->max_active, .chunk_tokens = c->chunk_tokens, .slot_offset = c->slot_offset,
                               .shuffle_pages = c->shuffle_pages};
  TRY(schedule_open(&self->schedule, &self->plan, self->machine, &batching, &self->host));
  arena_freeze(&self->host);
  if (self->device) gpu_freeze(self->device);
  return OK;
}

int verbatim_open(verbatim **engine, const verbatim_config *config) {
  fail_clear();
  verbatim *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for the engine");
  self->config = *config;
  status result = start(self);
  if (result != OK) verbatim_close(self);
  else *engine = self;
  return result;
}

void verbatim_close(verbatim *self) {
  if (!self) return;
  exec_close(self->machine);
  gpu_close(self->device);
  cpu_pool_close(self->pool);
  plan_close(&self->plan);
  arena_close(&self->host);
  free(self);
}

verbatim_info verbatim_describe(const verbatim *self) {
  const plan_header *h = self->plan.header;
  verbatim_info info = {.device = self->device_name, .note = self->note, .vocab = h->model.vocab, .max_len = h->limits.max_len,
                        .max_seqs = h->limits.max_seqs, .bos = h->model.bos, .eos_count = h->model.eos_count, .eos = h->model.eos,
                        .graph_count = exec_graph_count(self->machine), .device_bytes = h->device_bytes,
                        .pinned_bytes = exec_pinned_bytes(self->machine), .host_bytes = self->host.taken_bytes};
  memcpy(info.numerics_id, h->numerics_id, sizeof info.numerics_id);
  memcpy(info.config_digest, h->config_digest, sizeof info.config_digest);
  memcpy(info.weights_digest, self->weights.digest.bytes, sizeof info.weights_digest);
  return info;
}

/* === Work =================================================================================================================== */

int verbatim_submit(verbatim *self, verbatim_request *request) {
  fail_clear();
  TRY(request_check(&self->plan, request, self->config.logits));
  request_start(&self->plan, self->weights.digest.bytes, request);
  schedule_submit(&self->schedule, request);
  return OK;
}

uint32_t verbatim_stop_ids(const verbatim *self, const verbatim_request *request, int32_t *ids) {
  return request_stop_ids(&self->plan, request, ids);
}

static void settle(verbatim *self, uint32_t parity) {
  if (!self->outstanding[parity]) return;
  schedule_settle(&self->schedule, parity);
  self->outstanding[parity] = false;
}

int verbatim_step(verbatim *self, bool *busy) {
  uint32_t parity = self->parity;
  self->outstanding[parity] = schedule_step(&self->schedule, parity);
  if (self->outstanding[parity]) self->parity ^= 1;
  settle(self, parity ^ 1);
  *busy = self->outstanding[parity] || !schedule_idle(&self->schedule);
  return OK;
}

const char *verbatim_error(void) { return fail_text(); }
