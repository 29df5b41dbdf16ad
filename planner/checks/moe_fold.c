/* moe_fold.c - the checker's reading of the op `moe_fold`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const moe_fold_args *a = args;
  uint64_t t = w->rows.tokens;
  table(w, FIELD(moe_fold, experts), false, TYPE_F32, times(t, a->top_k), a->columns, a->columns);
  table(w, FIELD(moe_fold, pair_row), false, TYPE_PAIR_ROW, t, a->top_k, a->top_k);
  table(w, FIELD(moe_fold, topk_weight), false, TYPE_F32, t, a->top_k, a->top_k);
  table(w, FIELD(moe_fold, delta), false, TYPE_F32, t, a->delta_stride, a->columns)->is_optional = 1;
  table(w, FIELD(moe_fold, gate), false, TYPE_F32, t, a->gate_stride, 1)->is_optional = 1;
  table(w, FIELD(moe_fold, y), true, TYPE_F32, t, a->y_stride, a->columns);
}

static status values(const reader *r, const void *args) {
  const moe_fold_args *a = args;
  SAME(top_k, r->m->top_k);
  TRY(in_range("columns", a->columns, 4, r->m->hidden));
  TRY(same(r, "hidden % columns", r->m->hidden % a->columns, 0)); /* every rank has as many */
  TRY(same(r, "columns % 4", a->columns % 4, 0));
  TRY(same(r, "delta_stride % 4", a->delta_stride % 4, 0));
  TRY(same(r, "y_stride % 4", a->y_stride % 4, 0));
  TRY(same(r, "the presence of a gate", a->gate != NULL, r->g->shared_gate));
  return same(r, "the presence of a shared expert", a->delta != NULL, r->m->shared_experts != 0);
}

const reading checks_moe_fold = {describe, values};
