/* guarantee.h - does a plan promise what a request requires of it? The plan's own table of axes answers.
 *
 * Knows nothing of what the axes mean: PLAN_FORMAT.md, "Guarantees", does. Read next: plan/format.h (plan_guarantee). */
#ifndef VERBATIM_GUARANTEE_H
#define VERBATIM_GUARANTEE_H
#include "base/base.h"
#include "plan/plan.h"

/* required: [count] names of axes, in any order, also repeated. ERR_UNSUPPORTED: the plan excludes one, with its reason. ERR_USAGE: one
 * that the plan does not know, with those that it does, or a null. ERR_LIMIT: more than VERBATIM_REQUIRED_MAX. */
status guarantee_check(const plan *p, const char *const *required, uint32_t count);

#endif
