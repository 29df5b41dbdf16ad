/* plan_walk.h - runs a plan of any origin on the CPU as the engine does, so that an access outside its regions is seen.
 *
 * For fuzz_plan.c and tests/unit/plan/test_damage.c. The regions are moved apart in a copy of the plan and the gaps between them poisoned
 * for AddressSanitizer; without it the gaps hold a pattern that is compared afterwards. */
#ifndef VERBATIM_PLAN_WALK_H
#define VERBATIM_PLAN_WALK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_WALK_DEVICE_BYTES_MAX (40u << 20) /* larger plans are not run */

/* Gives bytes, a whole plan, the size and digest that its contents ask for. */
void plan_walk_seal(uint8_t *bytes, size_t byte_count);

/* What a plan that plan_view and check_plan accept is good for: some requests run to their end. Returns false when it is too large to be
 * run here. Aborts when anything beyond the regions is written, or a request does not end. */
bool plan_walk_run(const uint8_t *bytes, size_t byte_count);

#endif
