/* exec.h - runs the op list of a plan, one step at a time, on a GPU or the CPU.
 *
 * A step uses one of two sides: the caller fills the side's input image, submits the step and later waits for its results; in between the
 * other side may be filled and submitted. Steps run in the order of submission; on the CPU a step is computed when it is submitted.
 * The results do not depend on the backend, on graphs or direct launches, or on poison.
 * Must not know requests. Read next: exec.c, backend.h, start.c, plan/format.h. */
#ifndef VERBATIM_EXEC_H
#define VERBATIM_EXEC_H
#include "base/arena.h"
#include "base/base.h"
#include "cpu/cpu.h"
#include "exec/block_table.h"
#include "gpu/gpu.h"
#include "gpu/nccl.h"
#include "kernels_src/abi.h"
#include "plan/plan.h"
#include "verbatim.h"
#include "weights/weights.h"

typedef struct exec exec;

typedef struct exec_options {
  gpu *device;           /* of rank 0; null: the CPU                                                 */
  gpu *others[RANKS_MAX - 1]; /* of the other ranks of a plan that has several                       */
  nccl *nccl;            /* of all ranks, for a plan whose exchanges go through it, or to be compared; or null */
  cpu_pool *pool;        /* without a device                                                         */
  const dynlib_search *libraries; /* where else CUDA's libraries may be, or null; until exec_start_graphs */
  const char *cache_dir; /* of cubins, null: none; until exec_start_graphs                           */
  bool direct;           /* no graphs, exact row counts instead of ladder sizes                      */
  bool poison;           /* NaN patterns in all memory that results must not depend on               */
  bool logits;           /* results carry the logits rows                                            */
  bool timed;            /* measure the gaps between steps (GPU)                                     */
  bool check_exchanges;  /* ranks compare digests of all that they exchange, at every step, not of one exchange in 16 */
  uint32_t exchange_timeout_ms; /* longest wait of a rank for another, 0: 10,000                      */
  gpu_fault_hook *on_fault; /* called once, before a fault ends the process; or null                */
  void *fault_context;
  const plan_product *unchecked; /* [unchecked_count] in place of the plan's pins, the first that fits; nothing checks their bits, which may
                            * not be the numerics'. For measuring what the guarantees cost, never for requests. Kept by the caller. */
  uint32_t unchecked_count;
} exec_options;

/* A token mask in exec_masks. sample.mask is 1 + row. made: changes whenever the row's bits do, never 0. */
typedef struct exec_mask {
  uint32_t row;
  uint64_t made;
} exec_mask;

/* What the caller fills; arrays as in plan_io, bounds as in plan_limits. */
typedef struct exec_input {
  step_in *head; /* [STEP_PARTS]: exec_set_counts */
  int32_t *token;
  uint32_t *position, *seq;
  attn_tile *tiles;
  uint32_t *logit_row;
  sample_param *sample;
  attn_tile *prompt_tiles;  /* with expand_pages, and so contexts */
  step_context *contexts;
  int32_t *next;            /* [max_batch_tokens], with SPECULATION_MTP else null: id after each token row, -1: the one that the row
                             * chooses */
  step_draft *drafts;       /* [max_seqs], likewise: exec_set_drafts */
  exec_mask *masks;         /* [plan_mask_rows] those that the step uses, as often as it does: exec_set_masks; null in a plan without the
                             * op token_mask */
} exec_input;

typedef struct exec_results { /* of the last step of this side; valid until its next step is submitted */
  const sample_result *result; /* [logit_count]                                             */
  const top_logprob *top;      /* [logit_count][TOP_LOGPROBS_MAX]: of a row its top_count   */
  const uint64_t *digest;      /* [logit_count]                                             */
  const float *logits;         /* [logit_count][vocab]; null without the option             */
  const sample_result *draft;  /* [draft_tokens][draft_stride] by pass and entry of the step's drafts: as if the token were chosen after
                                * those of the passes before; null without SPECULATION_MTP   */
  uint32_t draft_stride;
  bool by_requests;            /* the step attended by requests (ROWS_BY_REQUESTS) */
} exec_results;

/* Time from the last op of a step to the first op of the next, if the host had submitted that one in time: copies of results and inputs,
 * and whatever else keeps the device idle. */
typedef struct exec_gaps {
  uint64_t count;
  double sum_us;
  uint32_t bins[VERBATIM_GAP_BINS]; /* by whole microseconds, the last: or more */
} exec_gaps;

typedef struct exec_counts {
  uint32_t graphs, kernels_cached, kernels_compiled; /* GPU, else 0                                  */
  uint32_t nvrtc_version; /* 1000 * major + 10 * minor */
  uint64_t cublaslt_version, pinned_bytes;
  const char *left_out;   /* why optional library algorithms are not used, or null */
  const char *cache_note; /* of the cache of compiled kernels, "" or null; until the graphs are captured */
  exec_gaps gaps;
} exec_counts;

/* The region that a step of this side uses for a region that a plan names. */
static inline uint32_t exec_region(uint32_t region, uint32_t side) {
  return region == REGION_STEP && side ? REGION_STEP_ODD : region == REGION_RESULT && side ? REGION_RESULT_ODD : region;
}

/* The start, in this order. All of it may allocate, nothing after it does. exec_open makes memory and arguments; exec_close takes null, and
 * one whose start failed. */
status exec_open(exec **out, const plan *p, const exec_options *options, arena *host);
void exec_close(exec *self);

/* Compiles and loads the kernels and opens the library of pinned algorithms. Optional ones that cannot run here are left out: our kernel
 * computes the same bits. Does nothing on the CPU. */
status exec_start_kernels(exec *self, arena *host);

/* Runs the probes of self_check.h with every kernel of the plan, on the CPU with every op. Comes before the weights, since the probes use
 * their memory. ERR_MISMATCH names the probe whose answer is wrong on this machine. */
status exec_start_check(exec *self);

/* Where weights_load puts the weights. Valid until exec_start_tables. */
weights_target exec_weights_target(exec *self);

/* Writes the tables of positions, and zeros or poison to all memory that a request must not depend on. */
void exec_start_tables(exec *self);

/* ERR_MISMATCH: a pinned library algorithm does not give the bits of our kernel here. Does nothing on the CPU. */
status exec_start_library(exec *self);

/* Warm-up and graphs; steps may be run after it. Does nothing on the CPU. */
status exec_start_graphs(exec *self);

exec_counts exec_count(const exec *self);

/* The machine code that is loaded, in the plan's order; none on the CPU. */
const verbatim_kernel *exec_kernels(const exec *self, uint32_t *count);

/* The input image of a side (0 or 1), which may be filled once the side's last step has been waited for. Under poison this call overwrites
 * it with NaN patterns. */
exec_input exec_fill(exec *self, uint32_t side);

/* Splits the tokens `all` into tiles of at most `most` tokens that do not cross a multiple of `edge`; returns how many. */
uint32_t exec_cut_tiles(attn_tile *tiles, attn_tile all, uint32_t most, uint32_t edge);

/* Adds context number nth, after those before it: `tokens` tokens of the slot. */
void exec_add_context(const exec_input *in, uint32_t nth, uint32_t slot, uint32_t tokens);

/* Writes the head of the image: the counts of ordinary rows and of prompt rows, see enum step_part; no drafts. */
void exec_set_counts(const exec_input *in, uint32_t logits, step_in ordinary, step_in prompt);

/* After it, with SPECULATION_MTP: the number of entries of `drafts`, at most one for each sequence of the step. */
void exec_set_drafts(const exec_input *in, uint32_t count);

/* The number of token masks that the step has; 0 if it is not called after exec_fill. */
void exec_set_masks(exec *self, uint32_t side, uint32_t count);

/* [plan_mask_room][plan_mask_words] the masks that the caller computes; null in a plan without them. A row must not change before the last
 * step that uses it has been waited for. */
uint32_t *exec_masks(const exec *self);

/* The pages and token lists of the slots. What changes in it goes to the device with the next steps. */
block_table *exec_block_table(exec *self);

/* No later step may read the rows of these pages. Under poison they are overwritten with NaN patterns, after the steps submitted so far;
 * otherwise nothing happens. */
void exec_drop_pages(exec *self, const uint32_t *pages, uint32_t count);

/* Runs the step of this side. decode: every token row has a logits row, so that a ladder size may be used. */
void exec_submit(exec *self, uint32_t side, bool decode);

/* Waits for the step last submitted with this side. */
exec_results exec_wait(exec *self, uint32_t side);

/* Instead of exec_submit: runs the step op by op, by direct launches, and calls `see` after every op that ran, except for those of the
 * draft section, once its results are in memory. Returns when the step has run. */
typedef void exec_see(void *context, uint32_t op);
void exec_submit_watched(exec *self, uint32_t side, exec_see *see, void *context);

/* Copies from and to device memory, by region, which wait; inside `see`, or while no step is in flight. exec_read: of rank 0; exec_write:
 * of all ranks. exec_read_rows: count rows of row_bytes from their offsets, packed one after the other. */
void exec_read(exec *self, uint32_t region, uint64_t offset, void *to, uint64_t bytes);
void exec_read_rows(exec *self, uint32_t rank, uint32_t region, const uint64_t *offsets, uint32_t count, uint64_t row_bytes, void *to);
void exec_write(exec *self, uint32_t region, uint64_t offset, const void *from, uint64_t bytes);

/* When exec_read may be called: runs one op of the plan alone, on whatever its inputs hold, the step's head among them. The launch rows of
 * its kind must be in its range. */
void exec_run_alone(exec *self, uint32_t op, uint32_t token_rows, uint32_t logit_rows);

#endif
