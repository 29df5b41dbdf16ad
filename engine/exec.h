/* exec.h - runs the op list of a plan, one step at a time, on the GPU or the CPU machine.
 *
 * A step: the caller fills the input image of one parity, submits, and later waits for that parity's results; the other parity may
 * be filled and submitted in between. Steps run in the order of submission. On the CPU machine submit computes at once.
 * Which machine, graph or direct launches, poison: none of it changes a bit of the results.
 * Knows nothing of requests. Read next: exec.c, exec_start.c, plan_format.h. */
#ifndef VERBATIM_EXEC_H
#define VERBATIM_EXEC_H
#include "base.h"
#include "cpu/cpu.h"
#include "gpu.h"
#include "kernels_src/abi.h"
#include "arena.h"
#include "plan.h"
#include "weights.h"

typedef struct exec exec;

typedef struct exec_options {
  gpu *device;           /* null: the CPU machine                                                    */
  cpu_pool *pool;        /* CPU machine                                                              */
  const dynlib_search *libraries; /* where else CUDA's libraries may be, or null; read by exec_open  */
  const char *cache_dir; /* of cubins; null: none; read by exec_open                                 */
  bool direct;           /* no graphs, exact row counts instead of ladder sizes                      */
  bool poison;           /* NaN patterns in all memory that must not matter                          */
  bool logits;           /* results carry the logits rows                                            */
} exec_options;

/* What the caller fills; arrays as in plan_io, bounds as in plan_limits. */
typedef struct exec_input {
  step_in *head;
  int32_t *token;
  uint32_t *position, *seq;
  attn_tile *tiles;
  uint32_t *logit_row;
  sample_param *sample;
} exec_input;

typedef struct exec_results { /* of the step last submitted with this parity; valid until the parity is submitted again */
  const sample_result *result; /* [logit_count]                                             */
  const top_logprob *top;      /* [logit_count][TOP_LOGPROBS_MAX]: of a row its top_count   */
  const uint64_t *digest;      /* [logit_count]                                             */
  const float *logits;         /* [logit_count][vocab]; null without the option             */
} exec_results;

typedef struct exec_slot { /* one that has a new owner */
  uint32_t slot;
  uint32_t list_count; /* entries of its token list, 0: none */
} exec_slot;

typedef struct exec_counts {
  uint32_t graphs, kernels_cached, kernels_compiled; /* GPU machine, else 0                          */
  uint64_t pinned_bytes;
} exec_counts;

/* The start, in this order; all of it may allocate, nothing behind it does. open makes memory and arguments. On error everything made is
 * released by exec_close, which takes null and half-made ones. */
status exec_open(exec **out, const plan *p, const exec_options *options, arena *host);
void exec_close(exec *self);

/* Compiles and loads the kernels, opens the library of pinned algorithms. Nothing to do on the CPU machine. */
status exec_start_kernels(exec *self, arena *host);

/* Where weights_load puts the weights. Valid until exec_start_tables. */
weights_target exec_weights_target(exec *self);

/* Tables, and fills of all that a request must not depend on. */
void exec_start_tables(exec *self);

/* ERR_MISMATCH: a pinned library algorithm does not give the bits of our kernel here. Nothing to do on the CPU machine. */
status exec_start_library(exec *self);

/* Warm-up and graphs; after it steps may be run. Nothing to do on the CPU machine. */
status exec_start_graphs(exec *self);

exec_counts exec_count(const exec *self);

/* The input image of a parity (0 or 1); free to fill once the parity's last step has been waited for. Under poison it is
 * overwritten with NaN patterns by this call. */
exec_input exec_fill(exec *self, uint32_t parity);

/* Block table row of a slot, [pages_per_seq], and its token list, [TOKEN_LIST_MAX]. One image for both parities: they are given to the
 * device by naming the slot in exec_submit, and may be changed again when that step has been waited for. */
uint32_t *exec_block_row(exec *self, uint32_t slot);
token_bias *exec_list(exec *self, uint32_t slot);

/* Pages whose rows no step to come may read. Under poison they are overwritten with NaN patterns, behind the steps submitted so
 * far; otherwise nothing happens. */
void exec_drop_pages(exec *self, const uint32_t *pages, uint32_t count);

/* Runs the step of this parity. decode: every token row has a logits row, so that a ladder size may be used.
 * changed: slots whose block table rows and token lists are to be sent. */
void exec_submit(exec *self, uint32_t parity, bool decode, const exec_slot *changed, uint32_t changed_count);

/* Waits for the step last submitted with this parity. */
exec_results exec_wait(exec *self, uint32_t parity);

#endif
