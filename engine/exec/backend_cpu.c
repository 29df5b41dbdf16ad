/* backend_cpu.c - the CPU backend (backend.h): the work of every call is done when it returns, so there is nothing to wait for.
 *
 * Ops are the functions of engine/cpu, which share their work among the threads of the pool. Device memory is host memory, mapped zeroed.
 * There are no graphs, no libraries and no branches. Read next: cpu/cpu.h. */
#include "exec/backend.h"
#include "base/clock.h"
#include <stdio.h>
#include <string.h>

typedef struct backend_cpu {
  backend common;
  cpu_pool *pool;
  double marks[BACKEND_MARKS_MAX]; /* seconds */
  uint32_t mark_count;
} backend_cpu;

static backend_cpu *own(backend *self) { return (backend_cpu *)(void *)self; }
static const backend_cpu *own_const(const backend *self) { return (const backend_cpu *)(const void *)self; }
static void *at(uint64_t address) { return (void *)(uintptr_t)address; }

/* === What the CPU has no need of ============================================================================================ */

static status start_kernels(backend *self, arena *host) {
  (void)self, (void)host;
  return OK;
}

static status check_library(backend *self) {
  (void)self;
  return OK;
}

static bool uses_library(const backend *self, uint32_t op, uint32_t rows) {
  (void)self, (void)op, (void)rows;
  return false;
}

static void count(const backend *self, exec_counts *counts) { (void)self, (void)counts; }
static void record(backend *self, enum backend_queue queue, uint32_t side) { (void)self, (void)queue, (void)side; }
static void wait(backend *self, uint32_t side) { (void)self, (void)side; }
static void sync(backend *self, const char *what) { (void)self, (void)what; }
static void close(backend *self) { (void)self; }

/* === The self-check ========================================================================================================= */

/* The one function of an op can run all its probes. */
static bool can_run_probe(const backend *self, uint32_t variant, uint32_t probe) {
  (void)self, (void)variant, (void)probe;
  return true;
}

static const uint8_t *run_probe(backend *self, uint32_t variant, uint32_t probe, uint8_t *image, self_check_launch *launch) {
  self_check_build(probe, image, (uint64_t)(uintptr_t)image, launch);
  kernels_row(self->plan->kernels[variant].kernel)->run_cpu(launch->args, own(self)->pool);
  return image;
}

static void name_variant(const backend *self, uint32_t variant, char *text, size_t text_bytes) {
  snprintf(text, text_bytes, "the CPU's %s, %s", kernels_row(self->plan->kernels[variant].kernel)->name, cpu_isa());
}

static void name(const backend *self, char *text, size_t text_bytes) {
  (void)self;
  snprintf(text, text_bytes, "%s", BACKEND_CPU_NAME);
}

/* === Ops and copies ========================================================================================================= */

static void launch(backend *self, const backend_launch *l) {
  const exec_op *op = backend_launched(self, l);
  op->row->run_cpu(op->args[l->side], own(self)->pool);
}

static void upload(backend *self, enum backend_queue queue, uint64_t target, const void *source, uint64_t bytes) {
  (void)self, (void)queue;
  memcpy(at(target), source, bytes);
}

static void download(backend *self, enum backend_queue queue, void *target, uint64_t source, uint64_t bytes) {
  (void)self, (void)queue;
  memcpy(target, at(source), bytes);
}

static void fill(backend *self, uint64_t target, uint32_t word, uint64_t bytes) {
  (void)self;
  memset(at(target), (int)(word & 0xff), bytes);
}

static void read_rows(backend *self, uint64_t base, const uint64_t *offsets, uint32_t rows, uint64_t row_bytes, void *to) {
  (void)self;
  for (uint32_t i = 0; i < rows; i++) memcpy((uint8_t *)to + i * row_bytes, at(base + offsets[i]), row_bytes);
}

static void write(backend *self, uint64_t target, const void *from, uint64_t bytes) {
  (void)self;
  memcpy(at(target), from, bytes);
}

static void repeat(backend *self, uint64_t target, uint64_t bytes, const void *pattern, uint64_t pattern_bytes) {
  (void)self;
  for (uint64_t done = 0; done < bytes; done += pattern_bytes)
    memcpy(at(target + done), pattern, bytes - done < pattern_bytes ? bytes - done : pattern_bytes);
}

/* === Times ================================================================================================================== */

static status make_marks(backend *self, uint32_t marks, uint32_t *first) {
  ASSERT(marks <= BACKEND_MARKS_MAX - own(self)->mark_count);
  *first = own(self)->mark_count;
  own(self)->mark_count += marks;
  return OK;
}

static void mark(backend *self, uint32_t number) { own(self)->marks[number] = clock_seconds(); }
static double elapsed_us(backend *self, uint32_t first, uint32_t last) {
  return 1e6 * (own(self)->marks[last] - own(self)->marks[first]);
}

/* === Opening ================================================================================================================ */

static weights_target weights(backend *self) {
  return (weights_target){.ranks = 1, .address = {backend_address(self, REGION_WEIGHTS, 0)},
                          .threads = cpu_pool_threads(own_const(self)->pool)};
}

static const backend_calls CALLS = {
  .start_kernels = start_kernels, .check_library = check_library, .weights = weights,
  .can_run_probe = can_run_probe, .run_probe = run_probe, .name_variant = name_variant, .name = name,
  .launch = launch, .upload = upload, .download = download, .fill = fill,
  .record = record, .wait = wait, .sync = sync,
  .read = read_rows, .write = write, .repeat = repeat,
  .make_marks = make_marks, .mark = mark, .elapsed_us = elapsed_us,
  .uses_library = uses_library, .count = count, .close = close,
};

status backend_cpu_open(const plan *p, const exec_options *options, uint64_t host_bytes, arena *host, backend **out) {
  void *memory, *device_memory, *block;
  TRY(arena_take(host, sizeof(backend_cpu), &memory));
  TRY(arena_map(host, p->header->device_bytes + 256, &device_memory));
  TRY(arena_map(host, host_bytes, &block));
  backend_cpu *self = memory;
  self->pool = options->pool;
  self->common = (backend){.calls = &CALLS, .plan = p, .base = (uint64_t)(uintptr_t)device_memory, .host = block,
                           .advice = BACKEND_CPU_ADVICE, .is_zeroed = true};
  *out = &self->common;
  return OK;
}
