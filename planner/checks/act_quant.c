/* act_quant.c - the checker's reading of the op `act_quant`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const act_quant_args *a = args;
  uint64_t rows = times(rows_of(w, a->rows_kind), a->rows_mul);
  table(w, FIELD(act_quant, x), false, TYPE_BF16, rows, a->ldx, a->columns);
  describe_codes(w, FIELD(act_quant, codes), FIELD(act_quant, scales), true, rows, a->columns);
}

static status values(const reader *r, const void *args) {
  const act_quant_args *a = args;
  SAME(rows_kind, ROWS_TOKENS);
  SAME(scale_kind, r->q->act_scale);
  if (a->rows_mul != 1) SAME(rows_mul, r->m->top_k);
  TRY(same(r, "columns % 128", a->columns % SCALE_COLUMNS, 0));
  return same(r, "ldx % 8", a->ldx % 8, 0);
}

const reading checks_act_quant = {describe, values};
