/* fp8_moe_gemm.c - the checker's reading of the op `fp8_moe_gemm`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const fp8_moe_gemm_args *a = args;
  uint64_t pairs = times(w->rows.tokens, a->top_k), experts = (uint64_t)a->experts + 1, columns = columns_of(a->n, a->y_kind);
  table(w, FIELD(fp8_moe_gemm, expert_first), false, TYPE_EXPERT_FIRST, 1, experts, experts);
  table(w, FIELD(fp8_moe_gemm, row_token), false, TYPE_ROW_TOKEN, pairs, 1, 1)->is_optional = 1;
  describe_codes(w, FIELD(fp8_moe_gemm, x), FIELD(fp8_moe_gemm, x_scale), false, a->row_token ? w->rows.tokens : pairs, a->k);
  describe_scaled_weight(w, FIELD(fp8_moe_gemm, w), FIELD(fp8_moe_gemm, w_scale), a->experts, a->n, a->k);
  table(w, FIELD(fp8_moe_gemm, y), true, a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16, pairs, columns, columns);
}

static status values(const reader *r, const void *args) {
  const fp8_moe_gemm_args *a = args;
  SAME(experts, r->m->experts);
  SAME(top_k, r->m->top_k);
  TRY(same(r, "a result of experts rounded once", a->y_kind == Y_BF16, 0));
  return check_scaled(r, a->n, a->k, a->y_kind);
}

const reading checks_fp8_moe_gemm = {describe, values};
