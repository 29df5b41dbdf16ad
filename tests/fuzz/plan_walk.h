/* plan_walk.h - runs a plan of any origin on the CPU as the engine does, so that an access outside its regions is noticed.
 *
 * For fuzz_plan.c and tests/unit/plan/test_damage.c. In a copy of the plan the regions are moved apart and the gaps between them poisoned
 * for AddressSanitizer; without it the gaps hold a pattern that is compared afterwards. */
#ifndef VERBATIM_PLAN_WALK_H
#define VERBATIM_PLAN_WALK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_WALK_DEVICE_BYTES_MAX (40u << 20) /* larger plans are not run */

/* Writes the size and digest that match its contents into bytes, a whole plan. */
void plan_walk_seal(uint8_t *bytes, size_t byte_count);

/* Runs a plan that plan_view and check_plan accept: some requests run to their end. Returns false if it is too large to be run here. Aborts
 * if anything outside the regions is written, or if a request does not end. */
bool plan_walk_run(const uint8_t *bytes, size_t byte_count);

#endif
