/* cli_probe.c - `verbatim probe`: which cuBLASLt algorithms give the numerics' bits on this machine and beat our own gemm kernel.
 *
 * For every GEMM shape of a plan and every range of row counts: the library's candidates without split-K; each is compared with our
 * kernel bit for bit on random inputs at several row counts, twice; those that agree are timed, and the fastest is written to a
 * profile for `verbatim plan --profile`. A profile can only change speed: the engine compares again at every start.
 * Reads only the plan; needs the GPU. Read next: planner/profile.h, gemm_lt.h. */
#include "cli.h"
#include "cli_files.h"
#include "gemm_lt.h"
#include "gpu.h"
#include "jit.h"
#include "kernels.h"
#include "plan.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPES_MAX 64u
#define RANGES_MAX 4u
#define POINTS_MAX 3u        /* row counts tried of a range: least, middle, most */
#define CANDIDATES_MAX 48u
#define SAMPLES 9u           /* timings of which the median counts */
#define COPIES_MAX 8u        /* of the weights, used in turn so that the L2 cache does not hold them */
#define COLD_BYTES (256u << 20)
#define WORKSPACE_BYTES (32u << 20)
#define PATTERN_COUNT ((1u << 21) - 9u) /* random numbers; not a multiple of any row length, so that rows differ */
#define ALIGNMENT 256u

typedef struct shape {
  gemm_lt_shape lt;
  uint32_t rows_kind, rows_max;
} shape;

typedef struct candidate {
  gemm_lt_op op;
  bool good;
  double us[POINTS_MAX];
} candidate;

typedef struct probe {
  plan plan;
  gpu *device;
  jit *compiler;
  gemm_lt *library;
  gpu_stream *stream;
  gpu_event *first, *last;
  gpu_kernel digest;
  gpu_kernel *kernels; /* one for each of the plan's, made when first used (function null before) */
  shape shapes[SHAPES_MAX];
  uint32_t shape_count, rows_max;
  uint64_t step, x, w, y, digests, workspace; /* device addresses */
  uint64_t w_bytes;                           /* room for the copies of one shape's weights */
  step_in *host_step;                         /* pinned: the step, then digests of our kernel, then of the library, then the pattern */
  uint64_t *own_digests, *library_digests;
  uint16_t *pattern;
  json_t *entries;
  const char *plan_path, *output_path, *cache_dir;
  uint32_t device_index;
} probe;

/* === What the plan asks for ================================================================================================ */

static const gemm_args *args_of(const probe *self, const plan_op *op) {
  return (const gemm_args *)(const void *)(self->plan.args + op->args_offset);
}

/* What the library can compute. */
static bool is_plain(const gemm_args *args) { return args->batches == 1 && args->y_kind != Y_SILU; }

static bool has_shape(const probe *self, const plan_op *op, const shape *s) {
  if (op->kernel != KERNEL_gemm) return false;
  const gemm_args *args = args_of(self, op);
  return args->n == s->lt.n && args->k == s->lt.k && is_plain(args) && (args->y_kind == Y_F32) == (s->lt.y_f32 != 0);
}

static uint32_t rows_limit(const probe *self, uint32_t rows_kind) {
  const plan_limits *limits = &self->plan.header->limits;
  return rows_kind == ROWS_TOKENS ? limits->max_batch_tokens : limits->max_logit_rows;
}

static status collect_shapes(probe *self) {
  for (uint32_t i = 0; i < self->plan.op_count; i++) {
    const plan_op *op = &self->plan.ops[i];
    if (op->kernel != KERNEL_gemm || !is_plain(args_of(self, op))) continue;
    const gemm_args *args = args_of(self, op);
    uint32_t at = 0;
    while (at < self->shape_count && !has_shape(self, op, &self->shapes[at])) at++;
    if (at == SHAPES_MAX) return FAIL(ERR_LIMIT, "plan: more than %u GEMM shapes", SHAPES_MAX);
    shape *s = &self->shapes[at];
    if (at == self->shape_count) {
      self->shape_count++;
      s->lt = (gemm_lt_shape){.n = args->n, .k = args->k, .ldx = args->ldx, .ldy = args->ldy, .y_f32 = args->y_kind == Y_F32};
    }
    s->rows_max = max_u32(s->rows_max, min_u32(op->rows_max, rows_limit(self, op->rows_kind)));
    self->rows_max = max_u32(self->rows_max, s->rows_max);
  }
  return self->shape_count ? OK : FAIL(ERR_UNSUPPORTED, "plan: no unbatched gemm to measure");
}

/* The op that computes `rows` rows of a shape with our kernel, or null. */
static const plan_op *own_op(const probe *self, const shape *s, uint32_t rows) {
  for (uint32_t i = 0; i < self->plan.op_count; i++) {
    const plan_op *op = &self->plan.ops[i];
    if (has_shape(self, op, s) && rows >= op->rows_min && rows <= op->rows_max && rows <= rows_limit(self, op->rows_kind)) return op;
  }
  return NULL;
}

/* === Setting up ============================================================================================================ */

static status load_kernel(probe *self, uint32_t id, const jit_spec *specs, uint32_t spec_count, uint32_t threads, uint32_t shared_bytes,
                          gpu_kernel *out) {
  const kernel_row *row = kernels_row(id);
  jit_cubin_view cubin;
  TRY(jit_compile(self->compiler, row->name, specs, spec_count, &cubin));
  const gpu_kernel_config config = {.name = row->name, .cubin = cubin.bytes, .cubin_bytes = cubin.size,
                                    .args_bytes = row->args_bytes, .threads = threads, .shared_bytes = shared_bytes};
  return gpu_kernel_load(self->device, &config, out);
}

static status variant_of(probe *self, uint32_t variant, const gpu_kernel **out) {
  gpu_kernel *made = &self->kernels[variant];
  const plan_kernel *source = &self->plan.kernels[variant];
  jit_spec specs[JIT_SPECS_MAX];
  if (source->spec_count > JIT_SPECS_MAX) return FAIL(ERR_FORMAT, "plan: a kernel with %u constants", source->spec_count);
  for (uint32_t i = 0; i < source->spec_count; i++) {
    const plan_spec *spec = &self->plan.specs[source->first_spec + i];
    specs[i] = (jit_spec){.name = plan_string(&self->plan, spec->name), .value = spec->value};
  }
  if (!made->function)
    TRY(load_kernel(self, source->kernel, specs, source->spec_count, source->threads, source->shared_bytes, made));
  *out = made;
  return OK;
}

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t copy_bytes(const shape *s) { return align_up(2ull * s->lt.n * s->lt.k, ALIGNMENT); }

static uint64_t carve(uint64_t *at, uint64_t bytes) {
  const uint64_t offset = *at;
  *at = align_up(*at + bytes, ALIGNMENT);
  return offset;
}

/* One reservation for the largest shape of each kind of buffer. */
static status reserve(probe *self) {
  uint64_t x_bytes = 0, y_bytes = 0, at = 0;
  for (uint32_t i = 0; i < self->shape_count; i++) {
    const shape *s = &self->shapes[i];
    const uint64_t rows = s->rows_max, copies = COLD_BYTES / copy_bytes(s) + 1;
    self->w_bytes = max_u64(self->w_bytes, copy_bytes(s) * (copies < COPIES_MAX ? copies : COPIES_MAX));
    x_bytes = max_u64(x_bytes, 2 * rows * s->lt.ldx);
    y_bytes = max_u64(y_bytes, 4 * rows * s->lt.ldy);
  }
  self->step = carve(&at, sizeof(step_in));
  self->digests = carve(&at, 8ull * self->rows_max);
  self->workspace = carve(&at, WORKSPACE_BYTES);
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

/* bf16 numbers of both signs with exponents 2^-9 .. 2^2: sums cancel and cut, so that another order of additions shows. */
static void write_pattern(uint16_t *pattern) {
  uint64_t state = 0x243f6a8885a308d3u;
  for (uint32_t i = 0; i < PATTERN_COUNT; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t bits = (uint32_t)(state >> 33);
    const uint32_t exponent = 118u + (bits >> 8 & 7u) + (bits >> 11 & 3u) + (bits >> 13 & 1u);
    pattern[i] = (uint16_t)((bits & 1u) << 15 | exponent << 7 | (bits >> 1 & 127u));
  }
}

/* Fills target with the pattern, over and over; target has room for one pattern more. */
static void spread_pattern(probe *self, uint64_t target, uint64_t bytes) {
  const uint64_t period = 2ull * PATTERN_COUNT;
  gpu_upload(self->device, self->stream, target, self->pattern, period);
  for (uint64_t have = period; have < bytes; have *= 2) {
    const uint64_t part = bytes - have < have ? bytes - have : have;
    gpu_copy(self->device, self->stream, target + have, target, part);
  }
}

static status open_all(probe *self) {
  TRY(plan_open(&self->plan, self->plan_path));
  TRY(collect_shapes(self));
  const dynlib_search libraries = {.folders = getenv("VERBATIM_LIBRARY_PATH"), .program_path = getenv("PATH")};
  TRY(gpu_open(self->device_index, &libraries, &self->device));
  TRY(jit_open(&libraries, self->cache_dir, NULL, 0, &self->compiler));
  TRY(gemm_lt_open(self->device, &libraries, &self->library));
  TRY(gpu_stream_open(self->device, &self->stream));
  TRY(gpu_event_open(self->device, true, &self->first));
  TRY(gpu_event_open(self->device, true, &self->last));
  self->kernels = calloc(self->plan.kernel_count + 1u, sizeof *self->kernels);
  self->entries = json_array();
  if (!self->kernels || !self->entries) return FAIL(ERR_LIMIT, "no memory for the probe");
  static const jit_spec threads[] = {{"SPEC_THREADS", 1024}};
  TRY(load_kernel(self, KERNEL_row_digest, threads, 1, 1024, 0, &self->digest));
  TRY(reserve(self));
  write_pattern(self->pattern);
  uint64_t x_bytes = self->y - self->x - 2ull * PATTERN_COUNT;
  spread_pattern(self, self->x, x_bytes);
  spread_pattern(self, self->w, self->w_bytes);
  gpu_sync(self->device, self->stream, "writing random inputs");
  return OK;
}

static void close_all(probe *self) {
  gemm_lt_close(self->library);
  jit_close(self->compiler);
  gpu_close(self->device);
  plan_close(&self->plan);
  json_decref(self->entries);
  free(self->kernels);
}

/* === Running =============================================================================================================== */

static uint64_t copy_count(const probe *self, const shape *s) {
  const uint64_t fit = self->w_bytes / copy_bytes(s);
  return fit < COPIES_MAX ? fit : COPIES_MAX;
}

static status run_own(probe *self, const shape *s, uint32_t rows, uint64_t copy) {
  const plan_op *op = own_op(self, s, rows);
  const gpu_kernel *kernel = NULL;
  ASSERT(op);
  TRY(variant_of(self, op->variant, &kernel));
  gemm_args args = *args_of(self, op);
  const uint64_t w = self->w + copy * copy_bytes(s);
  memcpy(&args.step, &self->step, sizeof args.step);
  memcpy(&args.x, &self->x, sizeof args.x);
  memcpy(&args.w, &w, sizeof args.w);
  memcpy(&args.y, &self->y, sizeof args.y);
  args.ldx = s->lt.ldx;
  args.ldy = s->lt.ldy;
  gpu_work work = {.kernel = kernel, .op = plan_string(&self->plan, op->name), .args = &args};
  for (int i = 0; i < 3; i++) work.grid[i] = (uint32_t)plan_extent(&op->grid[i], rows);
  gpu_launch(self->device, self->stream, &work);
  return OK;
}

/* op null: our kernel. */
static status run_once(probe *self, const shape *s, gemm_lt_op *op, uint32_t rows, uint64_t copy) {
  if (!op) return run_own(self, s, rows, copy);
  return gemm_lt_run(self->library, op, self->stream, rows, self->x, self->w + copy * copy_bytes(s), self->y, self->workspace);
}

static void set_step(probe *self, uint32_t rows) {
  gpu_sync(self->device, self->stream, "a measurement");
  *self->host_step = (step_in){.token_count = rows, .logit_count = rows};
  gpu_upload(self->device, self->stream, self->step, self->host_step, sizeof *self->host_step);
}

/* Digests of all rows of y after one run into memory full of NaN. */
static status digest_run(probe *self, const shape *s, gemm_lt_op *op, uint32_t rows, uint64_t *digests) {
  const uint32_t words = s->lt.y_f32 ? s->lt.n : s->lt.n / 2, stride = s->lt.y_f32 ? s->lt.ldy : s->lt.ldy / 2;
  gpu_fill32(self->device, self->stream, self->y, UINT32_MAX, (uint64_t)stride * rows);
  TRY(run_once(self, s, op, rows, 0));
  row_digest_args args = {.rows_kind = ROWS_TOKENS, .words = words, .stride = stride};
  memcpy(&args.step, &self->step, sizeof args.step);
  memcpy(&args.x, &self->y, sizeof args.x);
  memcpy(&args.digest, &self->digests, sizeof args.digest);
  const gpu_work work = {.kernel = &self->digest, .op = "row_digest", .grid = {rows, 1, 1}, .args = &args};
  gpu_launch(self->device, self->stream, &work);
  gpu_download(self->device, self->stream, digests, self->digests, 8ull * rows);
  gpu_sync(self->device, self->stream, op ? "a library algorithm" : "our gemm kernel");
  return OK;
}

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median time of a run: each sample is one pass over all copies of the weights. */
static status time_run(probe *self, const shape *s, gemm_lt_op *op, uint32_t rows, double *us) {
  double samples[SAMPLES];
  const uint64_t copies = copy_count(self, s);
  for (uint32_t i = 0; i < SAMPLES + 1; i++) { /* the first warms up */
    gpu_record(self->device, self->stream, self->first);
    for (uint64_t c = 0; c < copies; c++) TRY(run_once(self, s, op, rows, c));
    gpu_record(self->device, self->stream, self->last);
    gpu_event_sync(self->device, self->last, "a timing");
    if (i > 0) samples[i - 1] = gpu_elapsed_us(self->device, self->first, self->last) / (double)copies;
  }
  qsort(samples, SAMPLES, sizeof samples[0], compare_doubles);
  *us = samples[SAMPLES / 2];
  return OK;
}

/* === Measuring one range of one shape ====================================================================================== */

typedef struct range {
  uint32_t rows_min, rows_max, point_count;
  uint32_t points[POINTS_MAX];
} range;

static uint32_t find_candidates(probe *self, const shape *s, const range *r, candidate *found) {
  gemm_lt_algo algos[CANDIDATES_MAX];
  uint32_t kept = 0;
  for (uint32_t p = 0; p < r->point_count; p++) {
    uint32_t count = 0;
    if (gemm_lt_candidates(self->library, &s->lt, r->points[p], WORKSPACE_BYTES, algos, CANDIDATES_MAX, &count) != OK) continue;
    for (uint32_t i = 0; i < count && kept < CANDIDATES_MAX; i++) {
      uint32_t at = 0;
      while (at < kept && memcmp(found[at].op.algo.words, algos[i].words, sizeof algos[i].words) != 0) at++;
      if (at == kept && gemm_lt_prepare(self->library, &s->lt, &algos[i], &found[kept].op) == OK) found[kept++].good = true;
    }
  }
  fail_clear(); /* a shape that the library does not know is no error here */
  return kept;
}

/* Needs to serve every row count of the range, within the workspace; its demand becomes the largest one. */
static bool serves_range(probe *self, const range *r, gemm_lt_op *op) {
  uint64_t most = 0;
  bool serves = true;
  for (uint32_t rows = r->rows_min; serves && rows <= r->rows_max; rows++) {
    uint64_t bytes = 0;
    serves = gemm_lt_check(self->library, op, rows, &bytes) == OK && bytes <= WORKSPACE_BYTES;
    if (bytes > most) most = bytes;
  }
  if (serves) op->algo.workspace_bytes = most;
  fail_clear();
  return serves;
}

/* Twice the same bits as our kernel at this row count? */
static bool agrees(probe *self, const shape *s, candidate *c, uint32_t rows) {
  bool same = true;
  for (int run = 0; run < 2 && same; run++)
    same = digest_run(self, s, &c->op, rows, self->library_digests) == OK &&
           memcmp(self->own_digests, self->library_digests, 8ull * rows) == 0;
  fail_clear();
  return same;
}

static double mean(const double *values, uint32_t count) {
  double logs = 0;
  for (uint32_t i = 0; i < count; i++) logs += log(values[i]);
  return exp(logs / count);
}

static status measure(probe *self, const shape *s, const range *r, candidate *all, uint32_t count, double own_us[POINTS_MAX]) {
  for (uint32_t p = 0; p < r->point_count; p++) {
    const uint32_t rows = r->points[p];
    set_step(self, rows);
    TRY(digest_run(self, s, NULL, rows, self->own_digests));
    TRY(time_run(self, s, NULL, rows, &own_us[p]));
    for (uint32_t i = 0; i < count; i++) {
      candidate *c = &all[i];
      c->good = c->good && agrees(self, s, c, rows);
      if (c->good) c->good = time_run(self, s, &c->op, rows, &c->us[p]) == OK;
    }
  }
  fail_clear();
  return OK;
}

/* us, own_us: geometric means over the row counts tried. */
static status add_entry(probe *self, const shape *s, const range *r, const gemm_lt_algo *algo, double us, double own_us) {
  json_t *words = json_array();
  for (int i = 0; i < 8; i++) {
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)algo->words[i]);
    json_array_append_new(words, json_string(digits));
  }
  json_t *entry = json_pack("{s:i, s:i, s:s, s:i, s:i, s:o, s:I, s:f, s:f, s:b}", "n", (int)s->lt.n, "k", (int)s->lt.k, "out",
                            s->lt.y_f32 ? "f32" : "bf16", "rows_min", (int)r->rows_min, "rows_max", (int)r->rows_max, "algo", words,
                            "workspace_bytes", (json_int_t)algo->workspace_bytes, "us", us, "own_us", own_us, "use", us < own_us);
  if (!entry || json_array_append_new(self->entries, entry) != 0) return FAIL(ERR_LIMIT, "no memory for a profile entry");
  return OK;
}

static status probe_range(probe *self, const shape *s, const range *r) {
  candidate *all = calloc(CANDIDATES_MAX, sizeof *all);
  if (!all) return FAIL(ERR_LIMIT, "no memory for candidates");
  double own_us[POINTS_MAX];
  const uint32_t count = find_candidates(self, s, r, all);
  for (uint32_t i = 0; i < count; i++) all[i].good = serves_range(self, r, &all[i].op);
  status result = measure(self, s, r, all, count, own_us);
  const candidate *best = NULL;
  uint32_t in_class = 0;
  for (uint32_t i = 0; result == OK && i < count; i++) {
    if (!all[i].good) continue;
    in_class++;
    if (!best || mean(all[i].us, r->point_count) < mean(best->us, r->point_count)) best = &all[i];
  }
  if (result == OK) {
    const double own = mean(own_us, r->point_count);
    fprintf(stderr, "n %6u k %6u %s rows %5u..%-5u ours %8.1f us, %2u of %2u algorithms give our bits", s->lt.n, s->lt.k,
            s->lt.y_f32 ? "f32 " : "bf16", r->rows_min, r->rows_max, own, in_class, count);
    if (best) fprintf(stderr, ", best %8.1f us\n", mean(best->us, r->point_count));
    else fprintf(stderr, "\n");
    if (best) result = add_entry(self, s, r, &best->op.algo, mean(best->us, r->point_count), own);
  }
  free(all);
  return result;
}

static status probe_shape(probe *self, const shape *s) {
  static const uint32_t firsts[RANGES_MAX] = {1, 17, 65, 257};
  for (uint32_t i = 0; i < RANGES_MAX && firsts[i] <= s->rows_max; i++) {
    range r = {.rows_min = firsts[i], .rows_max = i + 1 < RANGES_MAX ? min_u32(firsts[i + 1] - 1, s->rows_max) : s->rows_max};
    const uint32_t wanted[POINTS_MAX] = {r.rows_min, r.rows_min + (r.rows_max - r.rows_min) / 2, r.rows_max};
    for (uint32_t p = 0; p < POINTS_MAX; p++) {
      if (!own_op(self, s, wanted[p])) continue;
      if (r.point_count == 0 || r.points[r.point_count - 1] != wanted[p]) r.points[r.point_count++] = wanted[p];
    }
    if (r.point_count > 0) TRY(probe_range(self, s, &r));
  }
  return OK;
}

/* === Command =============================================================================================================== */

static status write_profile(probe *self) {
  const gpu_info *info = gpu_describe(self->device);
  char driver[32], *temporary = malloc(strlen(self->output_path) + sizeof ".tmp");
  snprintf(driver, sizeof driver, "CUDA %u.%u", info->driver_version / 1000, info->driver_version % 1000 / 10);
  json_t *root = json_pack("{s:s, s:s, s:I, s:O}", "device", info->name, "driver", driver, "library_version",
                           (json_int_t)gemm_lt_version(self->library), "entries", self->entries);
  status result = root && temporary ? OK : FAIL(ERR_LIMIT, "no memory for the profile");
  if (result == OK) {
    sprintf(temporary, "%s.tmp", self->output_path);
    if (json_dump_file(root, temporary, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) != 0 || rename(temporary, self->output_path) != 0)
      result = FAIL(ERR_IO, "%s cannot be written", self->output_path);
    if (result != OK) remove(temporary);
  }
  json_decref(root);
  free(temporary);
  return result;
}

static const char help[] =
    "usage: verbatim probe PLAN -o PROFILE.json [--device N] [--cache-dir DIR]\n"
    "       verbatim probe --copy MODEL_DIR [--threads N] [--device N] [--json]\n"
    "Measures which cuBLASLt algorithms give the bits of our gemm kernel for the plan's shapes, and how fast they are.\n"
    "Use the result with: verbatim plan ... --profile PROFILE.json\n"
    "--copy measures how fast the model's files can reach the GPU; compare with verbatim run --stats.\n";

static status read_arguments(probe *self, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    const bool takes_value = !strcmp(word, "-o") || !strcmp(word, "--device") || !strcmp(word, "--cache-dir");
    if (takes_value && !value) return FAIL(ERR_USAGE, "probe: %s: expected a value; hint: verbatim probe --help", word);
    if (!strcmp(word, "-o")) self->output_path = value;
    else if (!strcmp(word, "--cache-dir")) self->cache_dir = value;
    else if (!strcmp(word, "--device")) {
      char *end = NULL;
      const char *digits = strncmp(value, "gpu:", 4) == 0 ? value + 4 : value;
      const unsigned long index = strtoul(digits, &end, 10);
      if (*digits < '0' || *digits > '9' || *end || index > 1023)
        return FAIL(ERR_USAGE, "probe: --device: expected a GPU's number, found \"%.40s\"", value);
      self->device_index = (uint32_t)index;
    } else if (word[0] == '-' || self->plan_path) {
      return FAIL(ERR_USAGE, "probe: unexpected argument \"%.80s\"; hint: verbatim probe --help", word);
    } else {
      self->plan_path = word;
    }
    if (takes_value) i++;
  }
  if (!self->plan_path || !self->output_path)
    return FAIL(ERR_USAGE, "probe: expected a plan and -o PROFILE.json; hint: verbatim probe --help");
  return OK;
}

static status run(probe *self) {
  TRY(cli_files_check_output(self->output_path));
  TRY(cli_files_check_apart(self->output_path, self->plan_path, "the plan"));
  TRY(open_all(self));
  for (uint32_t i = 0; i < self->shape_count; i++) TRY(probe_shape(self, &self->shapes[i]));
  return write_profile(self);
}

int cli_probe(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
    fputs(help, stdout);
    return 0;
  }
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--copy") == 0) return cli_copy(argc, argv);
  probe self = {0};
  status result = read_arguments(&self, argc, argv);
  if (result == OK) result = run(&self);
  close_all(&self);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  return fail_exit_code(result);
}
