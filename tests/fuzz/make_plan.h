/* make_plan.h - a plan of the smallest model with the deployment and the profile of a fuzz input: the engine accepts every plan that the
 * planner makes. */
#ifndef VERBATIM_MAKE_PLAN_H
#define VERBATIM_MAKE_PLAN_H
#include "engine/plan/plan.h"
#include "fuzz.h"
#include "planner/planner.h"

/* The planner's result; either text may be null. */
static inline status make_plan(planner_text deploy, planner_text profile) {
  static fuzz_text config;
  void *made = NULL;
  size_t made_bytes = 0;
  plan view;
  if (!config.text) config = fuzz_read("tests/data/configs/smallest.json");
  const planner_input input = {.config = {config.text, config.bytes}, .deploy = deploy, .profile = profile};
  status result = planner_make(&input, &made, &made_bytes);
  if (result != OK) return result;
  ASSERT(plan_view(made, made_bytes, &view) == OK);
  free(made);
  return OK;
}

#endif
