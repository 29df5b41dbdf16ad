/* shrink.h - reduces a failing case to a small one that still fails: events and requests are removed first, then prompts, lengths and
 * options are set to defaults. Only a case that was seen to fail replaces the last one. Read next: trial.h. */
#ifndef VERBATIM_SHRINK_H
#define VERBATIM_SHRINK_H
#include "trial.h"

/* c: fails as `t` says; both become those of the smallest case found within about `seconds`. *tried: how many cases were played.
 * each_seconds: the time limit of one case. */
status shrink_case(const run_stage *stage, schedule_case *c, trial *t, double seconds, double each_seconds, uint32_t *tried);

#endif
