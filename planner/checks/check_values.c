/* check_values.c - see check_values.h. The header is checked here, the arguments of each op in checks/<stem>.c. Some limits of the
 * header are stated in engine/plan/plan.c as well, on purpose: that file protects the engine from arbitrary bytes, this one finds
 * mistakes of the planner, and neither relies on the other. */
#include "checks/check_values.h"
#include "checks/reading.h"

static status check_experts(const plan_model *m) {
  if (m->experts == 0) return OK;
  TRY(in_range("experts", m->experts, 1, EXPERTS_MAX));
  TRY(in_range("groups", m->groups, 1, m->experts < EXPERT_GROUPS_MAX ? m->experts : EXPERT_GROUPS_MAX));
  TRY(in_range("experts % groups", m->experts % m->groups, 0, 0));
  TRY(in_range("top_groups", m->top_groups, 1, m->groups));
  TRY(in_range("top_k", m->top_k, 1, m->experts / m->groups * m->top_groups));
  TRY(in_range("top_k", m->top_k, 1, TOP_K_EXPERTS_MAX));
  TRY(in_range("scoring", m->scoring, 0, ROUTER_SIGMOID));
  TRY(in_range("group_mode", m->group_mode, 0, ROUTER_GROUP_TOP2));
  if (m->group_mode == ROUTER_GROUP_TOP2) TRY(in_range("experts of a group", m->experts / m->groups, 2, EXPERTS_MAX));
  return OK;
}

static status check_grouped(const plan_header *h) {
  const plan_model *m = &h->model;
  const plan_grouped *g = &h->grouped;
  const uint64_t columns = (uint64_t)m->nope_dim + m->rope_dim, high = g->unrotated[1], low = g->unrotated[0];
  if (!plan_is_grouped(g)) {
    TRY(in_range("kv_lora_rank", m->kv_lora_rank, 1, KV_LORA_RANK_MAX));
    TRY(in_range("rope_dim", m->rope_dim, 2, ROPE_DIM_MAX));
    return in_range("fields of grouped heads", g->qk_norm | g->has_bias | g->norms | g->shared_gate | g->pad | low | high, 0, 0);
  }
  TRY(in_range("kv_heads", g->kv_heads, 1, m->heads));
  TRY(in_range("heads % kv_heads", m->heads % g->kv_heads, 0, 0));
  TRY(in_range("heads / kv_heads", m->heads / g->kv_heads, 1, GROUP_HEADS_MAX));
  TRY(in_range("kv_lora_rank + q_lora_rank", (uint64_t)m->kv_lora_rank + m->q_lora_rank, 0, 0));
  TRY(in_range("nope_dim + rope_dim", columns, 64, HEAD_DIM_MAX));
  TRY(in_range("(nope_dim + rope_dim) % 16", columns % 16, 0, 0));
  TRY(in_range("rope_dim", m->rope_dim, 2, columns));
  TRY(in_range("rope_dim % 2", m->rope_dim % 2, 0, 0));
  TRY(in_range("v_dim", m->v_dim, columns, columns));
  TRY(in_range("index_heads", h->quant.index_heads, 0, 0));
  TRY(in_range("kv_format, fp8_ds_mla,", h->quant.kv_format == KV_FP8_DS_MLA, 0, 0));
  TRY(in_range("qk_norm", g->qk_norm, 0, QK_NORM_ROW));
  TRY(in_range("has_bias", g->has_bias, 0, BIAS_ALL));
  TRY(in_range("norms", g->norms, 0, NORMS_AROUND));
  TRY(in_range("shared_gate", g->shared_gate, 0, m->shared_experts > 0));
  TRY(in_range("pad", g->pad, 0, 0));
  for (uint32_t i = 0; i < 128; i++) TRY(in_range("unrotated", (i < 64 ? low : high) >> i % 64 & 1, 0, i < m->layers));
  return OK;
}

static status check_quant(const plan_header *h) {
  const plan_quant *q = &h->quant;
  const bool is_sparse = q->index_heads != 0, is_e4m3 = q->weight_format != WEIGHTS_BF16, is_mixed = q->kv_format == KV_FP8_DS_MLA;
  const uint64_t high = q->index_shared[1], low = q->index_shared[0];
  TRY(in_range("index_heads", q->index_heads, is_sparse * 16, is_sparse * 64));
  TRY(in_range("index_heads, no power of two,", q->index_heads & (q->index_heads - is_sparse), 0, 0));
  TRY(in_range("index_topk", q->index_topk, is_sparse * 64, is_sparse * INDEX_TOPK_MAX));
  TRY(in_range("index_topk % 64", q->index_topk % 64, 0, 0));
  TRY(in_range("index_half_split", q->index_half_split, 0, is_sparse));
  TRY(in_range("index_scale", q->index_scale, 0, is_sparse * SCALE_POW2));
  for (uint32_t i = 0; i < 128; i++) /* the first layer has no previous layer's lists */
    TRY(in_range("index_shared", (i < 64 ? low : high) >> i % 64 & 1, 0, is_sparse && i > 0 && i < h->model.layers));
  TRY(in_range("weight_format", q->weight_format, 0, WEIGHTS_E4M3));
  TRY(in_range("act_scale", q->act_scale, 0, is_e4m3 * SCALE_POW2));
  TRY(in_range("kv_format", q->kv_format, 0, KV_FP8));
  TRY(in_range("kv_scale", q->kv_scale, 0, is_mixed * SCALE_POW2));
  if (is_mixed) TRY(in_range("kv_lora_rank", h->model.kv_lora_rank, 512, 512));
  return in_range("parity", h->limits.parity, 0, !is_sparse);
}

status check_values_header(const plan_header *h) {
  const plan_model *m = &h->model;
  const plan_limits *l = &h->limits;
  const bool has_mtp = l->speculation == SPECULATION_MTP; /* one more layer has a number */
  TRY(in_range("layers", m->layers, 1, LAYERS_MAX - (uint64_t)has_mtp));
  TRY(in_range("parity with mtp", has_mtp * l->parity, PARITY_STRICT, PARITY_STRICT));
  TRY(in_range("speculation", l->speculation, SPECULATION_OFF, SPECULATION_MTP));
  TRY(in_range("draft_tokens", l->draft_tokens, l->speculation != SPECULATION_OFF, (l->speculation != SPECULATION_OFF) * DRAFT_TOKENS_MAX));
  TRY(in_range("max_batch_tokens", l->max_batch_tokens, 1, BATCH_TOKENS_MAX));
  TRY(in_range("kv_pages", l->kv_pages, 0, KV_PAGES_MAX));
  TRY(in_range("vocab", m->vocab, 1, VOCAB_MAX));
  TRY(in_range("heads", m->heads, 1, HEADS_MAX));
  TRY(in_range("ranks", l->ranks, 1, RANKS_MAX));
  if (h->grouped.kv_heads == 0) TRY(in_range("heads % ranks", m->heads % l->ranks, 0, 0)); /* else each rank may have all heads */
  TRY(in_range("transport", l->transport, TRANSPORT_PEER, l->ranks > 1 ? TRANSPORT_NCCL : TRANSPORT_PEER));
  TRY(check_grouped(h));
  TRY(in_range("rope_half_split", m->rope_half_split, 0, 1));
  TRY(in_range("dense_layers", m->dense_layers, 0, m->layers));
  TRY(check_experts(m));
  TRY(check_quant(h));
  TRY(in_range("max_seqs", l->max_seqs, 1, SEQS_MAX));
  TRY(in_range("max_len", l->max_len, 2, LENGTH_MAX));
  TRY(in_range("max_logit_rows", l->max_logit_rows, l->max_seqs, l->max_batch_tokens));
  TRY(in_range("pages_per_seq", l->pages_per_seq, div_up(l->max_len, PAGE_TOKENS), div_up(l->max_len, PAGE_TOKENS)));
  TRY(in_range("chunk_tokens", l->chunk_tokens, PAGE_TOKENS, LENGTH_MAX));
  TRY(in_range("chunk_tokens % 64", l->chunk_tokens % PAGE_TOKENS, 0, 0));
  TRY(in_range("group_chunks", l->group_chunks, 1, LENGTH_MAX));
  TRY(in_range("parity", l->parity, PARITY_STRICT, PARITY_FAST_PREFILL));
  const bool has_narrow_rows = h->quant.kv_format != KV_BF16;
  TRY(in_range("expand_pages", l->expand_pages, l->parity, (l->parity || has_narrow_rows) * (LENGTH_MAX / PAGE_TOKENS)));
  if (l->parity == PARITY_FAST_PREFILL) TRY(in_range("nope_dim + rope_dim", (uint64_t)m->nope_dim + m->rope_dim, 64 + 2, 512 + 64));
  /* A list is of one token; else 64 rows: tokens times heads, or 128: tokens times the heads that share a KV head. */
  const bool is_grouped = h->grouped.kv_heads != 0;
  const uint32_t rows = is_grouped ? 128 : 64, heads = is_grouped ? m->heads / h->grouped.kv_heads : m->heads / l->ranks;
  const uint32_t tokens = h->quant.index_heads ? 1 : max_u32(1, rows / heads);
  return in_range("attn_tile_tokens", l->attn_tile_tokens, 1, tokens);
}

status check_values_op(const plan_header *h, const plan_op *op, const void *args, const char *name) {
  const reader r = {&h->model, &h->quant, &h->limits, &h->grouped, name, op->layer, op->rows_max,
                    op->rows_kind == ROWS_LOGITS ? ROWS_LOGITS : ROWS_TOKENS, op->rows_kind == ROWS_PROMPT,
                    op->rows_kind == ROWS_BY_REQUESTS};
  const reading *of = reading_of(op->kernel);
  return of ? of->values(&r, args) : OK;
}
