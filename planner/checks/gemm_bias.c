/* gemm_bias.c - the checker's reading of the op `gemm_bias`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const gemm_bias_args *a = args;
  const uint64_t rows = rows_of(w, a->rows_kind);
  const uint32_t type = a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16;
  table(w, FIELD(gemm_bias, x), false, TYPE_BF16, rows, a->ldx, a->k);
  weight(w, FIELD(gemm_bias, w), TYPE_BF16, times(a->n, a->k));
  weight(w, FIELD(gemm_bias, bias), TYPE_BF16, a->n);
  table(w, FIELD(gemm_bias, y), true, type, rows, a->ldy, columns_of(a->n, a->y_kind));
}

static status values(const reader *r, const void *args) {
  const gemm_bias_args *a = args;
  SAME(rows_kind, r->rows_kind);
  SAME(pad, 0);
  TRY(check_y_kind(r, a->y_kind, a->n));
  TRY(same(r, "a bias in a model without", (r->g->has_bias & (BIAS_OUTPUT | BIAS_FEED)) == 0, 0));
  return same(r, "ldx or ldy % 8", (a->ldx | a->ldy) % 8, 0); /* copied and stored 16 bytes at a time */
}

const reading checks_gemm_bias = {describe, values};
