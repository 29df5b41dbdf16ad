/* backend.h - the interface between the loop that runs a plan and what runs its ops: a GPU, or the CPU.
 *
 * backend_gpu.c queues work on the streams of a GPU, and it is done later; backend_cpu.c does the work of a call before it returns. exec.c,
 * start.c and bench.c call the functions below and do not ask which of the two they have. No choice of a backend changes a bit of a result.
 * Calls marked [start-up] may allocate, the others do not. Must not know requests. Read next: backend_cpu.c, the shorter one. */
#ifndef VERBATIM_EXEC_BACKEND_H
#define VERBATIM_EXEC_BACKEND_H
#include "base/arena.h"
#include "exec/exec.h"
#include "exec/gather.h"
#include "ops/kernels.h"
#include "self_check/self_check.h"

/* The least size of the pinned block: weights pass through it in slots, other uploads of the start in halves; the steps' images use the
 * space later. */
#define EXEC_STAGING_BYTES (STAGING_SLOTS_MAX * STAGING_SLOT_BYTES)
#define EXEC_STAGING_HALF_BYTES (EXEC_STAGING_BYTES / 2)

/* What `read`, `write` and `repeat` copy at a time: long enough for the bus, and less than the staging takes anyway. */
#define EXEC_SCRATCH_BYTES (4ull << 20)

typedef struct backend backend;
typedef struct backend_graph backend_graph; /* a captured list of launches */

typedef struct exec_op { /* one op of the plan, resolved */
  const plan_op *plan;
  const char *name;
  const kernel_row *row;
  uint32_t rank; /* that these arguments are of */
  void *args[2]; /* with addresses, by the side of the step */
  u32 *piece[2]; /* in args: the number of the piece of contexts that the op is launched for; null: it has none */
} exec_op;

/* The three stages of a step. Each is a queue whose work is done in order; queues run at the same time, but for what `record` orders. */
enum backend_queue { QUEUE_INPUTS, QUEUE_OPS, QUEUE_RESULTS, QUEUE_COUNT };

typedef struct backend_launch {
  uint32_t op;       /* index of the op                                                        */
  uint32_t side;     /* of the step, 0 or 1: which of the op's arguments                       */
  uint32_t rows;     /* launch rows, at least 1                                                */
  uint32_t branch;   /* enum branch_kind                                                       */
  uint32_t piece;    /* of the contexts, for an op that is launched for each                   */
  bool follows;      /* the launch before is of the same list of ops: the two may overlap      */
} backend_launch;

#define BACKEND_MARKS_MAX 64u

typedef struct backend_calls {
  /* Makes the backend's device the one that this thread works with, before calls for it; null: there is no such choice. */
  void (*select)(backend *self);

  /* [start-up] Kernels and libraries; nothing on the CPU. check_library comes after the weights. ERR_MISMATCH: a library algorithm does not
   * give the bits of our kernel. */
  status (*start_kernels)(backend *self, arena *host);
  status (*check_library)(backend *self);
  weights_target (*weights)(backend *self);

  /* [start-up] The self-check, by the plan's kernel variants. run_probe: image has SELF_CHECK_BYTES; returns the image after the op, in the
   * same place or another. The texts are cut at text_bytes: "kernel gemm, SPEC_TILE_N 64" and "NVIDIA H200 (driver ...)". */
  bool (*can_run_probe)(const backend *self, uint32_t variant, uint32_t probe);
  const uint8_t *(*run_probe)(backend *self, uint32_t variant, uint32_t probe, uint8_t *image, self_check_launch *launch);
  void (*name_variant)(const backend *self, uint32_t variant, char *text, size_t text_bytes);
  void (*name)(const backend *self, char *text, size_t text_bytes);

  /* [start-up] Only with has_graphs. What is launched between the two is captured and not run; drop_graph takes the last one made.
   * end_start: no kernel will be compiled and no graph captured any more. */
  status (*capture_begin)(backend *self);
  status (*capture_end)(backend *self, backend_graph **graph);
  void (*drop_graph)(backend *self, backend_graph *graph);
  void (*end_start)(backend *self);

  /* Ops, on QUEUE_OPS. The op's arguments are read during the call. */
  void (*launch)(backend *self, const backend_launch *launch);
  /* The stream of a GPU on which this launch would go, for what is put there instead. */
  gpu_stream *(*lane)(backend *self, const backend_launch *launch);
  /* Of several ranks, with NCCL: gathers bytes from one address of each at another, [ranks][bytes]. On QUEUE_OPS. */
  void (*gather)(backend *self, uint64_t from, uint64_t to, uint64_t bytes);
  void (*replay)(backend *self, backend_graph *graph, const char *what);

  /* Copies and fills of device memory, named by address. Host memory of copies is the backend's `host` block, and stays as it is until the
   * copy is done. fill, on QUEUE_OPS: word is 0 or UINT32_MAX, bytes a multiple of 4. */
  void (*upload)(backend *self, enum backend_queue queue, uint64_t target, const void *source, uint64_t bytes);
  void (*download)(backend *self, enum backend_queue queue, void *target, uint64_t source, uint64_t bytes);
  void (*fill)(backend *self, uint64_t target, uint32_t word, uint64_t bytes);

  /* Ends a stage of the step of that side: the next queue's work from here on waits for this queue's work up to here. wait: the host waits
   * for the end of QUEUE_RESULTS; sync: for all of QUEUE_OPS, `what` names it should the device fail. */
  void (*record)(backend *self, enum backend_queue queue, uint32_t side);
  void (*wait)(backend *self, uint32_t side);
  void (*sync)(backend *self, const char *what);

  /* Copies from and to any host memory, while no step is in flight; they wait. read: count rows of row_bytes, from base plus their offsets,
   * one after the other. repeat: writes the pattern over and over, of at most EXEC_SCRATCH_BYTES. */
  void (*read)(backend *self, uint64_t base, const uint64_t *offsets, uint32_t count, uint64_t row_bytes, void *to);
  void (*write)(backend *self, uint64_t target, const void *from, uint64_t bytes);
  void (*repeat)(backend *self, uint64_t target, uint64_t bytes, const void *pattern, uint64_t pattern_bytes);

  /* Points in time on QUEUE_OPS. make_marks, [start-up]: `count` more, numbered from *first. elapsed_us: once both have passed. */
  status (*make_marks)(backend *self, uint32_t count, uint32_t *first);
  void (*mark)(backend *self, uint32_t mark);
  double (*elapsed_us)(backend *self, uint32_t first, uint32_t last);

  bool (*uses_library)(const backend *self, uint32_t op, uint32_t rows); /* a library's algorithm computes the op for so many rows */
  void (*count)(const backend *self, exec_counts *counts);               /* fills in the members that are the backend's own */
  void (*close)(backend *self); /* waits for the end of all work */
} backend_calls;

struct backend {
  const backend_calls *calls;
  const plan *plan;
  const exec_op *ops;      /* [plan ops], set by exec_open                                                      */
  uint64_t base;           /* address of the device memory that the plan lays out                               */
  uint8_t *host;           /* the block of host memory that was asked for: copied without waiting               */
  uint8_t *staging;        /* EXEC_STAGING_BYTES or more, host is in it: uploads at start-up; null: not needed  */
  uint64_t staging_bytes;
  const verbatim_kernel *loaded; /* [plan kernels] machine code that is loaded, or null                         */
  const char *advice;      /* what helps when it does not compute the plan's numerics                           */
  bool is_zeroed;          /* memory is zero at first                                                           */
  bool has_graphs;         /* work is queued: lists of launches can be captured, and steps have gaps            */
  bool has_variants;       /* each kernel variant of the plan is code of its own; else one function per op      */
};

/* What may help when a CPU does not compute the plan's numerics. */
#define BACKEND_CPU_ADVICE "a compiler that does not keep to IEEE-754, or a broken processor; build as configure.py does"
#define BACKEND_CPU_NAME "this processor"

/* [start-up] Makes memory for the plan, and host_bytes of host memory for exec. The GPU backend wants options->device, the CPU backend
 * options->pool. close releases what is not the arena's or the device's. */
status backend_cpu_open(const plan *p, const exec_options *options, uint64_t host_bytes, arena *host, backend **out);
status backend_gpu_open(const plan *p, const exec_options *options, uint64_t host_bytes, arena *host, backend **out);

/* [start-up] One backend of several, which are of one kind, one for each rank of the plan. through stays the caller's, where it is. */
status backend_ranks_open(backend *const *ranks, uint32_t rank_count, const gather *through, arena *host, backend **out);

/* Makes the backend's device the one that this thread works with. */
static inline void backend_select(backend *self) {
  if (self->calls->select) self->calls->select(self);
}

/* Address of a byte of a region. */
static inline uint64_t backend_address(const backend *self, uint32_t region, uint64_t offset) {
  return self->base + self->plan->regions[region].offset + offset;
}

/* The op that is launched, with the number of its piece in its arguments: they are read during the launch. */
static inline const exec_op *backend_launched(const backend *self, const backend_launch *l) {
  const exec_op *op = &self->ops[l->op];
  if (op->piece[l->side]) *op->piece[l->side] = l->piece;
  return op;
}

/* Whether a GPU of so many multiprocessors can run the plan's kernels: blocks that wait for each other need one each. */
status backend_gpu_start_room(const plan *p, uint32_t sm_count);

#endif
