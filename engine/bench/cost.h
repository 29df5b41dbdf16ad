/* bench/cost.h - the least that an op must move and compute, from its arguments in the plan and the step's inputs.
 *
 * Bytes: every number that the op reads or writes counts once, however often its kernel moves it. Weights count if they must be read: of
 * experts, only those that have a token. Of the KV cache, every row that a sequence of the step attends to counts; rows written are
 * activations. Bytes that a rank sends to others are counted apart. FLOPs: two for a multiply-add of a product or of attention; elsewhere
 * one for each addition, multiplication, division and exponential. Must not know how a backend runs an op. Read next: ops/op.h. */
#ifndef VERBATIM_BENCH_COST_H
#define VERBATIM_BENCH_COST_H
#include "base/base.h"
#include "ops/op.h"
#include "plan/plan.h"

typedef op_cost bench_cost;

typedef struct bench_cost_step { /* the inputs of a step that costs depend on */
  uint32_t token_count, logit_count;
  const uint32_t *position;      /* [token_count]                                     */
  uint64_t kv_rows;              /* sum over the sequences of the rows they attend to */
  uint32_t experts_used;         /* used by the tokens, if the current op has experts */
} bench_cost_step;

typedef struct bench_rates { /* of hardware, per second; 0: unknown, and sets no limit */
  double bytes, flops;   /* flops: of bf16 numbers */
  double link_bytes;     /* from a GPU to the others */
} bench_rates;

bench_cost bench_cost_of(const plan *p, const plan_op *op, const bench_cost_step *step);

/* In memory. */
static inline uint64_t bench_cost_bytes(const bench_cost *cost) { return cost->weight_bytes + cost->kv_bytes + cost->activation_bytes; }

void bench_cost_add(bench_cost *sum, const bench_cost *cost);

/* The least time in microseconds that hardware with these rates needs if this many of the bytes in its memory count. e4m3 numbers are
 * multiplied BENCH_COST_E4M3 times as fast as bf16 numbers. */
#define BENCH_COST_E4M3 2.0
double bench_cost_floor_us(uint64_t bytes, const bench_cost *cost, const bench_rates *rates);

#endif
