/* exec/state.h - the state of exec, which exec.c, exec/start.c and exec/bench.c share. Private to these. */
#ifndef VERBATIM_EXEC_STATE_H
#define VERBATIM_EXEC_STATE_H
#include "exec/backend.h"

#define EXEC_TIMED_STEPS 4u /* more than are in flight */

struct exec {
  const plan *plan;
  exec_options options;
  backend *backend;           /* of all ranks */
  uint32_t ranks;
  struct backend *rank[RANKS_MAX]; /* of each; with one rank the same */
  gather gather;              /* of the ranks, through NCCL */
  const exec_op *ops;         /* of rank 0 */
  uint32_t op_count;
  uint32_t rung_count;        /* ladder sizes in use: 0 with direct */
  uint8_t *image[2];          /* STEP up to the block table */
  uint32_t *masks;            /* [plan_mask_room][plan_mask_words]; null, as the two after it, in a plan without token masks */
  uint64_t *masks_there[2];   /* [plan_mask_room] of each row the `made` of what the side has on the device, 0: nothing */
  exec_mask *step_masks[2];   /* [plan_mask_rows] */
  uint32_t mask_count[2];
  uint8_t *result[2];         /* RESULT images */
  float *logits[2];           /* null without the option */
  block_table table;
  backend_graph *graphs[LADDER_MAX][2][2]; /* by side, and whether the step attends by requests; null where the backend has none */
  bool by_requests[2];        /* whether the step of this side does */
  uint64_t submitted, waited;  /* steps */
  bool is_timed;
  uint32_t first_mark;         /* of two for each of EXEC_TIMED_STEPS: before the ops of a step, and after them */
  bool is_marked[EXEC_TIMED_STEPS];  /* has these marks */
  bool is_chained[EXEC_TIMED_STEPS]; /* the step before has them too, and was in flight when this one was submitted */
  exec_gaps gaps;
  uint8_t *rank_host[RANKS_MAX]; /* see ranks.c; null with one rank */
  bool has_links[2];             /* the digests of what was exchanged were fetched after the side's step */
  step_in compared[2];           /* counts of the side's step, whose rows the ranks compare */
};

/* Address of a byte of a region. */
static inline uint64_t exec_address(const exec *self, uint32_t region, uint64_t offset) {
  return backend_address(self->backend, region, offset);
}

typedef struct exec_rows { /* launch rows, by enum rows_kind, and how often the ops of ROWS_PROMPT are repeated */
  uint32_t kind[ROWS_KINDS], pieces;
} exec_rows;

/* The launch rows of a step without prompt ops: all its token rows are ordinary ones. */
static inline exec_rows exec_rows_made(const plan_limits *limits, uint32_t tokens, uint32_t logits, uint32_t drafts) {
  return (exec_rows){.kind = {[ROWS_TOKENS] = tokens, [ROWS_LOGITS] = logits, [ROWS_MADE] = tokens, [ROWS_DRAFTS] = drafts,
                              [ROWS_OWN] = plan_own_rows(limits, tokens), [ROWS_BY_HEADS] = tokens}};
}

/* The same of a step that attends by requests. */
static inline exec_rows exec_rows_by_requests(exec_rows rows) {
  rows.kind[ROWS_BY_REQUESTS] = rows.kind[ROWS_TOKENS];
  rows.kind[ROWS_BY_HEADS] = 0;
  return rows;
}

/* The same with as many drafts as a step with so many logits rows can have. */
static inline exec_rows exec_rows_most(const plan_limits *limits, uint32_t tokens, uint32_t logits) {
  return exec_rows_made(limits, tokens, logits, plan_has_mtp(limits) ? min_u32(logits, limits->max_seqs) : 0);
}

/* Writes into the image of a side how many of the step's rows each rank owns (exec.c). With one rank it does nothing. */
void exec_divide_rows(exec *self, uint32_t side);

/* Launches the ops for the given launch rows (exec.c). */
void exec_run_ops(exec *self, uint32_t side, exec_rows rows);

/* Ends the process, as a fault of a device does: what is one line. */
_Noreturn void exec_fault(exec *self, const char *what);

/* Launches one op with the inputs of side 0 (exec.c). The launch rows of its kind must be in its range. follows: see backend_launch. */
void exec_run_op(exec *self, uint32_t op, uint32_t token_rows, uint32_t logit_rows, bool follows);

#endif
