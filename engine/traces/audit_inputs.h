/* audit_inputs.h - for every op that can be recomputed alone: the points it reads, the points it makes, and the ops that must run before
 * it.
 *
 * Derived from a plan and its points. An op reads bytes; they hold the point that an earlier op wrote there last. Of an op's alternatives,
 * the one with the most launch rows represents all. Read next: points.h, audit.c. */
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
  uint32_t op;           /* index in the plan */
  uint32_t prior;        /* the op that runs before it and makes no point: moe_sort, split attention before mla_fold, index_score; or
                            AUDIT_NONE */
  uint32_t cut;          /* attn_cut, if `prior` is split attention and reads its list; or AUDIT_NONE */
  uint32_t quant;        /* act_quant, which runs between the inputs and the op; or AUDIT_NONE        */
  audit_list made;
  audit_list inputs, prior_inputs;
  bool of_logits;        /* its rows are logits rows                           */
  bool reads_kv;         /* it also reads the KV rows of all earlier positions */
  uint32_t rows_max;     /* most token rows in one run                         */
} audit_op;

typedef struct audit_inputs {
  uint32_t count;
  const audit_op *ops;   /* [count] in the order of the plan */
  uint32_t point_count;
  const uint32_t *op_of; /* [point_count]: index in ops; AUDIT_NONE: the op is not recomputed (`adjust`: a receipt covers it) */
} audit_inputs;

/* Memory from the arena. ERR_FORMAT: the plan's ops read bytes that none of them wrote. [start-up] */
status audit_inputs_open(audit_inputs *self, const plan *p, const points *all, arena *host);

/* Multiplications and additions for one row of the op at this position; 0: an op without products. gemm: 2 n k for every batch; experts: 2
 * n k for each of the top_k rows; attention: 2 heads (2 kv_lora_rank + rope_dim) for every token that it sees; index_topk: 2 heads 128 for
 * every key that is scored. */
double audit_inputs_flops(const plan *p, const audit_op *op, uint32_t position);

#endif
