/* exec/state.h - what exec.c, exec/start.c and exec/bench.c share: the state of the machine that runs a plan. Private to these. */
#ifndef VERBATIM_EXEC_STATE_H
#define VERBATIM_EXEC_STATE_H
#include "exec/exec.h"
#include "gpu/gemm_lt.h"
#include "gpu/jit.h"
#include "plan/kernels.h"

/* The least size of the pinned block: weights pass through it in slots, other uploads of the start in halves; the steps' images use the
 * space later. */
#define EXEC_STAGING_BYTES (STAGING_SLOTS_MAX * STAGING_SLOT_BYTES)
#define EXEC_STAGING_HALF_BYTES (EXEC_STAGING_BYTES / 2)

/* What exec_read and exec_write copy at a time: long enough for the bus, and less than the staging takes anyway. */
#define EXEC_SCRATCH_BYTES (4ull << 20)

#define EXEC_TIMED_STEPS 4u /* more than are under way */

typedef struct exec_op { /* one op of the plan, resolved */
  const plan_op *plan;
  const char *name;
  const kernel_row *row;
  void *args[2];          /* with addresses, by the side of the step */
  const gpu_kernel *kernel; /* GPU machine */
  const jit_spec *specs;    /* [spec_count] of the kernel, GPU machine */
  uint32_t spec_count;
  struct exec_choice *choices; /* [choice_count] library algorithms in use, GPU machine */
  uint32_t choice_count;
} exec_op;

typedef struct exec_choice {
  const plan_gemm *pin;
  gemm_lt_op lt;
} exec_choice;

struct exec {
  const plan *plan;
  exec_options options;
  uint64_t base;              /* address of the device memory the plan lays out */
  exec_op *ops;
  uint32_t op_count;
  uint32_t rung_count;        /* ladder sizes in use: 0 with direct */
  uint8_t *image[2];          /* STEP up to the block table */
  uint8_t *result[2];         /* RESULT images */
  float *logits[2];           /* null without the option */
  uint32_t *block_table;      /* [max_seqs][pages_per_seq] */
  token_bias *lists;          /* [max_seqs][TOKEN_LIST_MAX] */
  exec_slot *pending[2];      /* [max_seqs] rows and lists that the image of a side does not have yet */
  uint32_t pending_count[2];
  uint64_t *row_sent;         /* [max_seqs] how many steps were submitted when the slot's row last went up */
  uint8_t *scratch;           /* EXEC_SCRATCH_BYTES of exec_read and exec_write; GPU machine */
  uint8_t *pinned;            /* the pinned block */
  uint64_t pinned_bytes;
  gpu_stream *stream;         /* ops, in the order of submission */
  gpu_stream *branch;         /* ops of a step that run beside those of `stream`: BRANCH_SIDE */
  gpu_event *forked, *joined; /* the two part, and meet again */
  gpu_stream *up, *down;      /* inputs before their step, results behind it: beside the ops of other steps */
  gpu_event *uploaded[2], *computed[2];
  gpu_event *done[2];
  gpu_event *ops_begin[EXEC_TIMED_STEPS], *ops_end[EXEC_TIMED_STEPS]; /* by step; with options.timed */
  uint64_t submitted, waited;  /* steps */
  bool is_marked[EXEC_TIMED_STEPS];  /* has these events */
  bool is_chained[EXEC_TIMED_STEPS]; /* so has the step before, which was under way when it was submitted */
  exec_gaps gaps;
  gpu_event *slot_read[STAGING_SLOTS_MAX]; /* of the staging slots */
  gpu_kernel *kernels;        /* [plan kernels] */
  const jit_spec *specs;      /* [plan specs] their constants   */
  gpu_graph *graphs[LADDER_MAX][2];
  jit *compiler;
  gemm_lt *library;
  uint64_t library_workspace; /* address */
  char left_out[320];
  verbatim_kernel *loaded;    /* [plan kernels] what is in them */
  uint32_t graph_count, kernels_cached, kernels_compiled, nvrtc_version;
};

/* Address of a byte of a region. */
static inline uint64_t exec_address(const exec *self, uint32_t region, uint64_t offset) {
  return self->base + self->plan->regions[region].offset + offset;
}

typedef struct exec_rows { /* launch rows, by enum rows_kind, and how often the ops of ROWS_PROMPT are repeated */
  uint32_t kind[ROWS_PROMPT + 1], pieces;
} exec_rows;

/* Of a step all of whose token rows were made, or read KV rows as they are. */
static inline exec_rows exec_rows_made(uint32_t tokens, uint32_t logits) {
  return (exec_rows){.kind = {[ROWS_TOKENS] = tokens, [ROWS_LOGITS] = logits, [ROWS_MADE] = tokens}};
}

/* Puts the ops for the given launch rows on the stream, or computes them (exec.c). */
void exec_run_ops(exec *self, uint32_t side, exec_rows rows);

/* The library algorithm of a product for this row count, or null. */
gemm_lt_op *exec_library_choice(const exec_op *op, uint32_t rows);

/* Makes the maps of a launch, if a kernel of these constants takes maps (exec.c). GPU machine. */
bool exec_make_maps(exec *self, uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows,
                    tensor_maps *maps);

typedef struct exec_lane { /* where an op goes */
  gpu_stream *stream;
  bool overlaps; /* see gpu_work */
} exec_lane;

/* Puts one op on the stream with the inputs of side 0, or computes it (exec.c). The launch rows of its kind must be in its range.
 * overlaps: see gpu_work. */
void exec_run_op(exec *self, uint32_t op, uint32_t token_rows, uint32_t logit_rows, bool overlaps);

/* One op by our own kernel, never by a library (exec.c). GPU machine. */
void exec_launch_own(exec *self, const exec_op *op, uint32_t side, uint32_t rows, exec_lane lane);

/* The library algorithms (exec/library.c): those that run here are chosen, and later compared with our kernel. GPU machine. */
status exec_library_open(exec *self, arena *host);
status exec_library_check(exec *self);

#endif
