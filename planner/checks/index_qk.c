/* index_qk.c - the checker's reading of the op `index_qk`: memory and argument values. See reading.h. */
#include "checks/reading.h"
#include <math.h>

#define KEY_EPS 1e-6f

static void describe(writer *w, const void *args) {
  const index_qk_args *a = args;
  uint64_t t = w->rows.tokens, query = times(a->heads, INDEX_DIM);
  table(w, FIELD(index_qk, q), false, TYPE_F32, t, a->q_stride, query);
  table(w, FIELD(index_qk, k), false, TYPE_F32, t, a->k_stride, INDEX_DIM);
  table(w, FIELD(index_qk, w), false, TYPE_F32, t, a->w_stride, a->heads);
  weight(w, FIELD(index_qk, gain), TYPE_F32, INDEX_DIM);
  weight(w, FIELD(index_qk, bias), TYPE_F32, INDEX_DIM);
  describe_cos_sin(w, FIELD(index_qk, cos_sin), a->rope_dim);
  describe_positions(w, FIELD(index_qk, position));
  describe_seqs(w, FIELD(index_qk, seq));
  describe_block_table(w, FIELD(index_qk, block_table), a->block_table_stride);
  table(w, FIELD(index_qk, q_codes), true, TYPE_E4M3, t, query, query);
  table(w, FIELD(index_qk, w_out), true, TYPE_F32, t, a->heads, a->heads);
  index_pages(w, FIELD(index_qk, cache), true);
}

static status values(const reader *r, const void *args) {
  const index_qk_args *a = args;
  SAME(heads, r->q->index_heads);
  SAME(rope_dim, r->m->rope_dim);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME(half_split, r->q->index_half_split);
  SAME(scale_kind, r->q->index_scale);
  SAME_REAL(eps, KEY_EPS);
  SAME_REAL(head_scale, (float)(1 / sqrt(r->q->index_heads)));
  TRY(same(r, "rope_dim % 32", a->rope_dim % 32, 0)); /* pairs of halves: see index_qk.cu */
  return same(r, "q_stride or k_stride % 4", (a->q_stride | a->k_stride) % 4, 0); /* read 16 bytes at a time */
}

const reading checks_index_qk = {describe, values};
