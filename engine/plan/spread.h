/* plan/spread.h - whether a plan's attention has blocks that wait for each other: what they need is in the plan, and at start-up.
 *
 * Apart from plan/format.h, which knows nothing of how ops are done. Read next: kernels_src/attn/split/form.cuh. */
#ifndef VERBATIM_PLAN_SPREAD_H
#define VERBATIM_PLAN_SPREAD_H
#include "kernels_src/attn/attn_cut.h"
#include "plan/format.h"

/* Of the whole plan: attn_may_spread of its attention. limits: chunk_tokens is read. */
static inline int plan_may_spread(const plan_model *model, const plan_quant *quant, const plan_limits *limits) {
  const mla_attn_args a = {.heads = model->heads, .kv_lora_rank = model->kv_lora_rank, .rope_dim = model->rope_dim,
                           .chunk_tokens = limits->chunk_tokens, .list_max = quant->index_topk};
  return attn_may_spread(&a) != 0;
}

#endif
