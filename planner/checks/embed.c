/* embed.c - the checker's reading of the op `embed`: memory and argument values. See reading.h. */
#include "checks/reading.h"

/* The first pass reads ids, the others the drafts of the pass before. No draft is a part of a sequence's history. */
static void describe_draft(writer *w) {
  static const size_t NULLS[] = {FIELD(embed, position), FIELD(embed, seq), FIELD(embed, block_table), FIELD(embed, history)};
  if (w->rows.pass == 1) table(w, FIELD(embed, token), false, TYPE_TOKENS, w->rows.tokens, 1, 1);
  else draft_list_of(w, FIELD(embed, token), false, TYPE_SLOT_TOKENS);
  draft_list_of(w, FIELD(embed, sampled), false, TYPE_SAMPLED)->must_be_null = w->rows.pass == 1;
  for (size_t i = 0; i < ARRAY_LEN(NULLS); i++) add(w, NULLS[i], false, TYPE_STRUCT, REGION_STEP)->must_be_null = true;
}

static void describe(writer *w, const void *args) {
  const embed_args *a = args;
  uint64_t t = w->rows.tokens;
  weight(w, FIELD(embed, table), TYPE_BF16, times(a->vocab, a->hidden));
  table(w, FIELD(embed, x), true, TYPE_F32, t, a->hidden, a->hidden);
  if (w->rows.pass) {
    describe_draft(w);
    return;
  }
  fixed(w, FIELD(embed, token), false, REGION_STEP, IO(token), t * 4);
  fixed(w, FIELD(embed, sampled), false, REGION_STATE, IO(sampled), w->l->max_seqs * UINT64_C(4));
  fixed(w, FIELD(embed, position), false, REGION_STEP, IO(position), t * 4);
  fixed(w, FIELD(embed, seq), false, REGION_STEP, IO(seq), t * 4);
  describe_block_table(w, FIELD(embed, block_table), a->block_table_stride);
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
