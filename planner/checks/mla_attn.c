/* mla_attn.c - the checker's reading of the op `mla_attn`: memory and argument values. See reading.h. */
#include "checks/reading.h"
#include "attn/attn_cut.h"

static void describe(writer *w, const void *args) {
  const mla_attn_args *a = args;
  uint64_t t = w->rows.tokens, row = (uint64_t)a->kv_lora_rank + a->rope_dim, latent = times(a->heads, a->kv_lora_rank);
  uint64_t own = attn_block_floats(a), piece = sizeof(attn_piece) / 4;
  const bool is_widened = w->rows.is_prompt;
  describe_tiles(w, FIELD(mla_attn, tiles), is_widened ? IO(prompt_tiles) : IO(tiles));
  table(w, FIELD(mla_attn, q), false, TYPE_BF16, t, times(a->heads, row), times(a->heads, row));
  if (is_widened) table(w, FIELD(mla_attn, kv), false, TYPE_BF16, times(w->l->expand_pages, PAGE_TOKENS), row, row);
  else kv_pages(w, FIELD(mla_attn, kv), false, a->kv_format, a->kv_lora_rank, a->rope_dim);
  weight(w, FIELD(mla_attn, kv_scale), TYPE_F32, 1)->must_be_null = a->kv_format != KV_FP8;
  table(w, FIELD(mla_attn, lists), false, TYPE_LISTS, t, a->list_max, a->list_max)->must_be_null = a->list_max == 0;
  if (is_widened) table(w, FIELD(mla_attn, block_table), false, TYPE_PAGE_TABLE, w->l->expand_pages, 1, 1);
  else describe_block_table(w, FIELD(mla_attn, block_table), a->block_table_stride);
  table(w, FIELD(mla_attn, out), true, TYPE_BF16, t, latent, latent);
  describe_units(w, FIELD(mla_attn, partial_o), FIELD(mla_attn, partial_ml), true, a->slots_max, a->heads, a->kv_lora_rank);
  table(w, FIELD(mla_attn, counts), false, TYPE_COUNTS, 1, COUNTS, COUNTS)->must_be_null = a->slots_max == 0;
  table(w, FIELD(mla_attn, pieces), false, TYPE_PIECES, plus(t, a->slots_max), piece, piece)->must_be_null = a->slots_max == 0;
  table(w, FIELD(mla_attn, scratch), true, TYPE_F32, w->rows.blocks, own, own);
  fixed(w, FIELD(mla_attn, meetings), true, REGION_STATE, IO(meetings), ATTN_MEETINGS * UINT64_C(4))->must_be_null = !attn_may_spread(a);
}

static status values(const reader *r, const void *args) {
  const mla_attn_args *a = args;
  SAME(heads, r->m->heads / ranks_of_heads(r));
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(rope_dim, r->m->rope_dim);
  SAME(block_table_stride, r->is_prompt ? 1 : r->l->pages_per_seq);
  SAME(chunk_tokens, r->l->chunk_tokens);
  SAME(group_chunks, r->l->group_chunks);
  SAME_REAL(scale_log2, r->m->softmax_scale_log2);
  SAME(kv_format, r->is_prompt ? KV_BF16 : r->q->kv_format);
  SAME(list_max, r->q->index_topk);
  if (r->is_prompt) SAME(slots_max, 0); /* the pieces are those of the other part */
  return in_range("slots_max", a->slots_max, 0, SLOTS_MAX);
}

const reading checks_mla_attn = {describe, values};
