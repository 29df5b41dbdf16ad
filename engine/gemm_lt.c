/* gemm_lt.c - the only file that calls cuBLASLt (see gemm_lt.h).
 *
 * The library is column-major: our y[rows][n] = x w^T is its D (n x rows) = A^T B with A = w (k x n, leading dimension k) and
 * B = x (k x rows, leading dimension ldx). Descriptors are opaque words which the library's Init entry points fill in place and
 * whose row count is set anew for each run, so that nothing is allocated. Read next: cuda_api.h. */
#include "gemm_lt.h"
#include "cuda_api.h"
#include "dynlib.h"
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 64u
#define POINTER_ALIGNMENT 16u /* what gemm_lt_run promises of x, w and y */

typedef struct cublaslt {
  CUBLASLT_API(CUDA_API_MEMBER)
} cublaslt;

struct gemm_lt {
  cublaslt api;
  dynlib library;
  lt_handle handle;
  uint64_t version;
};

_Static_assert(sizeof((gemm_lt_op){0}.desc) == LT_DESC_WORDS * 8, "layout");
_Static_assert(sizeof((gemm_lt_op){0}.x) == LT_LAYOUT_WORDS * 8, "layout");
_Static_assert(sizeof((gemm_lt_algo){0}.words) == LT_ALGO_WORDS * 8, "layout");

static status check(unsigned int code, const char *call) {
  if (code == LT_OK) return OK;
  return FAIL(ERR_DEVICE, "%s: status %u", call, code);
}

static status open_library(gemm_lt *self, const dynlib_search *search) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
  TRY(dynlib_open(search, names, "cuBLASLt", "install CUDA 13 or the Python wheel nvidia-cublas, or plan without --profile",
                  &self->library));
  cublaslt *API = &self->api;
  cublaslt_version *version = NULL;
  const dynlib_symbol symbols[] = {CUBLASLT_API(CUDA_API_SYMBOL){CUBLASLT_VERSION_SYMBOL, &version}};
  TRY(dynlib_resolve(&self->library, symbols, ARRAY_LEN(symbols)));
  self->version = version();
  return check(self->api.cublasLtCreate(&self->handle), "cublasLtCreate");
}

status gemm_lt_open(gpu *device, const dynlib_search *search, gemm_lt **out) {
  ASSERT(device && out);
  ASSERT(!gpu_frozen(device));
  gemm_lt *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for %zu bytes", sizeof *self);
  status s = open_library(self, search);
  if (s != OK) {
    gemm_lt_close(self);
    return s;
  }
  *out = self;
  return OK;
}

void gemm_lt_close(gemm_lt *self) {
  if (!self) return;
  if (self->handle) self->api.cublasLtDestroy(self->handle);
  dynlib_close(&self->library);
  free(self);
}

uint64_t gemm_lt_version(const gemm_lt *self) { return self->version; }

static status describe(gemm_lt *self, gemm_lt_op *op) {
  const cublaslt *api = &self->api;
  const gemm_lt_shape *shape = &op->shape;
  const int32_t transpose = LT_OP_T;
  const unsigned int y_type = shape->y_f32 ? LT_TYPE_F32 : LT_TYPE_BF16;
  TRY(check(api->cublasLtMatmulDescInit_internal(op->desc, sizeof op->desc, LT_COMPUTE_F32, LT_TYPE_F32), "cublasLtMatmulDescInit"));
  TRY(check(api->cublasLtMatmulDescSetAttribute(op->desc, LT_DESC_TRANS_A, &transpose, sizeof transpose),
            "cublasLtMatmulDescSetAttribute"));
  TRY(check(api->cublasLtMatrixLayoutInit_internal(op->w, sizeof op->w, LT_TYPE_BF16, shape->k, shape->n, shape->k),
            "cublasLtMatrixLayoutInit"));
  TRY(check(api->cublasLtMatrixLayoutInit_internal(op->x, sizeof op->x, LT_TYPE_BF16, shape->k, 1, shape->ldx),
            "cublasLtMatrixLayoutInit"));
  return check(api->cublasLtMatrixLayoutInit_internal(op->y, sizeof op->y, y_type, shape->n, 1, shape->ldy),
               "cublasLtMatrixLayoutInit");
}

status gemm_lt_prepare(gemm_lt *self, const gemm_lt_shape *shape, const gemm_lt_algo *algo, gemm_lt_op *op) {
  ASSERT(shape->n > 0 && shape->k > 0);
  ASSERT(shape->ldx >= shape->k && shape->ldy >= shape->n);
  gemm_lt_op made = {.shape = *shape, .algo = *algo};
  TRY(describe(self, &made));
  *op = made;
  return OK;
}

static status set_rows(gemm_lt *self, gemm_lt_op *op, uint64_t rows) {
  ASSERT(rows > 0);
  TRY(check(self->api.cublasLtMatrixLayoutSetAttribute(op->x, LT_LAYOUT_COLS, &rows, sizeof rows), "cublasLtMatrixLayoutSetAttribute"));
  return check(self->api.cublasLtMatrixLayoutSetAttribute(op->y, LT_LAYOUT_COLS, &rows, sizeof rows), "cublasLtMatrixLayoutSetAttribute");
}

status gemm_lt_check(gemm_lt *self, gemm_lt_op *op, uint32_t rows, uint64_t *workspace_bytes) {
  TRY(set_rows(self, op, rows));
  lt_heuristic result;
  memset(&result, 0, sizeof result);
  unsigned int code = self->api.cublasLtMatmulAlgoCheck(self->handle, op->desc, op->w, op->x, op->y, op->y, op->algo.words, &result);
  if (code != LT_OK || result.state != LT_OK)
    return FAIL(ERR_DEVICE, "cuBLASLt %llu cannot run the pinned algorithm for n %u, k %u, %u rows: status %u; hint: make the profile "
                "and the plan anew with this library", (unsigned long long)self->version, op->shape.n, op->shape.k, rows,
                code != LT_OK ? code : result.state);
  *workspace_bytes = result.workspace_bytes;
  return OK;
}

status gemm_lt_run(gemm_lt *self, gemm_lt_op *op, gpu_stream *stream, uint32_t rows, uint64_t x, uint64_t w, uint64_t y,
                   uint64_t workspace) {
  ASSERT(x % POINTER_ALIGNMENT == 0 && w % POINTER_ALIGNMENT == 0);
  ASSERT(y % POINTER_ALIGNMENT == 0 && workspace % 256 == 0);
  ASSERT(workspace || op->algo.workspace_bytes == 0);
  static const float one = 1.0f, zero = 0.0f;
  TRY(set_rows(self, op, rows));
  void *target = (void *)(uintptr_t)y;
  unsigned int code = self->api.cublasLtMatmul(
      self->handle, op->desc, &one, (const void *)(uintptr_t)w, op->w, (const void *)(uintptr_t)x, op->x, &zero, target, op->y,
      target, op->y, op->algo.words, (void *)(uintptr_t)workspace, op->algo.workspace_bytes, (cuda_stream)stream);
  if (code == LT_OK) return OK;
  return FAIL(ERR_DEVICE, "cuBLASLt refuses n %u, k %u, %u rows: status %u", op->shape.n, op->shape.k, rows, code);
}

/* === Candidates ============================================================================================================ */

static status set_preference(gemm_lt *self, uint64_t *preference, size_t bytes, uint64_t workspace_max) {
  const cublaslt *api = &self->api;
  const uint32_t alignment = POINTER_ALIGNMENT, reduction = LT_REDUCTION_NONE;
  TRY(check(api->cublasLtMatmulPreferenceInit_internal(preference, bytes), "cublasLtMatmulPreferenceInit"));
  TRY(check(api->cublasLtMatmulPreferenceSetAttribute(preference, LT_PREF_WORKSPACE, &workspace_max, sizeof workspace_max),
            "cublasLtMatmulPreferenceSetAttribute(workspace)"));
  TRY(check(api->cublasLtMatmulPreferenceSetAttribute(preference, LT_PREF_REDUCTION_MASK, &reduction, sizeof reduction),
            "cublasLtMatmulPreferenceSetAttribute(reduction)"));
  for (unsigned int attribute = LT_PREF_ALIGNMENT_A; attribute <= LT_PREF_ALIGNMENT_D; attribute++)
    TRY(check(api->cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment),
              "cublasLtMatmulPreferenceSetAttribute(alignment)"));
  return OK;
}

/* Split-K adds partial sums in another order; the reduction mask should keep it out, and this makes sure. */
static bool splits_k(const gemm_lt *self, const lt_heuristic *result) {
  int32_t split = 0;
  uint32_t reduction = 0;
  size_t written = 0;
  const cublaslt *api = &self->api;
  if (api->cublasLtMatmulAlgoConfigGetAttribute(result->algo, LT_CONFIG_SPLIT_K, &split, sizeof split, &written) != LT_OK) return true;
  if (api->cublasLtMatmulAlgoConfigGetAttribute(result->algo, LT_CONFIG_REDUCTION, &reduction, sizeof reduction, &written) != LT_OK)
    return true;
  return split > 1 || reduction != LT_REDUCTION_NONE;
}

status gemm_lt_candidates(gemm_lt *self, const gemm_lt_shape *shape, uint32_t rows, uint64_t workspace_max, gemm_lt_algo *algos,
                          uint32_t algos_max, uint32_t *count) {
  gemm_lt_op op = {.shape = *shape};
  TRY(describe(self, &op));
  TRY(set_rows(self, &op, rows));
  uint64_t preference[LT_PREFERENCE_WORDS];
  TRY(set_preference(self, preference, sizeof preference, workspace_max));
  lt_heuristic results[CANDIDATES_MAX];
  memset(results, 0, sizeof results);
  int found = 0;
  unsigned int code = self->api.cublasLtMatmulAlgoGetHeuristic(self->handle, op.desc, op.w, op.x, op.y, op.y, preference,
                                                               (int)min_u32(algos_max, CANDIDATES_MAX), results, &found);
  uint32_t kept = 0;
  for (int i = 0; code == LT_OK && i < found; i++) { /* any other code: the library knows nothing for this shape */
    if (results[i].state != LT_OK || splits_k(self, &results[i]) || results[i].workspace_bytes > workspace_max) continue;
    memcpy(algos[kept].words, results[i].algo, sizeof algos[kept].words);
    algos[kept].workspace_bytes = results[i].workspace_bytes;
    kept++;
  }
  *count = kept;
  return OK;
}
