/* guarantees.h - what a plan promises about bits, axis by axis, and what it does not.
 *
 * The table goes into every plan and is shown by `verbatim show`; a promise stands here only if a proof or a test stands
 * behind it. Read next: guarantees.c. */
#ifndef VERBATIM_GUARANTEES_H
#define VERBATIM_GUARANTEES_H
#include "draft.h"

/* Fills the plan's guarantees table. */
void guarantees_write(draft *plan);

#endif
