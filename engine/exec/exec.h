/* exec.h - runs the op list of a plan, one step at a time, on the GPU or the CPU machine.
 *
 * A step: the caller fills the input image of one side, submits, and later waits for that side's results; the other side may
 * be filled and submitted in between. Steps run in the order of submission. On the CPU machine submit computes at once.
 * Which machine, graph or direct launches, poison: none of it changes a bit of the results.
 * Knows nothing of requests. Read next: exec.c, exec/start.c, plan/format.h. */
#ifndef VERBATIM_EXEC_H
#define VERBATIM_EXEC_H
#include "base/arena.h"
#include "base/base.h"
#include "cpu/cpu.h"
#include "exec/block_table.h"
#include "gpu/gpu.h"
#include "kernels_src/abi.h"
#include "plan/plan.h"
#include "verbatim.h"
#include "weights/weights.h"

typedef struct exec exec;

typedef struct exec_options {
  gpu *device;           /* null: the CPU machine                                                    */
  cpu_pool *pool;        /* CPU machine                                                              */
  const dynlib_search *libraries; /* where else CUDA's libraries may be, or null; read by exec_open  */
  const char *cache_dir; /* of cubins; null: none; read by exec_open                                 */
  bool direct;           /* no graphs, exact row counts instead of ladder sizes                      */
  bool poison;           /* NaN patterns in all memory that must not matter                          */
  bool logits;           /* results carry the logits rows                                            */
  bool timed;            /* exec_count tells the gaps between steps                                  */
  const plan_product *unchecked; /* [unchecked_count] in place of the plan's pins, the first that fits; nothing checks their bits, which may
                            * not be the numerics'. For measuring what the guarantees cost, never for requests. Kept by the caller. */
  uint32_t unchecked_count;
} exec_options;

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
} exec_input;

typedef struct exec_results { /* of the step last submitted with this side; valid until the side is submitted again */
  const sample_result *result; /* [logit_count]                                             */
  const top_logprob *top;      /* [logit_count][TOP_LOGPROBS_MAX]: of a row its top_count   */
  const uint64_t *digest;      /* [logit_count]                                             */
  const float *logits;         /* [logit_count][vocab]; null without the option             */
} exec_results;

/* From the end of a step's ops to the beginning of the next one's, where the host had submitted that in time: what it takes to bring
 * results down and inputs up, and whatever else keeps the device from working. */
typedef struct exec_gaps {
  uint64_t count;
  double sum_us;
  uint32_t bins[VERBATIM_GAP_BINS]; /* by whole microseconds, the last: or more */
} exec_gaps;

typedef struct exec_counts {
  uint32_t graphs, kernels_cached, kernels_compiled; /* GPU machine, else 0                          */
  uint32_t nvrtc_version; /* 1000 * major + 10 * minor */
  uint64_t cublaslt_version, pinned_bytes;
  const char *left_out;   /* why optional library algorithms are not used, or null */
  const char *cache_note; /* of the cache of compiled kernels, "" or null; until the graphs are captured */
  exec_gaps gaps;
} exec_counts;

/* The regions of a step's side in place of those that plans name. */
static inline uint32_t exec_region(uint32_t region, uint32_t side) {
  return region == REGION_STEP && side ? REGION_STEP_ODD : region == REGION_RESULT && side ? REGION_RESULT_ODD : region;
}

/* The start, in this order; all of it may allocate, nothing behind it does. open makes memory and arguments. On error everything made is
 * released by exec_close, which takes null and half-made ones. */
status exec_open(exec **out, const plan *p, const exec_options *options, arena *host);
void exec_close(exec *self);

/* Compiles and loads the kernels, opens the library of pinned algorithms. Those that are optional and cannot run here are left out: our
 * kernel computes the same. Nothing to do on the CPU machine. */
status exec_start_kernels(exec *self, arena *host);

/* Before the weights are loaded: the device's reservation is the probes' memory. Runs the probes of self_check.h by every kernel of the
 * plan, on the CPU machine by every op of it. ERR_MISMATCH names the probe that this machine answers otherwise. */
status exec_start_check(exec *self);

/* Where weights_load puts the weights. Valid until exec_start_tables. */
weights_target exec_weights_target(exec *self);

/* Tables, and fills of all that a request must not depend on. */
void exec_start_tables(exec *self);

/* ERR_MISMATCH: a pinned library algorithm does not give the bits of our kernel here. Nothing to do on the CPU machine. */
status exec_start_library(exec *self);

/* Warm-up and graphs; after it steps may be run. Nothing to do on the CPU machine. */
status exec_start_graphs(exec *self);

exec_counts exec_count(const exec *self);

/* The machine code that is loaded, in the plan's order; none on the CPU machine. */
const verbatim_kernel *exec_kernels(const exec *self, uint32_t *count);

/* The input image of a side (0 or 1); free to fill once the side's last step has been waited for. Under poison it is
 * overwritten with NaN patterns by this call. */
exec_input exec_fill(exec *self, uint32_t side);

/* Writes the tiles of the tokens `all`, each of at most `most` and none across a multiple of `edge`; returns how many. */
uint32_t exec_cut_tiles(attn_tile *tiles, attn_tile all, uint32_t most, uint32_t edge);

/* Context number nth, behind those before it: `tokens` tokens of the slot. */
void exec_add_context(const exec_input *in, uint32_t nth, uint32_t slot, uint32_t tokens);

/* What the step holds: rows that were made, and rows of prompts, which are apart under fast-prefill alone. */
void exec_set_counts(const exec_input *in, uint32_t logits, step_in made, step_in prompt);

/* Which pages and token lists the slots have: what changes there goes to the device with the steps that are submitted after. */
block_table *exec_block_table(exec *self);

/* Pages whose rows no step to come may read. Under poison they are overwritten with NaN patterns, behind the steps submitted so
 * far; otherwise nothing happens. */
void exec_drop_pages(exec *self, const uint32_t *pages, uint32_t count);

/* Runs the step of this side. decode: every token row has a logits row, so that a ladder size may be used. */
void exec_submit(exec *self, uint32_t side, bool decode);

/* Waits for the step last submitted with this side. */
exec_results exec_wait(exec *self, uint32_t side);

/* In place of exec_submit: runs the step op by op, by direct launches, and calls see after every op that ran, when its results are there.
 * Ends with the step's end. */
typedef void exec_see(void *context, uint32_t op);
void exec_submit_watched(exec *self, uint32_t side, exec_see *see, void *context);

/* Inside see, and while no step is under way: copies of the machine's memory, by region. They wait. read_rows: count rows of row_bytes from
 * their offsets, to one behind the other. */
void exec_read(exec *self, uint32_t region, uint64_t offset, void *to, uint64_t bytes);
void exec_read_rows(exec *self, uint32_t region, const uint64_t *offsets, uint32_t count, uint64_t row_bytes, void *to);
void exec_write(exec *self, uint32_t region, uint64_t offset, const void *from, uint64_t bytes);

/* As these: one op of the plan alone, with whatever its inputs hold, the step's head among them. The launch rows of its kind must be in its
 * range. */
void exec_run_alone(exec *self, uint32_t op, uint32_t token_rows, uint32_t logit_rows);

#endif
