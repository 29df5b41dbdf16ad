/* test_cuda_api.c - our own declarations of CUDA's entry points against the vendor's headers and libraries.
 *
 * Types, constants and struct layouts are compared when this file is compiled, if the headers are installed; symbols and the sizes that the
 * library itself checks are compared at run time, if the libraries are installed. Otherwise the tests report that they were skipped. */
#include "tests/unit/unit.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>) && __has_include(<cublasLt.h>)
#define HAVE_HEADERS 1
#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>
#define CUDA_API_VENDOR_TYPES
typedef cublasLtMatrixLayout_t lt_layout;
typedef cublasLtMatmulDesc_t lt_desc;
typedef cublasLtMatmulPreference_t lt_preference;
typedef cublasLtMatmulAlgo_t lt_algo;
typedef cublasLtMatmulHeuristicResult_t lt_result;
typedef CUlaunchConfig cuda_launch;
typedef CUDA_MEMCPY2D cuda_rows;
typedef CUtensorMap cuda_tensor_map;
#endif
#endif
#include "engine/gpu/cuda_api.h"
#include "engine/gpu/nccl_api.h"
#include "engine/base/dynlib.h"

#ifdef HAVE_HEADERS
/* The vendor's enums are unsigned int here, which C makes compatible with ours; every other type difference is an error. */
#define SAME_TYPE(symbol, parameters) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), unsigned int(*) parameters), #symbol);
CUDA_DRIVER_API(SAME_TYPE)
#if defined(__has_include)
#if __has_include(<nccl.h>)
#include <nccl.h>
NCCL_API(SAME_TYPE)
_Static_assert(__builtin_types_compatible_p(__typeof__(&ncclGetErrorString), nccl_error *), "ncclGetErrorString");
_Static_assert(__builtin_types_compatible_p(__typeof__(&ncclGetLastError), nccl_last_error *), "ncclGetLastError");
_Static_assert((int)NCCL_OK == (int)ncclSuccess && (int)NCCL_IN_PROGRESS == (int)ncclInProgress && (int)NCCL_BYTES == (int)ncclUint8,
               "constants of NCCL");
#endif
#endif
NVRTC_API(SAME_TYPE)
CUBLASLT_API(SAME_TYPE)
_Static_assert(__builtin_types_compatible_p(__typeof__(&cublasLtGetVersion), cublaslt_version *), "cublasLtGetVersion");
_Static_assert(!__builtin_types_compatible_p(__typeof__(&cuInit), unsigned int (*)(unsigned long)), "control: a difference is seen");

_Static_assert(sizeof(cublasLtMatrixLayoutOpaque_t) == 8 * LT_LAYOUT_WORDS, "layout words");
_Static_assert(sizeof(cublasLtMatmulDescOpaque_t) == 8 * LT_DESC_WORDS, "desc words");
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == 8 * LT_ALGO_WORDS, "algo words");
_Static_assert(sizeof(cublasLtMatmulPreferenceOpaque_t) == 8 * LT_PREFERENCE_WORDS, "preference words");
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(lt_heuristic), "result");
#define SAME_PLACE(theirs, ours) \
  _Static_assert(offsetof(cublasLtMatmulHeuristicResult_t, theirs) == offsetof(lt_heuristic, ours), #ours);
SAME_PLACE(algo, algo)
SAME_PLACE(workspaceSize, workspace_bytes)
SAME_PLACE(state, state)
SAME_PLACE(wavesCount, waves)
SAME_PLACE(reserved, reserved)


_Static_assert(sizeof(CUlaunchConfig) == sizeof(cuda_launch_config), "launch");
_Static_assert(offsetof(CUlaunchConfig, blockDimX) == offsetof(cuda_launch_config, block), "block");
_Static_assert(offsetof(CUlaunchConfig, sharedMemBytes) == offsetof(cuda_launch_config, shared_bytes), "shared memory");
_Static_assert(offsetof(CUlaunchConfig, hStream) == offsetof(cuda_launch_config, stream), "stream");
_Static_assert(offsetof(CUlaunchConfig, attrs) == offsetof(cuda_launch_config, attributes), "attributes");
_Static_assert(offsetof(CUlaunchConfig, numAttrs) == offsetof(cuda_launch_config, attribute_count), "count");
_Static_assert(sizeof(CUlaunchAttribute) == sizeof(cuda_attribute), "attribute");
_Static_assert(offsetof(CUlaunchAttribute, value) == offsetof(cuda_attribute, value), "value");
_Static_assert(sizeof(CUtensorMap) == 128, "tensor map");
#define SAME_ROWS(theirs, ours) _Static_assert(offsetof(CUDA_MEMCPY2D, theirs) == offsetof(cuda_rows_config, ours), #ours);
SAME_ROWS(srcXInBytes, source_x)
SAME_ROWS(srcMemoryType, source_type)
SAME_ROWS(srcDevice, source)
SAME_ROWS(srcPitch, source_pitch)
SAME_ROWS(dstXInBytes, target_x)
SAME_ROWS(dstMemoryType, target_type)
SAME_ROWS(dstDevice, target)
SAME_ROWS(dstPitch, target_pitch)
SAME_ROWS(WidthInBytes, row_bytes)
SAME_ROWS(Height, rows)
_Static_assert(sizeof(CUDA_MEMCPY2D) == sizeof(cuda_rows_config), "rows");

typedef struct constant {
  const char *name;
  long long ours, theirs;
} constant;
#define CONSTANT(ours, theirs) {#theirs, (long long)(ours), (long long)(theirs)}

static const constant constants[] = {
    CONSTANT(CUDA_OK, CUDA_SUCCESS),
    CONSTANT(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE),
    CONSTANT(CUDA_NOT_READY, CUDA_ERROR_NOT_READY),
    CONSTANT(CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE),
    CONSTANT(CUDA_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    CONSTANT(CUDA_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    CONSTANT(CUDA_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
    CONSTANT(CUDA_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    CONSTANT(CUDA_SHARED_BYTES_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    CONSTANT(CUDA_FUNCTION_THREADS_MAX, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    CONSTANT(CUDA_FUNCTION_LOCAL_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
    CONSTANT(CUDA_FUNCTION_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS),
    CONSTANT(CUDA_FUNCTION_SHARED_DYNAMIC, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
    CONSTANT(CUDA_STREAM_APART, CU_STREAM_NON_BLOCKING),
    CONSTANT(CUDA_EVENT_TIMED, CU_EVENT_DEFAULT),
    CONSTANT(CUDA_EVENT_UNTIMED, CU_EVENT_DISABLE_TIMING),
    CONSTANT(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED),
    CONSTANT(CUDA_PEER_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
    CONSTANT(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE),
    CONSTANT(CUDA_LAUNCH_OVERLAPS, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION),
    CONSTANT(CUDA_TENSOR_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16),
    CONSTANT(CUDA_TENSOR_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B),
    CONSTANT(CUDA_TENSOR_L2_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B),
    CONSTANT(LT_OK, CUBLAS_STATUS_SUCCESS),
    CONSTANT(LT_TYPE_F32, CUDA_R_32F),
    CONSTANT(LT_TYPE_BF16, CUDA_R_16BF),
    CONSTANT(LT_COMPUTE_F32, CUBLAS_COMPUTE_32F),
    CONSTANT(LT_OP_T, CUBLAS_OP_T),
    CONSTANT(LT_DESC_TRANS_A, CUBLASLT_MATMUL_DESC_TRANSA),
    CONSTANT(LT_LAYOUT_COLS, CUBLASLT_MATRIX_LAYOUT_COLS),
    CONSTANT(LT_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES),
    CONSTANT(LT_PREF_REDUCTION_MASK, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
    CONSTANT(LT_PREF_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
    CONSTANT(LT_PREF_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
    CONSTANT(LT_PREF_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES),
    CONSTANT(LT_PREF_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES),
    CONSTANT(LT_REDUCTION_NONE, CUBLASLT_REDUCTION_SCHEME_NONE),
    CONSTANT(LT_REDUCTION_ALL, CUBLASLT_REDUCTION_SCHEME_MASK),
    CONSTANT(LT_CAP_SPLIT_K, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT),
    CONSTANT(LT_CAP_REDUCTIONS, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK),
    CONSTANT(LT_CAP_SWIZZLES, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT),
    CONSTANT(LT_CAP_TILES, CUBLASLT_ALGO_CAP_TILE_IDS),
    CONSTANT(LT_CAP_CUSTOM_MAX, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX),
    CONSTANT(LT_CAP_STAGES, CUBLASLT_ALGO_CAP_STAGES_IDS),
    CONSTANT(LT_CONFIG_ID, CUBLASLT_ALGO_CONFIG_ID),
    CONSTANT(LT_CONFIG_TILE, CUBLASLT_ALGO_CONFIG_TILE_ID),
    CONSTANT(LT_CONFIG_SPLIT_K, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
    CONSTANT(LT_CONFIG_REDUCTION, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
    CONSTANT(LT_CONFIG_SWIZZLE, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
    CONSTANT(LT_CONFIG_CUSTOM, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
    CONSTANT(LT_CONFIG_STAGES, CUBLASLT_ALGO_CONFIG_STAGES_ID),
    CONSTANT(LT_CONFIG_CLUSTER, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
    CONSTANT(LT_CLUSTER_FIRST, CUBLASLT_CLUSTER_SHAPE_1x1x1),
    CONSTANT(LT_CLUSTER_LAST, CUBLASLT_CLUSTER_SHAPE_1x16x1),
};

static void constants_are_the_vendors(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(constants); i++)
    if (constants[i].ours != constants[i].theirs)
      fail_msg("%s is %lld, ours is %lld", constants[i].name, constants[i].theirs, constants[i].ours);
}
#else
static void constants_are_the_vendors(void **state) {
  (void)state;
  print_message("SKIPPED: no CUDA headers: declarations are not compared\n");
  skip();
}
#endif

static void open_or_skip(const char *const *names, dynlib *library) {
  fail_clear();
  if (dynlib_open(NULL, names, "library", "none", library) == OK) return;
  print_message("SKIPPED: %s is not here\n", names[0]);
  skip();
}

static void every_symbol_exists_in_nvrtc(void **state) {
  (void)state;
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
  struct {
    NVRTC_API(CUDA_API_MEMBER)
  } table, *API = &table;
  dynlib library = {0};
  open_or_skip(names, &library);
  const dynlib_symbol symbols[] = {NVRTC_API(CUDA_API_SYMBOL)};
  assert_int_equal(dynlib_resolve(&library, symbols, ARRAY_LEN(symbols)), OK);
  int major = 0, minor = -1;
  assert_int_equal(table.nvrtcVersion(&major, &minor), 0);
  assert_true(major >= 12 && minor >= 0);
  dynlib_close(&library);
}

/* The driver or, if there is none, the toolkit's stub of it, which has the same symbols. */
static void every_symbol_exists_in_the_driver(void **state) {
  (void)state;
  static const char *const names[] = {"libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so", NULL};
  struct {
    CUDA_DRIVER_API(CUDA_API_MEMBER)
  } table, *API = &table;
  dynlib library = {0};
  open_or_skip(names, &library);
  const dynlib_symbol symbols[] = {CUDA_DRIVER_API(CUDA_API_SYMBOL)};
  status s = dynlib_resolve(&library, symbols, ARRAY_LEN(symbols));
  if (s != OK) print_message("%s\n", fail_text());
  assert_int_equal(s, OK);
  dynlib_close(&library);
}

typedef struct lt_table {
  CUBLASLT_API(CUDA_API_MEMBER)
} lt_table;

static void open_lt(lt_table *table, dynlib *library) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
  open_or_skip(names, library);
  lt_table *API = table;
  cublaslt_version *version = NULL;
  const dynlib_symbol symbols[] = {CUBLASLT_API(CUDA_API_SYMBOL){CUBLASLT_VERSION_SYMBOL, &version}};
  assert_int_equal(dynlib_resolve(library, symbols, ARRAY_LEN(symbols)), OK);
  assert_true(version() >= 120000);
}

/* The library refuses descriptors that are too small for it and fills ours in place without writing outside them. Setting the row count
 * allocates no memory, which is why gemm_lt_run may be called after start-up. */
static void descriptors_are_filled_in_place(void **state) {
  (void)state;
  lt_table table;
  dynlib library = {0};
  open_lt(&table, &library);
  uint64_t desc[LT_DESC_WORDS + 1], layout[LT_LAYOUT_WORDS + 1], preference[LT_PREFERENCE_WORDS + 1];
  desc[LT_DESC_WORDS] = layout[LT_LAYOUT_WORDS] = preference[LT_PREFERENCE_WORDS] = 0x5555555555555555u;
  const int32_t transpose = LT_OP_T;
  void *d = desc, *l = layout, *p = preference;
  assert_int_equal(table.cublasLtMatmulDescInit_internal(d, 8 * LT_DESC_WORDS, LT_COMPUTE_F32, LT_TYPE_F32), LT_OK);
  assert_int_equal(table.cublasLtMatmulDescSetAttribute(d, LT_DESC_TRANS_A, &transpose, sizeof transpose), LT_OK);
  assert_int_equal(table.cublasLtMatmulPreferenceInit_internal(p, 8 * LT_PREFERENCE_WORDS), LT_OK);
  assert_int_equal(table.cublasLtMatrixLayoutInit_internal(l, 8, LT_TYPE_BF16, 64, 1, 64) != LT_OK, 1);
  assert_int_equal(table.cublasLtMatrixLayoutInit_internal(l, 8 * LT_LAYOUT_WORDS, LT_TYPE_BF16, 64, 1, 64), LT_OK);
  const struct mallinfo2 before = mallinfo2();
  for (uint64_t rows = 1; rows < 1000; rows++)
    assert_int_equal(table.cublasLtMatrixLayoutSetAttribute(l, LT_LAYOUT_COLS, &rows, sizeof rows), LT_OK);
  const struct mallinfo2 after = mallinfo2();
  assert_int_equal(before.uordblks, after.uordblks);
#ifndef __SANITIZE_ADDRESS__ /* the sanitizer's allocator is not counted */
  void *volatile control = malloc(100000);
  assert_int_not_equal(mallinfo2().uordblks, after.uordblks);
  free(control);
#endif
  assert_true(desc[LT_DESC_WORDS] == 0x5555555555555555u);
  assert_true(layout[LT_LAYOUT_WORDS] == 0x5555555555555555u);
  assert_true(preference[LT_PREFERENCE_WORDS] == 0x5555555555555555u);
  dynlib_close(&library);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constants_are_the_vendors),
      cmocka_unit_test(every_symbol_exists_in_nvrtc),
      cmocka_unit_test(every_symbol_exists_in_the_driver),
      cmocka_unit_test(descriptors_are_filled_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
