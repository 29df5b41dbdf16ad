/* attn_fold.c - the checker's reading of the op `attn_fold`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const attn_fold_args *a = args;
  const uint64_t t = w->rows.tokens, columns = times(a->heads, a->v_dim), part = sizeof(attn_part) / 4;
  table(w, FIELD(attn_fold, counts), false, TYPE_COUNTS, 1, COUNTS, COUNTS);
  table(w, FIELD(attn_fold, parts), false, TYPE_PARTS, t, part, part);
  describe_units(w, FIELD(attn_fold, partial_o), FIELD(attn_fold, partial_ml), false, a->slots_max, a->heads, a->v_dim);
  table(w, FIELD(attn_fold, out), true, TYPE_BF16, t, columns, columns);
}

static status values(const reader *r, const void *args) {
  const attn_fold_args *a = args;
  SAME(heads, r->m->heads / ranks_of_heads(r));
  SAME(v_dim, r->m->v_dim);
  TRY(same(r, "v_dim % 16", a->v_dim % 16, 0));
  TRY(in_range("v_dim of attn_fold", a->v_dim, 16, HEAD_DIM_MAX));
  return in_range("slots_max of attn_fold", a->slots_max, 1, SLOTS_MAX);
}

const reading checks_attn_fold = {describe, values};
