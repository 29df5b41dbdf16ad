/* bench/cost.h - the least that an op must move and compute, from its arguments in the plan and the step's inputs.
 *
 * Bytes: every number that it reads or writes, once, however often its kernel does. Of weights, those that must be read: of experts,
 * those that have a token. Of the KV cache, every row that a sequence of the step attends to; rows written are activations.
 * FLOPs: two for a multiply and add of a product or of the attention; elsewhere one for each addition, product, quotient and exponential.
 * Must not know how a backend runs an op. Read next: ops/op.h. */
#ifndef VERBATIM_BENCH_COST_H
#define VERBATIM_BENCH_COST_H
#include "base/base.h"
#include "ops/op.h"
#include "plan/plan.h"

typedef op_cost bench_cost;

typedef struct bench_cost_step { /* what a step's ops depend on */
  uint32_t token_count, logit_count;
  const uint32_t *position;      /* [token_count]                                        */
  uint64_t kv_rows;              /* sum over the sequences of the rows they attend to    */
  uint32_t experts_used;         /* by the tokens, if the op at hand is of experts       */
} bench_cost_step;

bench_cost bench_cost_of(const plan *p, const plan_op *op, const bench_cost_step *step);

static inline uint64_t bench_cost_bytes(const bench_cost *cost) { return cost->weight_bytes + cost->kv_bytes + cost->activation_bytes; }

void bench_cost_add(bench_cost *sum, const bench_cost *cost);

/* The time below which no machine of these rates can be, in microseconds, where so many of the cost's bytes count. A rate of 0 is not
 * known, and no limit. flops_per_s: of bf16 numbers; of e4m3 numbers a machine multiplies BENCH_COST_E4M3 times as many. */
#define BENCH_COST_E4M3 2.0
double bench_cost_floor_us(uint64_t bytes, const bench_cost *cost, double bytes_per_s, double flops_per_s);

#endif
