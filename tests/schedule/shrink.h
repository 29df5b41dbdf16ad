/* shrink.h - from a case that fails to a small one that still does: events and requests go first, then prompts, lengths and options become
 * plain ones. What is kept is only what was seen to fail. Read next: trial.h. */
#ifndef VERBATIM_SHRINK_H
#define VERBATIM_SHRINK_H
#include "trial.h"

/* c: fails as `t` says; both become those of the smallest case found in about so many seconds. *tried: how many cases were played.
 * each_seconds: the most that one may take. */
status shrink_case(const run_stage *stage, schedule_case *c, trial *t, double seconds, double each_seconds, uint32_t *tried);

#endif
