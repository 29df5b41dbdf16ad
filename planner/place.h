/* place.h - assigns every buffer its place in the single device reservation.
 *
 * The algorithm for buffers with lifetimes:
 *   - the largest buffers first; among equals the one used first, then the one created first;
 *   - each takes the lowest offset that is a multiple of 256 where it overlaps no placed buffer alive at a common op.
 * Deterministic, and close to the largest sum of live bytes, because the few large buffers are placed before the many small ones.
 * check.c verifies the result and shares no code with this file. */
#ifndef VERBATIM_PLACE_H
#define VERBATIM_PLACE_H
#include "draft.h"

#define PLACE_ALIGNMENT 256u
#define PLACE_REGION_ALIGNMENT (2u << 20) /* of WEIGHTS, KV and WORK: a page of device memory */

/* Sets the offsets of count buffers by their lifetimes and returns the bytes they span together. */
uint64_t place_lifetimes(plan_buffer *const *buffers, uint32_t count);

/* Sets every buffer's offset in its region, the regions and device_bytes. Weights keep the offsets they have. */
void place_plan(draft *plan);

#endif
