/* exec_state.h - what exec.c and exec_start.c share: the state of the machine that runs a plan. Private to these two. */
#ifndef VERBATIM_EXEC_STATE_H
#define VERBATIM_EXEC_STATE_H
#include "exec.h"
#include "gemm_lt.h"
#include "jit.h"
#include "kernels.h"

/* The least size of the pinned block: weights pass through it in slots, other uploads of the start in halves; the steps' images use the
 * space later. */
#define EXEC_STAGING_BYTES (STAGING_SLOTS_MAX * STAGING_SLOT_BYTES)
#define EXEC_STAGING_HALF_BYTES (EXEC_STAGING_BYTES / 2)

typedef struct exec_op { /* one op of the plan, resolved */
  const plan_op *op;
  const char *name;
  const kernel_row *row;
  void *args;             /* with addresses */
  const gpu_kernel *kernel; /* GPU machine */
  gemm_lt_op *lt;         /* [op->gemm_count], GPU machine */
} exec_op;

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
  uint8_t *pinned;            /* the pinned block */
  uint64_t pinned_bytes;
  gpu_stream *stream;
  gpu_event *done[2];
  gpu_event *slot_read[STAGING_SLOTS_MAX]; /* of the staging slots */
  gpu_kernel *kernels;        /* [plan kernels] */
  gpu_graph *graphs[LADDER_MAX];
  jit *compiler;
  gemm_lt *library;
  uint32_t graph_count, kernels_cached, kernels_compiled;
};

/* Address of a byte of a region. */
static inline uint64_t exec_address(const exec *self, uint32_t region, uint64_t offset) {
  return self->base + self->plan->regions[region].offset + offset;
}

/* Puts the ops for the given launch rows on the stream, or computes them (exec.c). */
void exec_run_ops(exec *self, uint32_t token_rows, uint32_t logit_rows);

/* One op by our own kernel, never by a library (exec.c). GPU machine. */
void exec_launch_own(exec *self, const exec_op *op, uint32_t rows);

#endif
