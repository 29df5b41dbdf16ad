/* index_score.c - the checker's reading of the op `index_score`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const index_score_args *a = args;
  uint64_t t = w->rows.tokens, query = times(a->heads, INDEX_DIM);
  table(w, FIELD(index_score, q_codes), false, TYPE_E4M3, t, query, query);
  table(w, FIELD(index_score, w), false, TYPE_F32, t, a->heads, a->heads);
  index_pages(w, FIELD(index_score, cache), false);
  describe_positions(w, FIELD(index_score, position));
  describe_seqs(w, FIELD(index_score, seq));
  describe_block_table(w, FIELD(index_score, block_table), a->block_table_stride);
  table(w, FIELD(index_score, scores), true, TYPE_F32, rows_from(w, a->row_first, a->row_count), a->stride, a->stride);
}

static status values(const reader *r, const void *args) {
  const index_score_args *a = args;
  SAME(heads, r->q->index_heads);
  SAME(block_table_stride, r->l->pages_per_seq);
  return check_score_rows(r, a->topk, a->stride, a->row_count);
}

const reading checks_index_score = {describe, values};
