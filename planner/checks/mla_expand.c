/* mla_expand.c - the checker's reading of the op `mla_expand`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const mla_expand_args *a = args;
  uint64_t rows = times(a->piece_pages, PAGE_TOKENS), columns = (uint64_t)a->n + a->rope_dim;
  describe_contexts(w, FIELD(mla_expand, contexts));
  const bool is_paged = a->block_table != NULL;
  const uint64_t row = (uint64_t)a->kv_lora_rank + a->rope_dim;
  if (is_paged) kv_pages(w, FIELD(mla_expand, kv), false, KV_BF16, a->kv_lora_rank, a->rope_dim);
  else table(w, FIELD(mla_expand, kv), false, TYPE_BF16, rows, row, row); /* those of kv_widen */
  describe_block_table(w, FIELD(mla_expand, block_table), a->block_table_stride)->must_be_null = !is_paged;
  weight(w, FIELD(mla_expand, w), TYPE_BF16, times(a->n, a->kv_lora_rank));
  table(w, FIELD(mla_expand, y), true, TYPE_BF16, rows, columns, columns);
}

static status values(const reader *r, const void *args) {
  const mla_expand_args *a = args;
  SAME(n, (uint64_t)(r->m->heads / r->l->ranks) * (r->m->nope_dim + r->m->v_dim));
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(rope_dim, r->m->rope_dim);
  SAME(block_table_stride, r->l->pages_per_seq);
  TRY(same(r, "a block table for dequantized rows", a->block_table != NULL, r->q->kv_format == KV_BF16));
  SAME(piece_pages, r->l->expand_pages);
  SAME(piece, 0);
  return OK;
}

const reading checks_mla_expand = {describe, values};
