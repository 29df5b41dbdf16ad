/* adjust.c - the checker's reading of the op `adjust`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const adjust_args *a = args;
  uint64_t r = w->rows.logits;
  table(w, FIELD(adjust, logits), false, TYPE_F32, r, a->vocab, a->vocab);
  fixed(w, FIELD(adjust, param), false, REGION_STEP, IO(sample), r * sizeof(sample_param));
  fixed(w, FIELD(adjust, lists), false, REGION_STEP, IO(lists), w->l->max_seqs * (TOKEN_LIST_MAX * sizeof(token_bias)));
  describe_history(w, FIELD(adjust, history), false);
  describe_block_table(w, FIELD(adjust, block_table), a->block_table_stride);
  table(w, FIELD(adjust, adjusted), true, TYPE_F32, r, a->vocab, a->vocab);
}

static status values(const reader *r, const void *args) {
  const adjust_args *a = args;
  SAME(vocab, r->m->vocab);
  SAME(block_table_stride, r->l->pages_per_seq);
  return OK;
}

const reading checks_adjust = {describe, values};
