/* fp8_gemm.c - the checker's reading of the op `fp8_gemm`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const fp8_gemm_args *a = args;
  uint64_t rows = rows_of(w, a->rows_kind);
  describe_codes(w, FIELD(fp8_gemm, x), FIELD(fp8_gemm, x_scale), false, rows, a->k);
  describe_scaled_weight(w, FIELD(fp8_gemm, w), FIELD(fp8_gemm, w_scale), 1, a->n, a->k);
  table(w, FIELD(fp8_gemm, y), true, a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16, rows, a->ldy, columns_of(a->n, a->y_kind));
}

static status values(const reader *r, const void *args) {
  const fp8_gemm_args *a = args;
  SAME(rows_kind, r->rows_kind);
  TRY(check_scaled(r, a->n, a->k, a->y_kind));
  return same(r, "ldy % 8", a->ldy % 8, 0);
}

const reading checks_fp8_gemm = {describe, values};
