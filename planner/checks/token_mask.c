/* token_mask.c - the checker's reading of the op `token_mask`: memory and argument values. See reading.h. */
#include "checks/reading.h"
#include "engine/plan/format_masks.h"

static void describe(writer *w, const void *args) {
  const token_mask_args *a = args;
  uint64_t r = w->rows.logits;
  fixed(w, FIELD(token_mask, param), false, REGION_STEP, IO(sample), r * sizeof(sample_param));
  fixed(w, FIELD(token_mask, masks), false, REGION_STEP, IO(lists), times(plan_mask_room(w->l, a->vocab), a->words * UINT64_C(4)))->io_at =
      plan_masks_after_lists(w->l);
  table(w, FIELD(token_mask, adjusted), false, TYPE_F32, r, a->vocab, a->vocab);
  table(w, FIELD(token_mask, adjusted), true, TYPE_F32, r, a->vocab, a->vocab);
}

static status values(const reader *r, const void *args) {
  const token_mask_args *a = args;
  SAME(vocab, r->m->vocab);
  SAME(words, plan_mask_words(r->m->vocab));
  return OK;
}

const reading checks_token_mask = {describe, values};
