/* exec/library.c - the library algorithms that a plan pins: which of them run here, and whether they give our kernel's bits.
 *
 * Opened with the kernels, checked after the weights are loaded: each algorithm computes the least, a middle and the largest row count of
 * its range from random rows and the model's weights, our kernel does the same, and digests of all rows are compared. Digests are made on
 * the device, because results of 4096 rows are hundreds of megabytes. Part of the start of the GPU backend; read backend_gpu.c next. */
#include "exec/backend_gpu.h"
#include <stdio.h>
#include <string.h>

#define CHECK_ROWS 3u                   /* row counts tried of an algorithm */
#define PATTERN_COUNT ((1u << 20) - 5u) /* random numbers; not a multiple of any row length, so that rows differ */

/* === Which run here ========================================================================================================= */

/* ERR_DEVICE: the library that is here cannot run it. */
static status prepare_pin(backend_gpu *self, const exec_op *op, const plan_gemm *pin, gemm_lt_op *lt) {
  const gemm_args *args = op->args[0];
  if (pin->library_version != gemm_lt_version(self->library))
    return FAIL(ERR_DEVICE, "%s: cuBLASLt version: the plan's algorithm is for %llu, found %llu; hint: run `verbatim probe` and plan again",
                op->name, (unsigned long long)pin->library_version, (unsigned long long)gemm_lt_version(self->library));
  const gemm_lt_shape shape = {.n = args->n, .k = args->k, .ldx = args->ldx, .ldy = args->ldy, .y_f32 = args->y_kind == Y_F32};
  gemm_lt_algo algo = {.workspace_bytes = pin->workspace_bytes};
  memcpy(algo.words, pin->algo, sizeof algo.words);
  TRY(gemm_lt_prepare(self->library, &shape, &algo, lt));
  const uint32_t rows[] = {max_u32(pin->rows_min, op->plan->rows_min), min_u32(pin->rows_max, op->plan->rows_max)};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    uint64_t workspace_bytes = 0;
    TRY(gemm_lt_check(self->library, lt, rows[i], &workspace_bytes));
    if (workspace_bytes > pin->workspace_bytes)
      return FAIL(ERR_DEVICE, "%s: cuBLASLt %llu wants %llu bytes of workspace, the plan has %llu", op->name,
                  (unsigned long long)gemm_lt_version(self->library), (unsigned long long)workspace_bytes,
                  (unsigned long long)pin->workspace_bytes);
  }
  return OK;
}

/* An optional pin that cannot be used here is no error; the first such cause is recorded. */
static status leave_out(backend_gpu *self, status cause, bool is_optional) {
  if (cause == OK || !is_optional) return cause;
  if (!*self->left_out)
    snprintf(self->left_out, sizeof self->left_out, "products of the library are computed by our kernel, with the same bits: %.200s",
             fail_text());
  fail_clear();
  return OK;
}

static status add_choice(backend_gpu *self, uint32_t index, const plan_gemm *pin) {
  gpu_op *own = &self->ops[index];
  gpu_choice *choice = &own->choices[own->choice_count];
  const status found = prepare_pin(self, &self->common.ops[index], pin, &choice->lt);
  TRY(leave_out(self, found, pin->is_optional));
  if (found != OK) return OK;
  choice->pin = pin;
  own->choice_count++;
  return OK;
}

static bool fits(const exec_op *op, const plan_product *pin) {
  const gemm_args *args = op->args[0];
  return op->plan->kernel == KERNEL_gemm && args->batches == 1 && args->n == pin->n && args->k == pin->k &&
         args->y_kind == (pin->y_f32 ? Y_F32 : Y_BF16) &&
         pin->gemm.rows_min <= op->plan->rows_max && pin->gemm.rows_max >= op->plan->rows_min;
}

static status choose_unchecked(backend_gpu *self, uint32_t index, arena *host) {
  const exec_options *o = &self->options;
  const exec_op *op = &self->common.ops[index];
  void *choices;
  uint32_t count = 0;
  for (uint32_t i = 0; i < o->unchecked_count; i++) count += fits(op, &o->unchecked[i]);
  if (count == 0) return OK;
  TRY(arena_take(host, sizeof(gpu_choice) * count, &choices));
  self->ops[index].choices = choices;
  for (uint32_t i = 0; i < o->unchecked_count; i++)
    if (fits(op, &o->unchecked[i])) TRY(add_choice(self, index, &o->unchecked[i].gemm));
  return OK;
}

static status choose_pinned(backend_gpu *self, uint32_t index, arena *host) {
  const exec_op *op = &self->common.ops[index];
  void *choices;
  if (op->plan->gemm_count == 0) return OK;
  if (((const gemm_args *)op->args[0])->batches != 1)
    return FAIL(ERR_FORMAT, "plan op %s: a batched gemm has library algorithms", op->name);
  TRY(arena_take(host, sizeof(gpu_choice) * op->plan->gemm_count, &choices));
  self->ops[index].choices = choices;
  for (uint32_t i = 0; i < op->plan->gemm_count; i++) TRY(add_choice(self, index, &self->common.plan->gemms[op->plan->first_gemm + i]));
  return OK;
}

status exec_library_open(backend_gpu *self, arena *host) {
  const plan *p = self->common.plan;
  const exec_options *o = &self->options;
  if (p->gemm_count == 0 && o->unchecked_count == 0) return OK;
  bool is_optional = o->unchecked_count == 0;
  for (uint32_t i = 0; i < p->gemm_count; i++) is_optional &= p->gemms[i].is_optional;
  const status opened = gemm_lt_open(self->device, o->libraries, &self->library);
  TRY(leave_out(self, opened, is_optional));
  uint32_t chosen = 0;
  for (uint32_t i = 0; i < p->op_count && opened == OK; i++) {
    TRY(o->unchecked_count ? choose_unchecked(self, i, host) : choose_pinned(self, i, host));
    chosen += self->ops[i].choice_count;
  }
  if (chosen > 0) return OK;
  gemm_lt_close(self->library); /* no product is computed by it */
  self->library = NULL;
  return OK;
}

/* === The check ============================================================================================================== */

typedef struct check {
  backend_gpu *self;
  const gpu_kernel *digest;
  uint32_t index; /* of the op */
  const exec_op *op;
  const gemm_args *args;
  uint64_t digests; /* on the device, in the KV region, which is not in use yet */
  uint32_t rows_max; /* as there is room for */
} check;

/* Varied bf16 numbers: both signs, exponents from 2^-8 to 2^1, all significands. */
static bf16 check_value(uint64_t *state) {
  const uint64_t z = random_next(state);
  return (bf16)((z >> 63) << 15 | (119 + (z >> 32) % 10) << 7 | (z & 127));
}

/* Fills the op's rows of x with the numbers at the start of the pinned block. */
static void spread_values(const check *c, uint32_t rows) {
  gpu *device = c->self->device;
  gpu_stream *stream = c->self->streams[QUEUE_OPS];
  const uint64_t x = (uint64_t)(uintptr_t)c->args->x, bytes = 2 * ((rows - 1ull) * c->args->ldx + c->args->k);
  uint64_t have = 2ull * PATTERN_COUNT < bytes ? 2ull * PATTERN_COUNT : bytes;
  gpu_upload(device, stream, x, c->self->common.staging, have);
  for (uint64_t part; have < bytes; have += part) {
    part = have < bytes - have ? have : bytes - have;
    gpu_copy(device, stream, x + have, x, part);
  }
}

/* Digests of the rows that the library makes of x, or with lt null our kernel. */
static status digest_rows(const check *c, gemm_lt_op *lt, uint32_t rows, uint64_t *digests) {
  backend_gpu *self = c->self;
  gpu *device = self->device;
  gpu_stream *stream = self->streams[QUEUE_OPS];
  const gemm_args *args = c->args;
  const uint64_t y = (uint64_t)(uintptr_t)args->y;
  const uint32_t words = args->y_kind == Y_F32 ? args->n : args->n / 2, stride = args->y_kind == Y_F32 ? args->ldy : args->ldy / 2;
  gpu_fill32(device, stream, y, UINT32_MAX, (rows - 1ull) * stride + words);
  if (!lt) backend_gpu_launch_own(self, c->index, 0, rows, (gpu_lane){.stream = stream});
  else
    TRY(gemm_lt_run(self->library, lt, stream, rows, (uint64_t)(uintptr_t)args->x, (uint64_t)(uintptr_t)args->w, y,
                    self->library_workspace));
  row_digest_args wanted = {.rows_kind = ROWS_TOKENS, .words = words, .stride = stride, .step = args->step};
  memcpy(&wanted.x, &y, sizeof wanted.x);
  memcpy(&wanted.digest, &c->digests, sizeof wanted.digest);
  const gpu_work work = {.kernel = c->digest, .op = "check of a library algorithm", .grid = {rows, ROW_BLOCKS, 1}, .args = &wanted};
  gpu_launch(device, stream, &work);
  gpu_download(device, stream, digests, c->digests, 8ull * rows);
  gpu_sync(device, stream, "check of a library algorithm");
  return OK;
}

static status check_rows(const check *c, gemm_lt_op *lt, uint32_t rows) {
  backend_gpu *self = c->self;
  uint8_t *free_half = self->common.staging + EXEC_STAGING_HALF_BYTES;
  step_in *head = (step_in *)(void *)free_half;
  uint64_t *ours = (uint64_t *)(void *)(free_half + 256), *theirs = ours + rows;
  *head = (step_in){.token_count = rows, .logit_count = rows};
  gpu_upload(self->device, self->streams[QUEUE_OPS], (uint64_t)(uintptr_t)c->args->step, head, sizeof *head);
  TRY(digest_rows(c, NULL, rows, ours));
  TRY(digest_rows(c, lt, rows, theirs));
  for (uint32_t row = 0; row < rows; row++)
    if (ours[row] != theirs[row])
      return FAIL(ERR_MISMATCH, "%s (n %u, k %u, %u rows): cuBLASLt %llu does not give the bits of our gemm; hint: plan --profile none",
                  c->op->name, c->args->n, c->args->k, rows, (unsigned long long)gemm_lt_version(self->library));
  return OK;
}

/* Checks the first of several ops of one shape, with its own weights. */
static status check_op(check *c, uint32_t index) {
  const exec_op *op = &c->self->common.ops[index];
  const gpu_op *own = &c->self->ops[index];
  const uint32_t limit = plan_rows_limit(&c->self->common.plan->header->limits, op->plan->rows_kind);
  const uint32_t most = min_u32(min_u32(limit, op->plan->rows_max), c->rows_max);
  c->index = index;
  c->op = op;
  c->args = op->args[0];
  spread_values(c, most);
  for (uint32_t i = 0; i < own->choice_count; i++) {
    const plan_gemm *pin = own->choices[i].pin;
    const uint32_t first = max_u32(max_u32(pin->rows_min, op->plan->rows_min), 1), last = min_u32(pin->rows_max, most);
    const uint32_t rows[CHECK_ROWS] = {first, first + (last - min_u32(last, first)) / 2, last};
    for (uint32_t r = 0; r < CHECK_ROWS && first <= last; r++)
      if (r == 0 || rows[r] != rows[r - 1]) TRY(check_rows(c, &own->choices[i].lt, rows[r]));
  }
  return OK;
}

static bool seen_before(const backend_gpu *self, uint32_t index) {
  const exec_op *ops = self->common.ops, *op = &ops[index];
  const gemm_args *args = op->args[0];
  for (uint32_t i = 0; i < index; i++) {
    const gemm_args *other = ops[i].args[0];
    const plan_op *its = ops[i].plan;
    if (self->ops[i].choice_count && its->first_gemm == op->plan->first_gemm && its->rows_min == op->plan->rows_min &&
        its->rows_max == op->plan->rows_max && other->n == args->n && other->k == args->k && other->ldx == args->ldx &&
        other->ldy == args->ldy && other->y_kind == args->y_kind)
      return true;
  }
  return false;
}

static const gpu_kernel *digest_kernel(const backend_gpu *self) {
  for (uint32_t i = 0; i < self->common.plan->kernel_count; i++)
    if (self->common.plan->kernels[i].kernel == KERNEL_row_digest) return &self->kernels[i];
  return NULL;
}

status exec_library_check(backend_gpu *self) {
  if (!self->library || self->options.unchecked_count) return OK;
  const uint64_t room = self->common.plan->regions[REGION_KV].bytes / 8, pinned = (EXEC_STAGING_HALF_BYTES - 256) / 16;
  check c = {.self = self, .digest = digest_kernel(self), .digests = backend_address(&self->common, REGION_KV, 0)};
  if (!c.digest) return FAIL(ERR_FORMAT, "plan: library algorithms, but no row_digest to check them with");
  c.rows_max = (uint32_t)(room < pinned ? room : pinned);
  bf16 *values = (bf16 *)(void *)self->common.staging;
  uint64_t state = 0;
  for (uint32_t i = 0; i < PATTERN_COUNT; i++) values[i] = check_value(&state);
  for (uint32_t i = 0; i < self->common.plan->op_count; i++)
    if (self->ops[i].choice_count && !seen_before(self, i)) TRY(check_op(&c, i));
  return OK;
}
