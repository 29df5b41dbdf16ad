/* plan/format_kv.h - sizes of what a plan keeps of a token, by model and formats. A part of plan/format.h, which includes it. */
#ifndef VERBATIM_PLAN_FORMAT_KV_H
#define VERBATIM_PLAN_FORMAT_KV_H

/* Bytes of a token's KV row in one layer of a rank. */
static inline uint32_t plan_kv_row_bytes(const plan_model *model, const plan_quant *quant, const plan_grouped *grouped,
                                         const plan_limits *limits) {
  if (plan_is_grouped(grouped)) {
    const uint32_t kv_heads = grouped->kv_heads / plan_attention_ranks(grouped, limits);
    return kv_heads * (model->nope_dim + model->rope_dim + model->v_dim) * (quant->kv_format == KV_FP8 ? 1 : 2);
  }
  if (quant->kv_format == KV_FP8) return model->kv_lora_rank + model->rope_dim;
  if (quant->kv_format == KV_FP8_DS_MLA) return model->kv_lora_rank + model->kv_lora_rank / SCALE_COLUMNS * 4 + model->rope_dim * 2;
  return (model->kv_lora_rank + model->rope_dim) * 2;
}

/* Number of layers below this one that have an indexer: the index of this layer's pages among the indexers' pages. */
static inline uint32_t plan_indexers(const plan_quant *quant, uint32_t layer) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < layer; i++) count += plan_has_indexer(quant, i) != 0;
  return count;
}

/* Bytes of the pages of the indexers of these layers. */
static inline uint64_t plan_index_bytes(const plan_quant *quant, uint32_t layers, uint32_t kv_pages) {
  return (uint64_t)plan_indexers(quant, layers) * kv_pages * INDEX_PAGE_BYTES;
}

/* Bytes of a page of 64 tokens in all layers that keep rows, without its history. */
static inline uint64_t plan_page_bytes(const plan_model *model, const plan_quant *quant, const plan_grouped *grouped,
                                       const plan_limits *limits) {
  const uint32_t kept_layers = plan_kept_layers(model, limits);
  return (uint64_t)kept_layers * PAGE_TOKENS * plan_kv_row_bytes(model, quant, grouped, limits) + plan_index_bytes(quant, kept_layers, 1);
}

#endif
