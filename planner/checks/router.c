/* router.c - the checker's reading of the op `router`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const router_args *a = args;
  uint64_t t = w->rows.tokens;
  table(w, FIELD(router, logits), false, TYPE_F32, t, a->experts, a->experts);
  weight(w, FIELD(router, bias), TYPE_F32, a->experts);
  w->out[w->count - 1].is_optional = 1;
  table(w, FIELD(router, topk_id), true, TYPE_TOPK_ID, t, a->top_k, a->top_k);
  table(w, FIELD(router, topk_weight), true, TYPE_F32, t, a->top_k, a->top_k);
  uint64_t experts = (uint64_t)a->experts + 1;
  table(w, FIELD(router, expert_first), true, TYPE_EXPERT_FIRST, 1, experts, experts)->must_be_null = !a->sorts;
  table(w, FIELD(router, row_token), true, TYPE_ROW_TOKEN, times(t, a->top_k), 1, 1)->must_be_null = !a->sorts;
  table(w, FIELD(router, pair_row), true, TYPE_PAIR_ROW, t, a->top_k, a->top_k)->must_be_null = !a->sorts;
}

static status values(const reader *r, const void *args) {
  const router_args *a = args;
  if (a->sorts) {
    SAME(sorts, 1);
    TRY(in_range("rows of a router that sorts", r->rows_max, 1, ROUTER_SORTS_MAX));
  }
  SAME(experts, r->m->experts);
  SAME(top_k, r->m->top_k);
  SAME(groups, r->m->groups);
  SAME(top_groups, r->m->top_groups);
  SAME(scoring, r->m->scoring);
  SAME(group_mode, r->m->group_mode);
  SAME(normalise, r->m->normalise);
  SAME_REAL(scale, r->m->routed_scale);
  return same(r, "the presence of a bias", a->bias != NULL, r->m->scoring == ROUTER_SIGMOID);
}

const reading checks_router = {describe, values};
