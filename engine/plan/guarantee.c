/* guarantee.c - see guarantee.h. It runs when a request is submitted, and allocates nothing. */
#include "plan/guarantee.h"
#include "verbatim.h"
#include <stdio.h>
#include <string.h>

#define LIST_BYTES 400u /* bytes of names in a message: all of the planner's own names fit */

static const plan_guarantee *find(const plan *p, const char *axis) {
  for (uint32_t i = 0; i < p->guarantee_count; i++)
    if (strcmp(plan_string(p, p->guarantees[i].axis), axis) == 0) return &p->guarantees[i];
  return NULL;
}

/* "batch, slot, ...": as many names as fit. */
static const char *list_axes(const plan *p, char text[LIST_BYTES]) {
  size_t at = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < p->guarantee_count && at < LIST_BYTES; i++)
    at += (size_t)snprintf(text + at, LIST_BYTES - at, "%s%s", i ? ", " : "", plan_string(p, p->guarantees[i].axis));
  return text;
}

static status check_axis(const plan *p, const char *axis) {
  char known[LIST_BYTES];
  const plan_guarantee *row = find(p, axis);
  if (!row)
    return FAIL(ERR_USAGE, "request: it requires the axis \"%.64s\", expected one of the plan's: %s", axis, list_axes(p, known));
  if (row->status != GUARANTEE_EXCLUDED) return OK;
  return FAIL(ERR_UNSUPPORTED, "request: it requires the axis %.64s, which this plan excludes: %.400s", axis, plan_string(p, row->reason));
}

status guarantee_check(const plan *p, const char *const *required, uint32_t count) {
  if (count > VERBATIM_REQUIRED_MAX)
    return FAIL(ERR_LIMIT, "request: %u required axes, at most %u are allowed", count, VERBATIM_REQUIRED_MAX);
  if (count && !required) return FAIL(ERR_USAGE, "request: %u required axes, but no list of them", count);
  for (uint32_t i = 0; i < count; i++) {
    if (!required[i]) return FAIL(ERR_USAGE, "request: required axis %u: expected a name, found a null pointer", i);
    TRY(check_axis(p, required[i]));
  }
  return OK;
}
