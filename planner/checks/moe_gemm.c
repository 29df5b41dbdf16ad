/* moe_gemm.c - the checker's reading of the op `moe_gemm`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const moe_gemm_args *a = args;
  uint64_t pairs = times(w->rows.tokens, a->top_k), experts = (uint64_t)a->experts + 1;
  table(w, FIELD(moe_gemm, expert_first), false, TYPE_EXPERT_FIRST, 1, experts, experts);
  table(w, FIELD(moe_gemm, row_token), false, TYPE_ROW_TOKEN, pairs, 1, 1)->is_optional = 1;
  table(w, FIELD(moe_gemm, x), false, TYPE_BF16, a->row_token ? w->rows.tokens : pairs, a->ldx, a->k);
  weight(w, FIELD(moe_gemm, w), TYPE_BF16, times(a->experts, times(a->n, a->k)));
  uint64_t columns = columns_of(a->n, a->y_kind);
  table(w, FIELD(moe_gemm, y), true, a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16, pairs, columns, columns);
}

static status values(const reader *r, const void *args) {
  const moe_gemm_args *a = args;
  SAME(experts, r->m->experts);
  SAME(top_k, r->m->top_k);
  TRY(same(r, "a result of experts rounded once", a->y_kind == Y_BF16, 0));
  TRY(check_y_kind(r, a->y_kind, a->n));
  return same(r, "ldx % 8", a->ldx % 8, 0);
}

const reading checks_moe_gemm = {describe, values};
