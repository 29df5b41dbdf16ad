/* moe_sort.c - the checker's reading of the op `moe_sort`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const moe_sort_args *a = args;
  uint64_t t = w->rows.tokens, experts = (uint64_t)a->experts + 1;
  table(w, FIELD(moe_sort, topk_id), false, TYPE_TOPK_ID, t, a->top_k, a->top_k);
  table(w, FIELD(moe_sort, expert_first), true, TYPE_EXPERT_FIRST, 1, experts, experts);
  table(w, FIELD(moe_sort, row_token), true, TYPE_ROW_TOKEN, times(t, a->top_k), 1, 1);
  table(w, FIELD(moe_sort, pair_row), true, TYPE_PAIR_ROW, t, a->top_k, a->top_k);
  for (uint32_t sorted = 0; sorted < 2; sorted++) { /* what is copied: bf16 rows; codes, or scales */
    const size_t field = sorted ? FIELD(moe_sort, x_sorted) : FIELD(moe_sort, x);
    check_access *x = table(w, field, sorted, TYPE_BF16, sorted ? times(t, a->top_k) : t, a->columns, a->columns);
    x->must_be_null = a->columns == 0;
    x->type = TYPE_AS_WRITTEN;
    x->type_of = (uint32_t)FIELD(moe_sort, x);
  }
}

static status values(const reader *r, const void *args) {
  const moe_sort_args *a = args;
  SAME(experts, r->m->experts);
  SAME(top_k, r->m->top_k);
  const uint32_t codes = r->m->hidden / 2, scales = r->m->hidden / SCALE_COLUMNS * 2;
  const bool copies_codes = r->q->weight_format == WEIGHTS_E4M3 && (a->columns == codes || a->columns == scales);
  if (a->columns && !copies_codes) SAME(columns, r->m->hidden);
  return same(r, "columns % 8", a->columns % 8, 0);
}

const reading checks_moe_sort = {describe, values};
