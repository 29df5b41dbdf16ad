/* attn.c - the checker's reading of the op `attn`: memory and argument values. See reading.h. */
#include "checks/reading.h"
#include "attn/attn_cut.h"

static void describe(writer *w, const void *args) {
  const attn_args *a = args;
  uint64_t t = w->rows.tokens, q = times(a->heads, a->head_dim), value = times(a->heads, a->v_dim), piece = sizeof(attn_piece) / 4;
  uint64_t own = times(ATTN_GROUPED_TILE_ROWS, a->v_dim + UINT64_C(2));
  describe_tiles(w, FIELD(attn, tiles), IO(tiles));
  table(w, FIELD(attn, q), false, TYPE_BF16, t, q, q);
  kv_pages(w, FIELD(attn, kv), false, a->kv_format, times(a->kv_heads, (uint64_t)a->head_dim + a->v_dim), 0);
  weight(w, FIELD(attn, kv_scale), TYPE_F32, 1)->must_be_null = a->kv_format != KV_FP8;
  describe_block_table(w, FIELD(attn, block_table), a->block_table_stride);
  table(w, FIELD(attn, out), true, TYPE_BF16, t, value, value);
  describe_units(w, FIELD(attn, partial_o), FIELD(attn, partial_ml), true, a->slots_max, a->heads, a->v_dim);
  table(w, FIELD(attn, counts), false, TYPE_COUNTS, 1, COUNTS, COUNTS)->must_be_null = a->slots_max == 0;
  table(w, FIELD(attn, pieces), false, TYPE_PIECES, plus(t, a->slots_max), piece, piece)->must_be_null = a->slots_max == 0;
  table(w, FIELD(attn, scratch), true, TYPE_F32, w->rows.blocks, own, own);
}

static status values(const reader *r, const void *args) {
  const attn_args *a = args;
  SAME(heads, r->m->heads / ranks_of_heads(r));
  SAME(head_dim, r->m->nope_dim + r->m->rope_dim);
  SAME(v_dim, r->m->v_dim);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME(chunk_tokens, r->l->chunk_tokens);
  SAME_REAL(scale_log2, r->m->softmax_scale_log2);
  SAME(kv_format, r->q->kv_format);
  SAME(kv_heads, r->g->kv_heads / ranks_of_heads(r));
  TRY(in_range("kv_heads", a->kv_heads, 1, a->heads));
  TRY(same(r, "heads % kv_heads", a->heads % a->kv_heads, 0));
  TRY(in_range("heads of a group", a->heads / a->kv_heads, 1, ATTN_GROUPED_ROWS));
  return in_range("slots_max", a->slots_max, 0, SLOTS_MAX);
}

const reading checks_attn = {describe, values};
