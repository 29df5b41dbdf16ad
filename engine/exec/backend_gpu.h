/* backend_gpu.h - what the files of the GPU backend share. Private to these.
 *
 * backend_gpu.c has memory, steps and graphs, backend_gpu_start.c kernels and the self-check, library.c the pinned library algorithms. */
#ifndef VERBATIM_EXEC_BACKEND_GPU_H
#define VERBATIM_EXEC_BACKEND_GPU_H
#include "exec/backend.h"
#include "gpu/gemm_lt.h"
#include "gpu/jit.h"

typedef struct gpu_choice { /* a library algorithm in use for an op */
  const plan_gemm *pin;
  gemm_lt_op lt;
} gpu_choice;

typedef struct gpu_op { /* what runs an op of the plan */
  const gpu_kernel *kernel;
  const jit_spec *specs; /* [spec_count] constants of the kernel */
  uint32_t spec_count;
  gpu_choice *choices;   /* [choice_count] */
  uint32_t choice_count;
} gpu_op;

typedef struct gpu_lane { /* where an op goes */
  gpu_stream *stream;
  bool overlaps; /* see gpu_work */
} gpu_lane;

typedef struct backend_gpu {
  backend common;
  exec_options options;
  gpu *device;
  gpu_stream *streams[QUEUE_COUNT];
  gpu_stream *branch;             /* ops of BRANCH_SIDE, which run next to those of QUEUE_OPS                 */
  gpu_event *ended[QUEUE_COUNT][2]; /* a stage of a step, by the step's side                                  */
  gpu_event *forked, *joined;     /* where branch leaves QUEUE_OPS, and where it comes back                   */
  gpu_event *slot_read[STAGING_SLOTS_MAX]; /* of the staging slots                                            */
  gpu_event *marks[BACKEND_MARKS_MAX];
  uint32_t mark_count;
  gpu_lane main_lane, side_lane;  /* of the list that is being launched; side_lane.stream null: not forked    */
  uint8_t *scratch;               /* EXEC_SCRATCH_BYTES, pinned                                               */
  gpu_op *ops;                    /* [plan ops]                                                               */
  gpu_kernel *kernels;            /* [plan kernels]                                                           */
  const jit_spec *specs;          /* [plan specs] their constants                                             */
  verbatim_kernel *loaded;        /* [plan kernels]                                                           */
  jit *compiler;                  /* until end_start                                                          */
  gemm_lt *library;               /* null: no product is computed by it                                       */
  uint64_t library_workspace;     /* address                                                                  */
  char left_out[320];             /* why optional library algorithms are not used, or ""                      */
  uint32_t graph_count, kernels_cached, kernels_compiled, nvrtc_version;
} backend_gpu;

static inline backend_gpu *backend_gpu_of(backend *self) { return (backend_gpu *)(void *)self; }
static inline const backend_gpu *backend_gpu_of_const(const backend *self) { return (const backend_gpu *)(const void *)self; }

/* backend_gpu.c: one op by our own kernel, never by a library. */
void backend_gpu_launch_own(backend_gpu *self, uint32_t op, uint32_t side, uint32_t rows, gpu_lane lane);

/* backend_gpu.c: makes the tensor maps of a launch, if a kernel of these constants takes maps. */
bool backend_gpu_maps(backend_gpu *self, uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows,
                      tensor_maps *maps);

/* backend_gpu_start.c: backend_calls of the start. */
status backend_gpu_start_kernels(backend *self, arena *host);
bool backend_gpu_start_can_run_probe(const backend *self, uint32_t variant, uint32_t probe);
const uint8_t *backend_gpu_start_run_probe(backend *self, uint32_t variant, uint32_t probe, uint8_t *image, self_check_launch *launch);
void backend_gpu_start_name_variant(const backend *self, uint32_t variant, char *text, size_t text_bytes);
void backend_gpu_start_name(const backend *self, char *text, size_t text_bytes);

/* library.c: the library algorithms of the plan. Those that run here are chosen, and later compared with our kernel. */
status exec_library_open(backend_gpu *self, arena *host);
status exec_library_check(backend_gpu *self);

#endif
