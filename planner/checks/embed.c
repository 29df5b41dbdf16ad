/* embed.c - the checker's reading of the op `embed`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const embed_args *a = args;
  uint64_t t = w->rows.tokens;
  fixed(w, FIELD(embed, token), false, REGION_STEP, IO(token), t * 4);
  fixed(w, FIELD(embed, sampled), false, REGION_STATE, IO(sampled), w->l->max_seqs * UINT64_C(4));
  weight(w, FIELD(embed, table), TYPE_BF16, times(a->vocab, a->hidden));
  fixed(w, FIELD(embed, position), false, REGION_STEP, IO(position), t * 4);
  fixed(w, FIELD(embed, seq), false, REGION_STEP, IO(seq), t * 4);
  describe_block_table(w, FIELD(embed, block_table), a->block_table_stride);
  table(w, FIELD(embed, x), true, TYPE_F32, t, a->hidden, a->hidden);
  describe_history(w, FIELD(embed, history), true);
}

static status values(const reader *r, const void *args) {
  const embed_args *a = args;
  SAME(hidden, r->m->hidden);
  SAME(vocab, r->m->vocab);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME_REAL(scale, r->m->embed_scale);
  return OK;
}

const reading checks_embed = {describe, values};
