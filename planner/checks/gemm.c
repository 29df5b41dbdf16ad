/* gemm.c - the checker's reading of the op `gemm`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const gemm_args *a = args;
  uint64_t rows = rows_of(w, a->rows_kind);
  uint32_t type = a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16;
  check_access *x = table(w, FIELD(gemm, x), false, TYPE_BF16, rows, a->ldx, a->k);
  x->batches = a->batches;
  x->batch_stride = times(a->x_batch, 2);
  uint64_t matrix = times(a->n, a->k), last = a->batches ? times(a->batches - 1, a->w_batch) : 0;
  weight(w, FIELD(gemm, w), TYPE_BF16, plus(last, matrix));
  check_access *y = table(w, FIELD(gemm, y), true, type, rows, a->ldy, columns_of(a->n, a->y_kind));
  y->batches = a->batches;
  y->batch_stride = times(a->y_batch, size_of(type));
}

static status values(const reader *r, const void *args) {
  const gemm_args *a = args;
  SAME(rows_kind, r->rows_kind);
  TRY(check_y_kind(r, a->y_kind, a->n));
  if (a->y_kind == Y_SILU) SAME(batches, 1);
  const uint64_t strides = a->ldx | a->x_batch | a->w_batch | a->y_batch; /* copied and stored 16 bytes at a time */
  TRY(same(r, "ldx, x_batch, w_batch or y_batch % 8", strides % 8, 0));
  return same(r, "ldy % 8, or % 2 of fp32 results,", a->ldy % (a->y_kind == Y_F32 ? 2 : 8), 0); /* fp32 is stored 8 bytes at a time */
}

const reading checks_gemm = {describe, values};
