/* kv_widen.c - the checker's reading of the op `kv_widen`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const kv_widen_args *a = args;
  uint64_t columns = (uint64_t)a->kv_lora_rank + a->rope_dim;
  describe_contexts(w, FIELD(kv_widen, contexts));
  kv_pages(w, FIELD(kv_widen, kv), false, a->kv_format, a->kv_lora_rank, a->rope_dim);
  weight(w, FIELD(kv_widen, kv_scale), TYPE_F32, 1)->must_be_null = a->kv_format != KV_FP8;
  describe_block_table(w, FIELD(kv_widen, block_table), a->block_table_stride);
  table(w, FIELD(kv_widen, y), true, TYPE_BF16, times(a->pages_max, PAGE_TOKENS), columns, columns);
  table(w, FIELD(kv_widen, table), true, TYPE_PAGE_TABLE, a->pages_max, 1, 1)->must_be_null = w->l->parity == PARITY_FAST_PREFILL;
}

static status values(const reader *r, const void *args) {
  const kv_widen_args *a = args;
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(rope_dim, r->m->rope_dim);
  TRY(same(r, "kv_lora_rank or rope_dim % 8", (a->kv_lora_rank | a->rope_dim) % 8, 0)); /* processed eight columns at a time */
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME(kv_format, r->q->kv_format);
  SAME(pages_max, r->l->expand_pages);
  SAME(piece, 0);
  return OK;
}

const reading checks_kv_widen = {describe, values};
