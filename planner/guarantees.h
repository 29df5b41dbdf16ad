/* guarantees.h - what a plan promises about bits, axis by axis, and what it does not.
 *
 * The table goes into every plan, is shown by `verbatim show` and answers a request's `required`. Every promise in it has a proof or a
 * test. The names of the axes are PLAN_FORMAT.md's, "Guarantees". Read next: guarantees.c. */
#ifndef VERBATIM_GUARANTEES_H
#define VERBATIM_GUARANTEES_H
#include "draft.h"

typedef struct guarantees_proof { /* the test that varies an axis and compares bits; NULLs: the axis is excluded */
  const char *axis, *file, *test;
} guarantees_proof;

/* Fills the plan's guarantees table. The plan's limits, ladder and pins must be set, because reasons state them. */
void guarantees_write(draft *plan);

/* One per row of the table, in its order. */
const guarantees_proof *guarantees_proofs(uint32_t *count);

#endif
