/* gemm_lt.c - the only file that calls cuBLASLt (see gemm_lt.h).
 *
 * The library is column-major: our y[rows][n] = x w^T is its D (n x rows) = A^T B with A = w (k x n, leading dimension k) and
 * B = x (k x rows, leading dimension ldx). Descriptors are opaque words that the library's Init entry points fill in place. Each run only
 * sets their row count, so that nothing is allocated. Read next: cuda_api.h. */
#include "gpu/gemm_lt.h"
#include "gpu/cuda_api.h"
#include "base/dynlib.h"
#include <stdlib.h>
#include <string.h>

#define HEURISTIC_MAX 64     /* answers of the library to one query */
#define CAPABILITY_MAX 1024u /* tiles or numbers of stages of one algorithm */
#define CUSTOM_MAX 15u       /* custom options tried                */
#define SPLIT_MAX 16u        /* splits of k tried                   */
#define POINTER_ALIGNMENT 16u /* alignment that gemm_lt_run requires of x, w and y */

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
  return OK;
}

status gemm_lt_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint64_t *version) {
  gemm_lt *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for %zu bytes", sizeof *self);
  status s = open_library(self, search);
  if (s == OK) {
    memcpy(path, self->library.path, sizeof self->library.path);
    *version = self->version;
  }
  gemm_lt_close(self);
  return s;
}

status gemm_lt_open(gpu *device, const dynlib_search *search, gemm_lt **out) {
  ASSERT(device && out);
  ASSERT(!gpu_frozen(device));
  gemm_lt *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for %zu bytes", sizeof *self);
  status s = open_library(self, search);
  if (s == OK) s = check(self->api.cublasLtCreate(&self->handle), "cublasLtCreate");
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

/* === The library's offers ================================================================================================= */

gemm_lt_config gemm_lt_config_of(const gemm_lt *self, const gemm_lt_algo *algo) {
  gemm_lt_config found = {0};
  uint16_t cluster = 0; /* the one attribute of two bytes */
  size_t written = 0;
  const struct { unsigned int attribute; uint32_t *value; } words[] = {
      {LT_CONFIG_ID, &found.id}, {LT_CONFIG_TILE, &found.tile}, {LT_CONFIG_STAGES, &found.stages}, {LT_CONFIG_SPLIT_K, &found.split_k},
      {LT_CONFIG_REDUCTION, &found.reduction}, {LT_CONFIG_SWIZZLE, &found.swizzle}, {LT_CONFIG_CUSTOM, &found.custom}};
  for (size_t i = 0; i < ARRAY_LEN(words); i++)
    if (self->api.cublasLtMatmulAlgoConfigGetAttribute(algo->words, words[i].attribute, words[i].value, 4, &written) != LT_OK)
      *words[i].value = 0;
  if (self->api.cublasLtMatmulAlgoConfigGetAttribute(algo->words, LT_CONFIG_CLUSTER, &cluster, sizeof cluster, &written) == LT_OK)
    found.cluster = cluster;
  return found;
}

typedef struct listing { /* of algorithms, without duplicates */
  gemm_lt *self;
  gemm_lt_op *op; /* describes the product */
  uint64_t workspace_max;
  gemm_lt_algo *algos;
  uint32_t algos_max, count;
} listing;

static void list_algo(listing *list, const uint64_t words[LT_ALGO_WORDS], uint64_t workspace_bytes) {
  uint32_t at = 0;
  while (at < list->count && memcmp(list->algos[at].words, words, sizeof list->algos[at].words) != 0) at++;
  if (at < list->count || at == list->algos_max || workspace_bytes > list->workspace_max) return;
  memcpy(list->algos[at].words, words, sizeof list->algos[at].words);
  list->algos[at].workspace_bytes = workspace_bytes;
  list->count++;
}

static status set_preference(gemm_lt *self, uint64_t *preference, size_t bytes, uint64_t workspace_max, uint32_t reductions) {
  const cublaslt *api = &self->api;
  const uint32_t alignment = POINTER_ALIGNMENT;
  TRY(check(api->cublasLtMatmulPreferenceInit_internal(preference, bytes), "cublasLtMatmulPreferenceInit"));
  TRY(check(api->cublasLtMatmulPreferenceSetAttribute(preference, LT_PREF_WORKSPACE, &workspace_max, sizeof workspace_max),
            "cublasLtMatmulPreferenceSetAttribute(workspace)"));
  TRY(check(api->cublasLtMatmulPreferenceSetAttribute(preference, LT_PREF_REDUCTION_MASK, &reductions, sizeof reductions),
            "cublasLtMatmulPreferenceSetAttribute(reduction)"));
  for (unsigned int attribute = LT_PREF_ALIGNMENT_A; attribute <= LT_PREF_ALIGNMENT_D; attribute++)
    TRY(check(api->cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment),
              "cublasLtMatmulPreferenceSetAttribute(alignment)"));
  return OK;
}

static status list_heuristic(listing *list, uint64_t workspace_max, uint32_t reductions) {
  gemm_lt *self = list->self;
  uint64_t preference[LT_PREFERENCE_WORDS];
  TRY(set_preference(self, preference, sizeof preference, workspace_max, reductions));
  lt_heuristic results[HEURISTIC_MAX];
  memset(results, 0, sizeof results);
  int found = 0;
  gemm_lt_op *op = list->op;
  unsigned int code = self->api.cublasLtMatmulAlgoGetHeuristic(self->handle, op->desc, op->w, op->x, op->y, op->y, preference,
                                                               HEURISTIC_MAX, results, &found);
  for (int i = 0; code == LT_OK && i < found; i++) /* any other code: the library has no algorithm for this shape */
    if (results[i].state == LT_OK) list_algo(list, results[i].algo, results[i].workspace_bytes);
  return OK;
}

status gemm_lt_offered(gemm_lt *self, const gemm_lt_shape *shape, uint32_t rows, uint64_t workspace_max, gemm_lt_algo *algos,
                       uint32_t algos_max, uint32_t *count) {
  gemm_lt_op op = {.shape = *shape};
  listing list = {.self = self, .op = &op, .workspace_max = workspace_max, .algos = algos, .algos_max = algos_max};
  TRY(describe(self, &op));
  TRY(set_rows(self, &op, rows));
  const uint64_t rooms[] = {workspace_max, workspace_max / 8, 0};
  for (size_t i = 0; i < ARRAY_LEN(rooms); i++) {
    TRY(list_heuristic(&list, rooms[i], LT_REDUCTION_NONE));
    TRY(list_heuristic(&list, rooms[i], LT_REDUCTION_ALL));
  }
  *count = list.count;
  return OK;
}

/* === Every configuration =================================================================================================== */

typedef struct capability { /* of one algorithm id */
  uint32_t tiles[CAPABILITY_MAX], stages[CAPABILITY_MAX], tile_count, stage_count;
  uint32_t reductions, swizzles, custom_max;
  int32_t splits_k;
} capability;

static uint32_t read_ids(const gemm_lt *self, const uint64_t *algo, unsigned int attribute, uint32_t ids[CAPABILITY_MAX]) {
  size_t bytes = 0;
  ids[0] = 0; /* undefined, accepted by an algorithm without this capability */
  if (self->api.cublasLtMatmulAlgoCapGetAttribute(algo, attribute, ids, 4 * CAPABILITY_MAX, &bytes) != LT_OK || bytes < 4) return 1;
  return (uint32_t)(bytes / 4);
}

static void read_capability(const gemm_lt *self, const uint64_t *algo, capability *can) {
  size_t bytes = 0;
  const cublaslt *api = &self->api;
  *can = (capability){0};
  can->tile_count = read_ids(self, algo, LT_CAP_TILES, can->tiles);
  can->stage_count = read_ids(self, algo, LT_CAP_STAGES, can->stages);
  api->cublasLtMatmulAlgoCapGetAttribute(algo, LT_CAP_SPLIT_K, &can->splits_k, 4, &bytes); /* values that it does not report stay 0 */
  api->cublasLtMatmulAlgoCapGetAttribute(algo, LT_CAP_REDUCTIONS, &can->reductions, 4, &bytes);
  api->cublasLtMatmulAlgoCapGetAttribute(algo, LT_CAP_SWIZZLES, &can->swizzles, 4, &bytes);
  api->cublasLtMatmulAlgoCapGetAttribute(algo, LT_CAP_CUSTOM_MAX, &can->custom_max, 4, &bytes);
  can->custom_max = min_u32(can->custom_max, CUSTOM_MAX);
}

/* Lists the algorithm if the library accepts its configuration. */
static bool try_algo(listing *list, const uint64_t *algo) {
  gemm_lt_op *op = list->op;
  lt_heuristic result;
  memset(&result, 0, sizeof result);
  if (list->self->api.cublasLtMatmulAlgoCheck(list->self->handle, op->desc, op->w, op->x, op->y, op->y, algo, &result) != LT_OK ||
      result.state != LT_OK)
    return false;
  list_algo(list, algo, result.workspace_bytes);
  return true;
}

static void set(const listing *list, uint64_t *algo, unsigned int attribute, uint32_t value) {
  const uint16_t cluster = (uint16_t)value; /* the check below refuses values that could not be set */
  if (attribute == LT_CONFIG_CLUSTER) list->self->api.cublasLtMatmulAlgoConfigSetAttribute(algo, attribute, &cluster, sizeof cluster);
  else list->self->api.cublasLtMatmulAlgoConfigSetAttribute(algo, attribute, &value, sizeof value);
}

static void list_splits(listing *list, const capability *can, uint64_t *algo) {
  for (uint32_t split = 2; split <= SPLIT_MAX && can->splits_k; split++) {
    set(list, algo, LT_CONFIG_SPLIT_K, split);
    for (uint32_t reduction = 1; reduction <= LT_REDUCTION_ALL; reduction <<= 1) {
      if (!(can->reductions & reduction)) continue;
      set(list, algo, LT_CONFIG_REDUCTION, reduction);
      try_algo(list, algo);
    }
  }
}

static void list_near(listing *list, const capability *can, uint64_t *algo) {
  for (uint32_t custom = 0; custom <= can->custom_max; custom++) {
    set(list, algo, LT_CONFIG_CUSTOM, custom);
    for (uint32_t swizzle = 0; swizzle <= min_u32(can->swizzles, 1); swizzle++) {
      set(list, algo, LT_CONFIG_SWIZZLE, swizzle);
      for (uint32_t cluster = LT_CLUSTER_FIRST; cluster <= LT_CLUSTER_LAST; cluster++) {
        set(list, algo, LT_CONFIG_CLUSTER, cluster);
        try_algo(list, algo);
      }
    }
  }
}

static void list_tiles(listing *list, const capability *can, uint64_t *algo) {
  static const uint32_t clusters[] = {LT_CLUSTER_FIRST, LT_CLUSTER_FIRST + 1, LT_CLUSTER_FIRST + 3}; /* 1x1, 2x1, 1x2 */
  for (uint32_t tile = 0; tile < can->tile_count; tile++)
    for (uint32_t stage = 0; stage < can->stage_count; stage++) {
      bool is_good = false;
      set(list, algo, LT_CONFIG_TILE, can->tiles[tile]);
      set(list, algo, LT_CONFIG_STAGES, can->stages[stage]);
      for (uint32_t custom = 0; custom <= can->custom_max && !is_good; custom++) {
        set(list, algo, LT_CONFIG_CUSTOM, custom);
        for (size_t i = 0; i < ARRAY_LEN(clusters); i++) {
          set(list, algo, LT_CONFIG_CLUSTER, clusters[i]);
          is_good |= try_algo(list, algo);
        }
      }
    }
}

status gemm_lt_list(gemm_lt *self, const gemm_lt_shape *shape, uint32_t rows, uint64_t workspace_max, gemm_lt_list_kind kind,
                    const gemm_lt_algo *like, gemm_lt_algo *algos, uint32_t algos_max, uint32_t *count) {
  gemm_lt_op op = {.shape = *shape};
  listing list = {.self = self, .op = &op, .workspace_max = workspace_max, .algos = algos, .algos_max = algos_max};
  const unsigned int y = shape->y_f32 ? LT_TYPE_F32 : LT_TYPE_BF16;
  const gemm_lt_config config = gemm_lt_config_of(self, like);
  uint64_t algo[LT_ALGO_WORDS];
  capability can;
  TRY(describe(self, &op));
  TRY(set_rows(self, &op, rows));
  memcpy(algo, like->words, sizeof algo);
  if (kind == GEMM_LT_TILES)
    TRY(check(self->api.cublasLtMatmulAlgoInit(self->handle, LT_COMPUTE_F32, LT_TYPE_F32, LT_TYPE_BF16, LT_TYPE_BF16, y, y, (int)config.id,
                                               algo), "cublasLtMatmulAlgoInit"));
  read_capability(self, algo, &can);
  if (kind == GEMM_LT_TILES) list_tiles(&list, &can, algo);
  else if (kind == GEMM_LT_NEAR) list_near(&list, &can, algo);
  else list_splits(&list, &can, algo);
  *count = list.count;
  return OK;
}
