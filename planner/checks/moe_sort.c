/* moe_sort.c - the checker's reading of the op `moe_sort`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const moe_sort_args *a = args;
  uint64_t t = w->rows.tokens, experts = (uint64_t)a->experts + 1;
  table(w, FIELD(moe_sort, topk_id), false, TYPE_TOPK_ID, t, a->top_k, a->top_k);
  table(w, FIELD(moe_sort, expert_first), true, TYPE_EXPERT_FIRST, 1, experts, experts);
  table(w, FIELD(moe_sort, row_token), true, TYPE_ROW_TOKEN, times(t, a->top_k), 1, 1);
  table(w, FIELD(moe_sort, pair_row), true, TYPE_PAIR_ROW, t, a->top_k, a->top_k);
  table(w, FIELD(moe_sort, x), false, TYPE_BF16, t, a->columns, a->columns)->must_be_null = a->columns == 0;
  table(w, FIELD(moe_sort, x_sorted), true, TYPE_BF16, times(t, a->top_k), a->columns, a->columns)->must_be_null = a->columns == 0;
}

static status values(const reader *r, const void *args) {
  const moe_sort_args *a = args;
  SAME(experts, r->m->experts);
  SAME(top_k, r->m->top_k);
  if (a->columns) SAME(columns, r->m->hidden);
  return same(r, "columns % 8", a->columns % 8, 0);
}

const reading checks_moe_sort = {describe, values};
