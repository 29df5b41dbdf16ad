/* bench/probe_gpu.c - see bench/probe_gpu.h. Reads only the plans; needs the GPU. Read next: gemm_lt.h, cli/probe.c. */
#include "bench/probe_gpu.h"
#include "base/base.h"
#include "base/dynlib.h"
#include "gpu/jit.h"
#include "ops/kernels.h"
#include "gpu/op_maps.h"
#include "plan/plan.h"
#include <stdlib.h>
#include <string.h>

#define PRODUCTS_MAX 64u
#define PLANS_MAX 16u
#define REPLAYS 31u          /* runs, of which the median counts                                                 */
#define GUESSES_US 60.0      /* a longer call is estimated from one run                                          */
#define COPIES_MAX 96u       /* copies of the weights, used in turn so that the L2 cache does not hold them      */
#define COLD_BYTES (160u << 20) /* three times the L2 cache                                                      */
#define PATTERN_COUNT ((1u << 21) - 9u) /* random numbers; not a multiple of any row length, so that rows differ */
#define ALIGNMENT 256u

typedef struct source { /* a plan and its kernels, made when first used (function null before) */
  plan plan;
  gpu_kernel *kernels;
} source;

struct bench_probe_gpu {
  source sources[PLANS_MAX];
  uint32_t source_count;
  gpu *device;
  jit *compiler;
  gemm_lt *library;
  gpu_stream *stream;
  gpu_event *first, *last;
  gpu_kernel digest;
  bench_probe_product products[PRODUCTS_MAX];
  uint32_t product_count, rows_max;
  const bench_probe_product *product; /* of the current measurements */
  uint32_t rows;
  bool overlaps;                              /* the next launch follows one of ours in a graph, as in a step */
  uint64_t step, x, w, y, digests, workspace; /* device addresses                                             */
  uint64_t w_bytes;                           /* room for the copies of one product's weights                 */
  step_in *host_step;                         /* pinned: the step, then digests of our kernel, then of the library, then the pattern */
  uint64_t *own_digests, *library_digests;
  uint16_t *pattern;
};

/* === Products of the plans ================================================================================================= */

static const gemm_args *args_of(const source *from, const plan_op *op) {
  return (const gemm_args *)(const void *)(from->plan.args + op->args_offset);
}

static bool has_shape(const source *from, const plan_op *op, const gemm_lt_shape *lt) {
  if (op->kernel != KERNEL_gemm) return false;
  const gemm_args *args = args_of(from, op);
  return args->batches == 1 && args->n == lt->n && args->k == lt->k && args->y_kind == (lt->y_f32 ? Y_F32 : Y_BF16);
}

static status collect(bench_probe_gpu *self, const source *from) {
  for (uint32_t i = 0; i < from->plan.op_count; i++) {
    const plan_op *op = &from->plan.ops[i];
    if (op->kernel != KERNEL_gemm || args_of(from, op)->batches != 1 || args_of(from, op)->y_kind == Y_SILU) continue;
    const gemm_args *args = args_of(from, op);
    uint32_t at = 0;
    while (at < self->product_count && !has_shape(from, op, &self->products[at].lt)) at++;
    if (at == PRODUCTS_MAX) return FAIL(ERR_LIMIT, "plans: more than %u GEMM shapes", PRODUCTS_MAX);
    bench_probe_product *p = &self->products[at];
    if (at == self->product_count) {
      self->product_count++;
      p->lt = (gemm_lt_shape){.n = args->n, .k = args->k, .ldx = args->ldx, .ldy = args->ldy, .y_f32 = args->y_kind == Y_F32};
    }
    p->rows_max = max_u32(p->rows_max, min_u32(op->rows_max, plan_rows_limit(&from->plan.header->limits, op->rows_kind)));
    self->rows_max = max_u32(self->rows_max, p->rows_max);
  }
  return OK;
}

/* The op that computes `rows` rows of the product with our kernel, or null. */
static const plan_op *own_op(const bench_probe_gpu *self, const bench_probe_product *product, uint32_t rows, uint32_t *at) {
  for (*at = 0; *at < self->source_count; ++*at) {
    const source *from = &self->sources[*at];
    for (uint32_t i = 0; i < from->plan.op_count; i++) {
      const plan_op *op = &from->plan.ops[i];
      uint32_t most = min_u32(op->rows_max, plan_rows_limit(&from->plan.header->limits, op->rows_kind));
      if (has_shape(from, op, &product->lt) && rows >= op->rows_min && rows <= most) return op;
    }
  }
  return NULL;
}

bool bench_probe_gpu_has(const bench_probe_gpu *self, const bench_probe_product *product, uint32_t rows) {
  uint32_t at;
  return own_op(self, product, rows, &at) != NULL;
}

/* === Setting up ============================================================================================================ */

static status load_kernel(bench_probe_gpu *self, uint32_t id, const jit_spec *specs, uint32_t spec_count, uint32_t threads,
                          uint32_t shared_bytes, gpu_kernel *out) {
  const kernel_row *row = kernels_row(id);
  jit_cubin_view cubin;
  TRY(jit_compile(self->compiler, row->name, specs, spec_count, &cubin));
  const gpu_kernel_config config = {.name = row->name, .cubin = cubin.bytes, .cubin_bytes = cubin.size,
                                    .args_bytes = row->args_bytes, .threads = threads, .shared_bytes = shared_bytes,
                                    .takes_maps = op_maps_taken(specs, spec_count)};
  return gpu_kernel_load(self->device, &config, out);
}

static uint32_t read_specs(const source *from, uint32_t variant, jit_spec specs[JIT_SPECS_MAX]) {
  const plan_kernel *kernel = &from->plan.kernels[variant];
  for (uint32_t i = 0; i < kernel->spec_count; i++) {
    const plan_spec *spec = &from->plan.specs[kernel->first_spec + i];
    specs[i] = (jit_spec){.name = plan_string(&from->plan, spec->name), .value = spec->value};
  }
  return kernel->spec_count;
}

static status variant_of(bench_probe_gpu *self, const source *from, uint32_t variant, const gpu_kernel **out) {
  gpu_kernel *made = &from->kernels[variant];
  const plan_kernel *wanted = &from->plan.kernels[variant];
  jit_spec specs[JIT_SPECS_MAX];
  if (wanted->spec_count > JIT_SPECS_MAX) return FAIL(ERR_FORMAT, "plan: a kernel with %u constants", wanted->spec_count);
  const uint32_t count = read_specs(from, variant, specs);
  if (!made->function) TRY(load_kernel(self, wanted->kernel, specs, count, wanted->threads, wanted->shared_bytes, made));
  *out = made;
  return OK;
}

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t copy_bytes(const bench_probe_product *p) { return align_up(2ull * p->lt.n * p->lt.k, ALIGNMENT); }

static uint64_t copy_count(const bench_probe_product *p) {
  const uint64_t copies = (COLD_BYTES + copy_bytes(p) - 1) / copy_bytes(p);
  return copies < COPIES_MAX ? copies : COPIES_MAX;
}

static uint64_t carve(uint64_t *at, uint64_t bytes) {
  const uint64_t offset = *at;
  *at = align_up(*at + bytes, ALIGNMENT);
  return offset;
}

/* One reservation for the largest product of each kind of buffer. */
static status reserve(bench_probe_gpu *self) {
  uint64_t x_bytes = 0, y_bytes = 0, at = 0;
  for (uint32_t i = 0; i < self->product_count; i++) {
    const bench_probe_product *p = &self->products[i];
    self->w_bytes = max_u64(self->w_bytes, copy_bytes(p) * copy_count(p));
    x_bytes = max_u64(x_bytes, 2ull * p->rows_max * p->lt.ldx);
    y_bytes = max_u64(y_bytes, 4ull * p->rows_max * p->lt.ldy);
  }
  self->step = carve(&at, sizeof(step_in));
  self->digests = carve(&at, 8ull * self->rows_max);
  self->workspace = carve(&at, BENCH_PROBE_WORKSPACE_BYTES);
  self->x = carve(&at, x_bytes + 2ull * PATTERN_COUNT);
  self->y = carve(&at, y_bytes);
  self->w = carve(&at, self->w_bytes + 2ull * PATTERN_COUNT);
  uint64_t base = 0;
  TRY(gpu_reserve(self->device, at, &base));
  uint64_t *const places[] = {&self->step, &self->digests, &self->workspace, &self->x, &self->y, &self->w};
  for (size_t i = 0; i < ARRAY_LEN(places); i++) *places[i] += base;
  void *pinned = NULL;
  TRY(gpu_pin(self->device, sizeof(step_in) + 16ull * self->rows_max + 2ull * PATTERN_COUNT, &pinned));
  self->host_step = pinned;
  self->own_digests = (uint64_t *)(void *)(self->host_step + 1);
  self->library_digests = self->own_digests + self->rows_max;
  self->pattern = (uint16_t *)(void *)(self->library_digests + self->rows_max);
  return OK;
}

/* bf16 numbers of both signs with exponents 2^-9 .. 2^2: sums cancel and lose bits, so that another order of additions shows. */
static void write_pattern(uint16_t *pattern) {
  uint64_t state = 0x243f6a8885a308d3u;
  for (uint32_t i = 0; i < PATTERN_COUNT; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t bits = (uint32_t)(state >> 33);
    const uint32_t exponent = 118u + (bits >> 8 & 7u) + (bits >> 11 & 3u) + (bits >> 13 & 1u);
    pattern[i] = (uint16_t)((bits & 1u) << 15 | exponent << 7 | (bits >> 1 & 127u));
  }
}

/* Fills target with repetitions of the pattern; target has room for one more pattern. */
static void spread_pattern(bench_probe_gpu *self, uint64_t target, uint64_t bytes) {
  const uint64_t period = 2ull * PATTERN_COUNT;
  gpu_upload(self->device, self->stream, target, self->pattern, period);
  for (uint64_t have = period; have < bytes; have *= 2) {
    const uint64_t part = bytes - have < have ? bytes - have : have;
    gpu_copy(self->device, self->stream, target + have, target, part);
  }
}

static status open_sources(bench_probe_gpu *self, const char *const *plans, uint32_t plan_count) {
  if (plan_count > PLANS_MAX) return FAIL(ERR_LIMIT, "probe: more than %u plans", PLANS_MAX);
  for (uint32_t i = 0; i < plan_count; i++) {
    source *from = &self->sources[self->source_count++];
    TRY(plan_open(&from->plan, plans[i]));
    from->kernels = calloc(from->plan.kernel_count + 1u, sizeof *from->kernels);
    if (!from->kernels) return FAIL(ERR_LIMIT, "no memory for the probe");
    TRY(collect(self, from));
  }
  return self->product_count ? OK : FAIL(ERR_UNSUPPORTED, "plan: no unbatched gemm to measure");
}

static status open_device(bench_probe_gpu *self, uint32_t device, const dynlib_search *libraries, const char *cache_dir) {
  status result = gpu_open(device, libraries, &self->device);
  if (result != OK) {
    fail_drop_hint(); /* it says to use the CPU, which has no library to measure */
    fail_prefix("probe measures a GPU, and none is available");
  }
  TRY(result);
  TRY(jit_open(libraries, cache_dir, NULL, 0, &self->compiler));
  TRY(gemm_lt_open(self->device, libraries, &self->library));
  TRY(gpu_stream_open(self->device, &self->stream));
  TRY(gpu_event_open(self->device, true, &self->first));
  TRY(gpu_event_open(self->device, true, &self->last));
  static const jit_spec threads[] = {{"SPEC_THREADS", 1024}};
  TRY(load_kernel(self, KERNEL_row_digest, threads, 1, 1024, 0, &self->digest));
  TRY(reserve(self));
  write_pattern(self->pattern);
  spread_pattern(self, self->x, self->y - self->x - 2ull * PATTERN_COUNT);
  spread_pattern(self, self->w, self->w_bytes);
  gpu_sync(self->device, self->stream, "writing random inputs");
  return OK;
}

status bench_probe_gpu_open(const char *const *plans, uint32_t plan_count, uint32_t device, const dynlib_search *libraries,
                            const char *cache_dir, bench_probe_gpu **out) {
  bench_probe_gpu *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for the probe");
  status result = open_sources(self, plans, plan_count);
  if (result == OK) result = open_device(self, device, libraries, cache_dir);
  if (result == OK) *out = self;
  else bench_probe_gpu_close(self);
  return result;
}

void bench_probe_gpu_close(bench_probe_gpu *self) {
  if (!self) return;
  gemm_lt_close(self->library);
  jit_close(self->compiler);
  gpu_close(self->device);
  for (uint32_t i = 0; i < self->source_count; i++) {
    plan_close(&self->sources[i].plan);
    free(self->sources[i].kernels);
  }
  free(self);
}

const bench_probe_product *bench_probe_gpu_products(const bench_probe_gpu *self, uint32_t *count) {
  *count = self->product_count;
  return self->products;
}

gemm_lt *bench_probe_gpu_library(bench_probe_gpu *self) { return self->library; }
const gpu_info *bench_probe_gpu_info(const bench_probe_gpu *self) { return gpu_describe(self->device); }

/* === Running =============================================================================================================== */

/* False: a kernel with these constants takes no maps. */
static bool make_maps(bench_probe_gpu *self, const source *from, const plan_op *op, const gemm_args *args, tensor_maps *maps) {
  jit_spec specs[JIT_SPECS_MAX];
  tensor_shape shapes[2];
  const uint32_t count = read_specs(from, op->variant, specs);
  if (!op_maps_taken(specs, count)) return false;
  op_maps(KERNEL_gemm, specs, count, args, self->rows, shapes);
  gpu_tensor(self->device, &shapes[0], "gemm", &maps->w);
  gpu_tensor(self->device, &shapes[1], "gemm", &maps->x);
  return true;
}

static status run_own(bench_probe_gpu *self, uint64_t w) {
  uint32_t at = 0;
  const plan_op *op = own_op(self, self->product, self->rows, &at);
  const source *from = &self->sources[at];
  const gpu_kernel *kernel = NULL;
  ASSERT(op);
  TRY(variant_of(self, from, op->variant, &kernel));
  gemm_args args = *args_of(from, op);
  memcpy(&args.step, &self->step, sizeof args.step);
  memcpy(&args.x, &self->x, sizeof args.x);
  memcpy(&args.w, &w, sizeof args.w);
  memcpy(&args.y, &self->y, sizeof args.y);
  args.ldx = self->product->lt.ldx;
  args.ldy = self->product->lt.ldy;
  gpu_work work = {.kernel = kernel, .op = plan_string(&from->plan, op->name), .args = &args, .overlaps = self->overlaps};
  for (int i = 0; i < 3; i++) work.grid[i] = (uint32_t)plan_extent(&op->grid[i], self->rows);
  tensor_maps maps;
  if (make_maps(self, from, op, &args, &maps)) work.maps = &maps;
  gpu_launch(self->device, self->stream, &work);
  return OK;
}

static status run_once(bench_probe_gpu *self, gemm_lt_op *op, uint64_t copy) {
  const uint64_t w = self->w + copy * copy_bytes(self->product);
  return op ? gemm_lt_run(self->library, op, self->stream, self->rows, self->x, w, self->y, self->workspace) : run_own(self, w);
}

/* Digests of all rows of y after one run into memory filled with NaN. */
static status digest_run(bench_probe_gpu *self, gemm_lt_op *op, uint64_t *digests) {
  const gemm_lt_shape *lt = &self->product->lt;
  const uint32_t words = lt->y_f32 ? lt->n : lt->n / 2, stride = lt->y_f32 ? lt->ldy : lt->ldy / 2;
  gpu_fill32(self->device, self->stream, self->y, UINT32_MAX, (uint64_t)stride * self->rows);
  TRY(run_once(self, op, 0));
  row_digest_args args = {.rows_kind = ROWS_TOKENS, .words = words, .stride = stride};
  memcpy(&args.step, &self->step, sizeof args.step);
  memcpy(&args.x, &self->y, sizeof args.x);
  memcpy(&args.digest, &self->digests, sizeof args.digest);
  const gpu_work work = {.kernel = &self->digest, .op = "row_digest", .grid = {self->rows, ROW_BLOCKS, 1}, .args = &args};
  gpu_launch(self->device, self->stream, &work);
  gpu_download(self->device, self->stream, digests, self->digests, 8ull * self->rows);
  gpu_sync(self->device, self->stream, op ? "a library algorithm" : "our gemm kernel");
  return OK;
}

status bench_probe_gpu_begin(bench_probe_gpu *self, const bench_probe_product *product, uint32_t rows) {
  self->product = product;
  self->rows = rows;
  gpu_sync(self->device, self->stream, "a measurement");
  *self->host_step = (step_in){.token_count = rows, .logit_count = rows};
  gpu_upload(self->device, self->stream, self->step, self->host_step, sizeof *self->host_step);
  return digest_run(self, NULL, self->own_digests);
}

bool bench_probe_gpu_agrees(bench_probe_gpu *self, gemm_lt_op *op) {
  bool same = true;
  for (int run = 0; run < 2 && same; run++)
    same = digest_run(self, op, self->library_digests) == OK &&
           memcmp(self->own_digests, self->library_digests, 8ull * self->rows) == 0;
  fail_clear();
  return same;
}

/* === Timing ================================================================================================================ */

static status time_calls(bench_probe_gpu *self, gemm_lt_op *op, uint64_t first, uint64_t count, double *us) {
  gpu_record(self->device, self->stream, self->first);
  for (uint64_t i = 0; i < count; i++) TRY(run_once(self, op, (first + i) % copy_count(self->product)));
  gpu_record(self->device, self->stream, self->last);
  gpu_event_sync(self->device, self->last, "a timing");
  *us = gpu_elapsed_us(self->device, self->first, self->last) / (double)count;
  return OK;
}

status bench_probe_gpu_guess(bench_probe_gpu *self, gemm_lt_op *op, double *us) {
  double found;
  TRY(time_calls(self, op, 0, 1, &found)); /* the first call loads the code */
  TRY(time_calls(self, op, 1, found < GUESSES_US ? 4 : 1, &found));
  *us = found;
  return OK;
}

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static status capture(bench_probe_gpu *self, gemm_lt_op *op, uint64_t calls, gpu_graph **graph) {
  TRY(run_once(self, op, 0)); /* the code must be loaded outside a capture */
  TRY(gpu_capture_begin(self->device, self->stream));
  status result = OK;
  for (uint64_t i = 0; i < calls && result == OK; i++) {
    self->overlaps = i > 0;
    result = run_once(self, op, i % copy_count(self->product));
  }
  self->overlaps = false;
  gpu_graph *made = NULL;
  TRY(gpu_capture_end(self->device, self->stream, &made));
  if (result == OK) *graph = made;
  else gpu_graph_drop(self->device, made);
  return result;
}

status bench_probe_gpu_time(bench_probe_gpu *self, gemm_lt_op *op, double *us) {
  double samples[REPLAYS];
  const uint64_t calls = copy_count(self->product);
  gpu_graph *graph = NULL;
  TRY(capture(self, op, calls, &graph));
  gpu_graph_launch(self->device, self->stream, graph, "a timing"); /* warms up */
  for (uint32_t i = 0; i < REPLAYS; i++) {
    gpu_record(self->device, self->stream, self->first);
    gpu_graph_launch(self->device, self->stream, graph, "a timing");
    gpu_record(self->device, self->stream, self->last);
    gpu_event_sync(self->device, self->last, "a timing");
    samples[i] = gpu_elapsed_us(self->device, self->first, self->last) / (double)calls;
  }
  gpu_graph_drop(self->device, graph);
  qsort(samples, REPLAYS, sizeof samples[0], compare_doubles);
  *us = samples[REPLAYS / 2];
  return OK;
}
