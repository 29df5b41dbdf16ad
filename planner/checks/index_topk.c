/* index_topk.c - the checker's reading of the op `index_topk`: memory and argument values. See reading.h. */
#include "checks/reading.h"

/* Scores after a row's own are neither written nor read, which is not stated here. */
static void describe(writer *w, const void *args) {
  const index_topk_args *a = args;
  uint64_t rows = rows_from(w, a->row_first, a->row_count);
  table(w, FIELD(index_topk, scores), false, TYPE_F32, rows, a->stride, a->stride);
  describe_positions(w, FIELD(index_topk, position));
  table(w, FIELD(index_topk, lists), true, TYPE_LISTS, rows, a->topk, a->topk)->first_row = a->row_first;
}

static status values(const reader *r, const void *args) {
  const index_topk_args *a = args;
  return check_score_rows(r, a->topk, a->stride, a->row_count);
}

const reading checks_index_topk = {describe, values};
