/* cuda_api.h - our own declarations of the entry points of the CUDA driver, NVRTC and cuBLASLt that Verbatim calls.
 *
 * The libraries are opened at run time and their headers are not needed to build. Each list X(symbol, parameters) is the one place where
 * an entry point is named; gpu.c, jit.c and gemm_lt.c turn it into a table of function pointers. Every function returns a 32-bit
 * code, 0 for success, unless it is listed separately. tests/unit/gpu/test_cuda_api.c compares everything here with the vendor's headers.
 * Handles are pointers to the vendor's own struct tags, so that the comparison is one of types. Read next: gpu.c. */
#ifndef VERBATIM_CUDA_API_H
#define VERBATIM_CUDA_API_H
#include <stddef.h>
#include <stdint.h>

#define CUDA_API_MEMBER(symbol, parameters) unsigned int(*symbol) parameters;
#define CUDA_API_SYMBOL(symbol, parameters) {#symbol, &API->symbol}, /* needs API: pointer to the table */

/* === CUDA driver: libcuda.so.1 ============================================================================================= */

typedef struct CUctx_st *cuda_context;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;
typedef struct CUlib_st *cuda_library;
typedef struct CUkern_st *cuda_kernel;
typedef struct CUfunc_st *cuda_function;
typedef struct CUgraph_st *cuda_graph;
typedef struct CUgraphExec_st *cuda_graph_exec;
typedef unsigned long long cuda_address;

typedef struct cuda_attribute { /* CUlaunchAttribute */
  unsigned int id, pad;
  int value[16];
} cuda_attribute;
typedef struct cuda_launch_config { /* CUlaunchConfig */
  unsigned int grid[3], block[3], shared_bytes;
  cuda_stream stream;
  cuda_attribute *attributes;
  unsigned int attribute_count;
} cuda_launch_config;
typedef struct cuda_rows_config { /* CUDA_MEMCPY2D */
  size_t source_x, source_y;
  unsigned int source_type;
  const void *source_host;
  cuda_address source;
  void *source_array;
  size_t source_pitch, target_x, target_y;
  unsigned int target_type;
  void *target_host;
  cuda_address target;
  void *target_array;
  size_t target_pitch, row_bytes, rows;
} cuda_rows_config;
#ifndef CUDA_API_VENDOR_TYPES /* the test replaces these with the vendor's types, whose structs have no tags */
typedef cuda_launch_config cuda_launch;
typedef cuda_rows_config cuda_rows;
typedef uint64_t cuda_tensor_map; /* 16 of them, aligned to 128 bytes */
#endif

#define CUDA_DRIVER_API(X)                                                                                      \
  X(cuGetErrorName, (unsigned int code, const char **text))                                                     \
  X(cuGetErrorString, (unsigned int code, const char **text))                                                   \
  X(cuInit, (unsigned int flags))                                                                               \
  X(cuDriverGetVersion, (int *version))                                                                         \
  X(cuDeviceGetCount, (int *count))                                                                             \
  X(cuDeviceGet, (int *device, int ordinal))                                                                    \
  X(cuDeviceGetName, (char *name, int bytes, int device))                                                       \
  X(cuDeviceTotalMem_v2, (size_t *bytes, int device))                                                           \
  X(cuDeviceGetAttribute, (int *value, unsigned int attribute, int device))                                     \
  X(cuDevicePrimaryCtxRetain, (cuda_context *context, int device))                                              \
  X(cuDevicePrimaryCtxRelease_v2, (int device))                                                                 \
  X(cuCtxPushCurrent_v2, (cuda_context context))                                                                \
  X(cuCtxPopCurrent_v2, (cuda_context *context))                                                                \
  X(cuCtxSetCurrent, (cuda_context context))                                                                    \
  X(cuDeviceCanAccessPeer, (int *can, int device, int peer))                                                    \
  X(cuDeviceGetP2PAttribute, (int *value, unsigned int attribute, int device, int peer))                        \
  X(cuCtxEnablePeerAccess, (cuda_context peer, unsigned int flags))                                             \
  X(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes))                                                 \
  X(cuMemAlloc_v2, (cuda_address *address, size_t bytes))                                                       \
  X(cuMemFree_v2, (cuda_address address))                                                                       \
  X(cuMemHostAlloc, (void **host, size_t bytes, unsigned int flags))                                            \
  X(cuMemFreeHost, (void *host))                                                                                \
  X(cuMemcpyHtoDAsync_v2, (cuda_address target, const void *source, size_t bytes, cuda_stream stream))          \
  X(cuMemcpyDtoHAsync_v2, (void *target, cuda_address source, size_t bytes, cuda_stream stream))                \
  X(cuMemcpyDtoDAsync_v2, (cuda_address target, cuda_address source, size_t bytes, cuda_stream stream))         \
  X(cuMemcpy2DAsync_v2, (const cuda_rows *copy, cuda_stream stream))                                            \
  X(cuMemsetD32Async, (cuda_address target, unsigned int word, size_t words, cuda_stream stream))               \
  X(cuStreamCreate, (cuda_stream *stream, unsigned int flags))                                                  \
  X(cuStreamDestroy_v2, (cuda_stream stream))                                                                   \
  X(cuStreamSynchronize, (cuda_stream stream))                                                                  \
  X(cuStreamQuery, (cuda_stream stream))                                                                        \
  X(cuStreamWaitEvent, (cuda_stream stream, cuda_event event, unsigned int flags))                              \
  X(cuStreamBeginCapture_v2, (cuda_stream stream, unsigned int mode))                                           \
  X(cuStreamEndCapture, (cuda_stream stream, cuda_graph *graph))                                                \
  X(cuEventCreate, (cuda_event *event, unsigned int flags))                                                     \
  X(cuEventDestroy_v2, (cuda_event event))                                                                      \
  X(cuEventRecord, (cuda_event event, cuda_stream stream))                                                      \
  X(cuEventSynchronize, (cuda_event event))                                                                     \
  X(cuEventQuery, (cuda_event event))                                                                           \
  X(cuEventElapsedTime, (float *ms, cuda_event first, cuda_event last))                                         \
  X(cuLibraryLoadData, (cuda_library *library, const void *code, unsigned int *jit_options, void **jit_values,  \
                        unsigned int jit_count, unsigned int *options, void **values, unsigned int count))      \
  X(cuLibraryUnload, (cuda_library library))                                                                    \
  X(cuLibraryGetKernelCount, (unsigned int *count, cuda_library library))                                       \
  X(cuLibraryEnumerateKernels, (cuda_kernel *kernels, unsigned int count, cuda_library library))                \
  X(cuKernelGetName, (const char **name, cuda_kernel kernel))                                                   \
  X(cuKernelGetParamInfo, (cuda_kernel kernel, size_t index, size_t *offset, size_t *bytes))                    \
  X(cuKernelGetAttribute, (int *value, unsigned int attribute, cuda_kernel kernel, int device))                 \
  X(cuKernelSetAttribute, (unsigned int attribute, int value, cuda_kernel kernel, int device))                  \
  X(cuKernelGetFunction, (cuda_function *function, cuda_kernel kernel))                                         \
  X(cuLaunchKernelEx, (const cuda_launch *config, cuda_function function, void **parameters, void **extra))     \
  X(cuTensorMapEncodeTiled, (cuda_tensor_map *map, unsigned int type, unsigned int rank, void *address,         \
                             const uint64_t *extent, const uint64_t *stride_bytes, const unsigned int *box,     \
                             const unsigned int *element_strides, unsigned int interleave, unsigned int swizzle, \
                             unsigned int l2_promotion, unsigned int out_of_bounds))                            \
  X(cuGraphInstantiateWithFlags, (cuda_graph_exec *exec, cuda_graph graph, unsigned long long flags))           \
  X(cuGraphDestroy, (cuda_graph graph))                                                                         \
  X(cuGraphExecDestroy, (cuda_graph_exec exec))                                                                 \
  X(cuGraphUpload, (cuda_graph_exec exec, cuda_stream stream))                                                  \
  X(cuGraphLaunch, (cuda_graph_exec exec, cuda_stream stream))

enum cuda_constant {
  CUDA_OK = 0,                      /* CUDA_SUCCESS                                        */
  CUDA_INVALID_VALUE = 1,           /* CUDA_ERROR_INVALID_VALUE                            */
  CUDA_NOT_READY = 600,             /* CUDA_ERROR_NOT_READY                                */
  CUDA_PEER_ENABLED = 704,          /* CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED              */
  CUDA_MEMORY_DEVICE = 2,           /* CU_MEMORYTYPE_DEVICE                                */
  CUDA_HOST_PORTABLE = 1,           /* CU_MEMHOSTALLOC_PORTABLE                            */
  CUDA_SM_COUNT = 16,               /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT            */
  CUDA_L2_BYTES = 38,               /* CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE                   */
  CUDA_CAPABILITY_MAJOR = 75,       /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR        */
  CUDA_CAPABILITY_MINOR = 76,       /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR        */
  CUDA_SHARED_BYTES_OPTIN = 97,     /* CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
  CUDA_PEER_RANK = 1,               /* CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK            */
  CUDA_PEER_ATOMICS = 3,            /* CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED     */
  CUDA_FUNCTION_THREADS_MAX = 0,    /* CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK             */
  CUDA_FUNCTION_LOCAL_BYTES = 3,    /* CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES                  */
  CUDA_FUNCTION_REGISTERS = 4,      /* CU_FUNC_ATTRIBUTE_NUM_REGS                          */
  CUDA_FUNCTION_SHARED_DYNAMIC = 8, /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES     */
  CUDA_FUNCTION_SHARED_SHARE = 9,   /* CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT  */
  CUDA_STREAM_APART = 1,            /* CU_STREAM_NON_BLOCKING                              */
  CUDA_EVENT_TIMED = 0,             /* CU_EVENT_DEFAULT                                    */
  CUDA_EVENT_UNTIMED = 2,           /* CU_EVENT_DISABLE_TIMING                             */
  CUDA_CAPTURE_RELAXED = 2,         /* CU_STREAM_CAPTURE_MODE_RELAXED                      */
  CUDA_LAUNCH_OVERLAPS = 6,         /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
  CUDA_TENSOR_U8 = 0,               /* CU_TENSOR_MAP_DATA_TYPE_UINT8                       */
  CUDA_TENSOR_BF16 = 9,             /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16                    */
  CUDA_TENSOR_SWIZZLE_128 = 3,      /* CU_TENSOR_MAP_SWIZZLE_128B                          */
  CUDA_TENSOR_L2_128 = 2,           /* CU_TENSOR_MAP_L2_PROMOTION_L2_128B                  */
  CUDA_TENSOR_L2_256 = 3            /* CU_TENSOR_MAP_L2_PROMOTION_L2_256B                  */
};

/* === NVRTC: libnvrtc.so ==================================================================================================== */

typedef struct _nvrtcProgram *nvrtc_program;

#define NVRTC_API(X)                                                                                            \
  X(nvrtcVersion, (int *major, int *minor))                                                                     \
  X(nvrtcCreateProgram, (nvrtc_program *program, const char *source, const char *name, int header_count,        \
                         const char *const *headers, const char *const *header_names))                          \
  X(nvrtcDestroyProgram, (nvrtc_program *program))                                                              \
  X(nvrtcCompileProgram, (nvrtc_program program, int option_count, const char *const *options))                 \
  X(nvrtcGetProgramLogSize, (nvrtc_program program, size_t *bytes))                                             \
  X(nvrtcGetProgramLog, (nvrtc_program program, char *log))                                                     \
  X(nvrtcGetCUBINSize, (nvrtc_program program, size_t *bytes))                                                  \
  X(nvrtcGetCUBIN, (nvrtc_program program, char *cubin))

/* === cuBLASLt: libcublasLt.so ============================================================================================== */

/* Descriptors are opaque words that the library fills in place; the Init entry points take and check their size. */
enum { LT_LAYOUT_WORDS = 8, LT_DESC_WORDS = 32, LT_ALGO_WORDS = 8, LT_PREFERENCE_WORDS = 8 };

typedef struct lt_heuristic {
  uint64_t algo[LT_ALGO_WORDS];
  size_t workspace_bytes;
  unsigned int state;
  float waves;
  int reserved[4];
} lt_heuristic;

typedef struct cublasLtContext *lt_handle;
#ifndef CUDA_API_VENDOR_TYPES /* the test replaces these with the vendor's types, whose structs have no tags */
typedef uint64_t *lt_layout;
typedef uint64_t *lt_desc;
typedef uint64_t *lt_preference;
typedef uint64_t lt_algo;
typedef lt_heuristic lt_result;
#endif

#define CUBLASLT_API(X)                                                                                         \
  X(cublasLtCreate, (lt_handle *handle))                                                                        \
  X(cublasLtDestroy, (lt_handle handle))                                                                        \
  X(cublasLtMatrixLayoutInit_internal, (lt_layout layout, size_t bytes, unsigned int type, uint64_t rows, uint64_t cols, \
                                        int64_t ld))                                                            \
  X(cublasLtMatrixLayoutSetAttribute, (lt_layout layout, unsigned int attribute, const void *value, size_t bytes)) \
  X(cublasLtMatmulDescInit_internal, (lt_desc desc, size_t bytes, unsigned int compute, unsigned int scale_type)) \
  X(cublasLtMatmulDescSetAttribute, (lt_desc desc, unsigned int attribute, const void *value, size_t bytes))    \
  X(cublasLtMatmulPreferenceInit_internal, (lt_preference preference, size_t bytes))                            \
  X(cublasLtMatmulPreferenceSetAttribute, (lt_preference preference, unsigned int attribute, const void *value, \
                                           size_t bytes))                                                       \
  X(cublasLtMatmulAlgoGetHeuristic, (lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d, \
                                     lt_preference preference, int wanted, lt_result *results, int *found))     \
  X(cublasLtMatmulAlgoCheck, (lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d, \
                              const lt_algo *algo, lt_result *result))                                          \
  X(cublasLtMatmulAlgoInit, (lt_handle handle, unsigned int compute, unsigned int scale_type, unsigned int a, unsigned int b, \
                             unsigned int c, unsigned int d, int id, lt_algo *algo))                            \
  X(cublasLtMatmulAlgoCapGetAttribute, (const lt_algo *algo, unsigned int attribute, void *value, size_t bytes, size_t *written)) \
  X(cublasLtMatmulAlgoConfigSetAttribute, (lt_algo *algo, unsigned int attribute, const void *value, size_t bytes)) \
  X(cublasLtMatmulAlgoConfigGetAttribute, (const lt_algo *algo, unsigned int attribute, void *value, size_t bytes, \
                                           size_t *written))                                                    \
  X(cublasLtMatmul, (lt_handle handle, lt_desc desc, const void *alpha, const void *a, lt_layout a_layout, const void *b, \
                     lt_layout b_layout, const void *beta, const void *c, lt_layout c_layout, void *d, lt_layout d_layout, \
                     const lt_algo *algo, void *workspace, size_t workspace_bytes, cuda_stream stream))

/* Separate, since it returns no code. */
#define CUBLASLT_VERSION_SYMBOL "cublasLtGetVersion"
typedef size_t cublaslt_version(void);

enum lt_constant {
  LT_OK = 0,                  /* CUBLAS_STATUS_SUCCESS                      */
  LT_TYPE_F32 = 0,            /* CUDA_R_32F                                 */
  LT_TYPE_BF16 = 14,          /* CUDA_R_16BF                                */
  LT_COMPUTE_F32 = 68,        /* CUBLAS_COMPUTE_32F                         */
  LT_OP_T = 1,                /* CUBLAS_OP_T                                */
  LT_DESC_TRANS_A = 3,        /* CUBLASLT_MATMUL_DESC_TRANSA                */
  LT_LAYOUT_COLS = 3,         /* CUBLASLT_MATRIX_LAYOUT_COLS                */
  LT_PREF_WORKSPACE = 1,      /* CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES   */
  LT_PREF_REDUCTION_MASK = 3, /* CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK */
  LT_PREF_ALIGNMENT_A = 5,    /* CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES */
  LT_PREF_ALIGNMENT_B = 6,    /* CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES */
  LT_PREF_ALIGNMENT_C = 7,    /* CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES */
  LT_PREF_ALIGNMENT_D = 8,    /* CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES */
  LT_REDUCTION_NONE = 0,      /* CUBLASLT_REDUCTION_SCHEME_NONE             */
  LT_REDUCTION_ALL = 7,       /* CUBLASLT_REDUCTION_SCHEME_MASK             */
  LT_CAP_SPLIT_K = 0,         /* CUBLASLT_ALGO_CAP_SPLITK_SUPPORT           */
  LT_CAP_REDUCTIONS = 1,      /* CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK    */
  LT_CAP_SWIZZLES = 2,        /* CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT    */
  LT_CAP_TILES = 6,           /* CUBLASLT_ALGO_CAP_TILE_IDS                 */
  LT_CAP_CUSTOM_MAX = 7,      /* CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX        */
  LT_CAP_STAGES = 13,         /* CUBLASLT_ALGO_CAP_STAGES_IDS               */
  LT_CONFIG_ID = 0,           /* CUBLASLT_ALGO_CONFIG_ID                    */
  LT_CONFIG_TILE = 1,         /* CUBLASLT_ALGO_CONFIG_TILE_ID               */
  LT_CONFIG_SPLIT_K = 2,      /* CUBLASLT_ALGO_CONFIG_SPLITK_NUM            */
  LT_CONFIG_REDUCTION = 3,    /* CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME      */
  LT_CONFIG_SWIZZLE = 4,      /* CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING         */
  LT_CONFIG_CUSTOM = 5,       /* CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION         */
  LT_CONFIG_STAGES = 6,       /* CUBLASLT_ALGO_CONFIG_STAGES_ID             */
  LT_CONFIG_CLUSTER = 8,      /* CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID      */
  LT_CLUSTER_FIRST = 2,       /* CUBLASLT_CLUSTER_SHAPE_1x1x1               */
  LT_CLUSTER_LAST = 16        /* CUBLASLT_CLUSTER_SHAPE_1x16x1              */
};

#endif
