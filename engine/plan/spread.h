/* plan/spread.h - whether a plan's attention has blocks that wait for each other, which need memory and a check at start-up.
 *
 * Separate from plan/format.h, which does not know how ops are computed. Read next: kernels_src/attn/split/form.cuh. */
#ifndef VERBATIM_PLAN_SPREAD_H
#define VERBATIM_PLAN_SPREAD_H
#include "kernels_src/attn/attn_cut.h"
#include "plan/format.h"

/* attn_may_spread for an attention of so many heads. Of limits, only chunk_tokens is read. */
static inline int plan_may_spread(const plan_model *model, const plan_quant *quant, const plan_limits *limits, uint32_t heads) {
  const mla_attn_args a = {.heads = heads, .kv_lora_rank = model->kv_lora_rank, .rope_dim = model->rope_dim,
                           .chunk_tokens = limits->chunk_tokens, .list_max = quant->index_topk};
  return attn_may_spread(&a) != 0;
}

#endif
