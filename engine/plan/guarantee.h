/* guarantee.h - whether a plan promises the axes that a request requires, looked up in the plan's own table.
 *
 * Does not know the meaning of the axes, which PLAN_FORMAT.md, "Guarantees", defines. Read next: plan/format.h (plan_guarantee). */
#ifndef VERBATIM_GUARANTEE_H
#define VERBATIM_GUARANTEE_H
#include "base/base.h"
#include "plan/plan.h"

/* required: [count] names of axes, in any order, also repeated. ERR_UNSUPPORTED: the plan excludes one, with its reason. ERR_USAGE: a null,
 * or an unknown axis; the message lists the known ones. ERR_LIMIT: more than VERBATIM_REQUIRED_MAX. */
status guarantee_check(const plan *p, const char *const *required, uint32_t count);

#endif
