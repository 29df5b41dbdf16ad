/* row_digest.c - the checker's reading of the op `row_digest`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const row_digest_args *a = args;
  uint64_t rows = rows_of(w, a->rows_kind);
  check_access *x = table(w, FIELD(row_digest, x), false, TYPE_F32, rows, a->stride, a->words);
  if (a->of_ranks == 2) x->type = TYPE_BF16; /* two numbers to a word */
  fixed(w, FIELD(row_digest, digest), true, REGION_RESULT, a->of_ranks == 0 ? IO(digest) : a->of_ranks == 1 ? IO(rank_x) : IO(rank_head),
        rows * 8);
}

static status values(const reader *r, const void *args) {
  const row_digest_args *a = args;
  SAME(rows_kind, a->of_ranks == 1 ? ROWS_TOKENS : ROWS_LOGITS);
  TRY(in_range("of_ranks of a digest", a->of_ranks, 0, r->l->ranks > 1 ? 2 : 0));
  SAME(words, a->of_ranks == 0 ? r->m->vocab : a->of_ranks == 1 ? r->m->hidden : r->m->hidden / 2);
  return OK;
}

const reading checks_row_digest = {describe, values};
