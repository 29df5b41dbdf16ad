/* row_digest.c - the checker's reading of the op `row_digest`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const row_digest_args *a = args;
  uint64_t rows = rows_of(w, a->rows_kind);
  table(w, FIELD(row_digest, x), false, TYPE_F32, rows, a->stride, a->words);
  fixed(w, FIELD(row_digest, digest), true, REGION_RESULT, IO(digest), rows * 8);
}

static status values(const reader *r, const void *args) {
  const row_digest_args *a = args;
  SAME(rows_kind, ROWS_LOGITS);
  SAME(words, r->m->vocab);
  return OK;
}

const reading checks_row_digest = {describe, values};
