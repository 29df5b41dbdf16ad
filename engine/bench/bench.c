/* bench.c - see bench.h. Starts like verbatim_open, with random numbers instead of a model; then measures the ops, then whole steps. */
#include "bench/state.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 1u

/* === Start ================================================================================================================== */

static status open_device(bench *self, const dynlib_search *libraries) {
  const bench_options *o = &self->options;
  bench_report *r = &self->report;
  if (o->device == VERBATIM_DEVICE_CPU) {
    TRY(cpu_pool_open(&self->pool, o->threads));
    snprintf(r->device, sizeof r->device, "CPU, %u threads, %s", cpu_pool_threads(self->pool), cpu_isa());
    return OK;
  }
  TRY(devices_open(&self->devices, o->device < 0 ? 0 : (uint32_t)o->device, &self->plan->header->limits, libraries));
  const gpu_info *info = gpu_describe(self->devices.list[0]);
  if (self->devices.count == 1) snprintf(r->device, sizeof r->device, "%s", info->name);
  else snprintf(r->device, sizeof r->device, "%u x %s", self->devices.count, info->name);
  r->is_gpu = true;
  r->driver_version = info->driver_version;
  return OK;
}

/* Seconds since *from; sets *from to now. */
static double lap(double *from) {
  double before = *from;
  *from = clock_seconds();
  return *from - before;
}

/* To compare exchanges with it. Without it nothing is compared. */
static void find_nccl(bench *self, const dynlib_search *libraries) {
  bench_report *r = &self->report;
  if (self->devices.count < 2 || self->options.no_ops) return;
  if (!self->devices.nccl && devices_open_nccl(&self->devices, libraries) != OK) {
    snprintf(r->nccl_note, sizeof r->nccl_note, "%s", fail_text());
    fail_clear();
  } else {
    r->nccl_version = nccl_version(self->devices.nccl);
  }
}

static status start_machine(bench *self) {
  const bench_options *o = &self->options;
  const dynlib_search libraries = {.folders = o->library_path, .program_path = o->program_path};
  verbatim_stages *stages = &self->report.stages;
  double from = clock_seconds();
  TRY(open_device(self, &libraries));
  stages->device = lap(&from);
  find_nccl(self, &libraries);
  lap(&from);
  exec_options machine = {.pool = self->pool, .libraries = &libraries, .cache_dir = o->cache_dir,
                                .timed = true, .unchecked = o->unchecked, .unchecked_count = o->unchecked_count};
  devices_use(&self->devices, &machine);
  TRY(exec_open(&self->machine, self->plan, &machine, &self->host));
  stages->memory = lap(&from);
  TRY(exec_start_kernels(self->machine, &self->host));
  TRY(exec_start_check(self->machine));
  stages->kernels = lap(&from);
  TRY(exec_bench_open(&self->timer, self->machine));
  TRY(bench_fill_weights(self));
  self->report.fill_seconds = lap(&from);
  exec_start_tables(self->machine);
  stages->tables = lap(&from);
  TRY(exec_start_library(self->machine));
  stages->library = lap(&from);
  TRY(exec_start_graphs(self->machine));
  stages->graphs = lap(&from);
  TRY(bench_fill_kv(self));
  self->report.fill_seconds += lap(&from);
  return OK;
}

static void describe(bench *self) {
  exec_counts counts = exec_count(self->machine);
  bench_report *r = &self->report;
  r->rates = self->options.rates;
  if (self->devices.count && !(r->rates.bytes > 0)) r->rates.bytes = BENCH_BYTES_PER_S;
  if (self->devices.count && !(r->rates.flops > 0)) r->rates.flops = BENCH_FLOPS_PER_S;
  if (self->devices.count && !(r->rates.link_bytes > 0)) r->rates.link_bytes = BENCH_LINK_BYTES_PER_S;
  r->ranks = self->plan->header->limits.ranks;
  r->planned_bytes = align_up(self->plan->header->device_bytes, GPU_GRANULARITY);
  for (uint32_t i = 0; i < self->devices.count; i++) r->reserved_bytes[i] = gpu_reserved_bytes(self->devices.list[i]);
  r->graphs = counts.graphs;
  r->nvrtc_version = counts.nvrtc_version;
  r->cublaslt_version = counts.cublaslt_version;
  r->stages.kernels_cached = counts.kernels_cached;
  r->stages.kernels_compiled = counts.kernels_compiled;
}

/* === What is measured ======================================================================================================= */

static status check_list(const bench_list *list, const char *what, uint32_t most) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->values[i] < 1 || list->values[i] > most)
      return FAIL(ERR_USAGE, "bench: %s: expected 1 to %u, as the plan allows, found %u", what, most, list->values[i]);
  return OK;
}

/* Without a list: the defaults that the plan allows, or its maximum if it allows none. */
static bench_list choose(const bench_list *asked, const uint32_t *defaults, size_t count, uint32_t most) {
  bench_list list = *asked;
  for (size_t i = 0; i < count && asked->count == 0; i++)
    if (defaults[i] <= most) list.values[list.count++] = defaults[i];
  if (list.count == 0) list.values[list.count++] = most;
  return list;
}

static status choose_sizes(bench *self) {
  static const uint32_t rows[] = {1, 8, 16, 32, 64}, of_ops[] = {1024, 8192}, of_steps[] = {128, 1024};
  const plan_limits *limits = &self->plan->header->limits;
  const bench_options *o = &self->options;
  TRY(check_list(&o->rows, "--rows", limits->max_batch_tokens));
  TRY(check_list(&o->contexts, "--context", limits->max_len));
  TRY(check_list(&o->prompts, "--prompt", limits->max_len));
  self->rows = choose(&o->rows, rows, ARRAY_LEN(rows), limits->max_batch_tokens);
  if (o->rows.count == 0 && self->rows.values[self->rows.count - 1] < limits->max_batch_tokens)
    self->rows.values[self->rows.count++] = limits->max_batch_tokens;
  self->op_contexts = choose(&o->contexts, of_ops, ARRAY_LEN(of_ops), limits->max_len);
  self->step_contexts = choose(&o->contexts, of_steps, ARRAY_LEN(of_steps), limits->max_len);
  return OK;
}

static status take_memory(bench *self) {
  const plan_limits *limits = &self->plan->header->limits;
  self->decodes_max = self->step_contexts.count * BENCH_BATCHES_MAX * (1 + limits->draft_tokens);
  TRY(arena_take(&self->host, self->decodes_max * sizeof *self->report.decodes, &self->report.decodes));
  TRY(arena_take(&self->host, limits->kv_pages * sizeof *self->pages, &self->pages));
  TRY(arena_take(&self->host, limits->max_batch_tokens * sizeof *self->position, &self->position));
  for (uint32_t i = 0; i < limits->kv_pages; i++) self->pages[i] = i;
  return OK;
}

static status run(bench *self) {
  self->random = SEED;
  self->report.stages.plan = self->options.plan_seconds;
  TRY(choose_sizes(self));
  TRY(bench_ops_check(self));
  TRY(take_memory(self));
  bench_say(self, "starting");
  TRY(start_machine(self));
  describe(self);
  if (!self->options.no_ops) TRY(bench_ops_measure(self));
  return self->options.op ? OK : bench_model_measure(self);
}

status bench_open(bench **out, const bench_options *options) {
  bench *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for the bench");
  self->options = *options;
  self->plan = options->plan;
  status result = run(self);
  if (result != OK) bench_close(self);
  else *out = self;
  return result;
}

const bench_report *bench_results(const bench *self) { return &self->report; }

void bench_close(bench *self) {
  if (!self) return;
  exec_close(self->machine);
  devices_close(&self->devices);
  cpu_pool_close(self->pool);
  free(self->report.ops);
  arena_close(&self->host);
  free(self);
}
