/* audit_inputs.h - of every op that can be computed again alone: which points it reads, which it makes, and what has to run before it.
 *
 * Told from a plan and its points. An op reads bytes; the point that an earlier op wrote there last is what they hold. Of the
 * alternatives of an op the one with the most launch rows stands for all. Read next: points.h, audit.c. */
#ifndef VERBATIM_AUDIT_INPUTS_H
#define VERBATIM_AUDIT_INPUTS_H
#include "base/arena.h"
#include "base/base.h"
#include "plan/plan.h"
#include "plan/points.h"

#define AUDIT_INPUTS_MAX 6u
#define AUDIT_NONE UINT32_MAX

typedef struct audit_list { /* numbers of points */
  uint32_t count;
  uint32_t point[AUDIT_INPUTS_MAX];
} audit_list;

typedef struct audit_op {
  uint32_t op;           /* in the plan                                                                              */
  uint32_t prior;        /* the op that runs before it and makes no point: moe_sort, split attention before its fold, index_score; or
                            AUDIT_NONE */
  uint32_t cut;          /* attn_cut, where `prior` is split attention and reads what it lists; or AUDIT_NONE */
  uint32_t quant;        /* act_quant, which runs between the inputs and it; or AUDIT_NONE */
  audit_list made;
  audit_list inputs, prior_inputs;
  bool of_logits;        /* its rows are logits rows                                                                 */
  bool reads_kv;         /* also the KV rows of all positions before                                                 */
  uint32_t rows_max;     /* token rows at once                                                                       */
} audit_op;

typedef struct audit_inputs {
  uint32_t count;
  const audit_op *ops;   /* [count] in the order of the plan */
  uint32_t point_count;
  const uint32_t *op_of; /* [point_count]: in ops, AUDIT_NONE: the op is not computed again (`adjust`: a receipt judges it) */
} audit_inputs;

/* Memory from the arena. ERR_FORMAT: the plan's ops read what none of them wrote. [start-up] */
status audit_inputs_open(audit_inputs *self, const plan *p, const points *all, arena *host);

/* Products and sums of one row of the op, at this position; 0: an op without products. gemm: 2 n k for every batch; experts: 2 n k for
 * each of the top_k rows; attention: 2 heads (2 kv_lora_rank + rope_dim) for every token that it sees; index_topk: 2 heads 128 for every
 * key that is scored. */
double audit_inputs_flops(const plan *p, const audit_op *op, uint32_t position);

#endif
