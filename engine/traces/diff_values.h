/* diff_values.h - numbers of two runs side by side: which differ, and by how much.
 *
 * Numbers are compared by their bits, so that -0 and +0, and two NaN of other payloads, differ. Read next: diff_trace.h. */
#ifndef VERBATIM_DIFF_VALUES_H
#define VERBATIM_DIFF_VALUES_H
#include "base/base.h"
#include "verbatim.h"

typedef struct diff_values { /* two rows; type: enum verbatim_point_type */
  uint32_t type, count, differ_count;
  uint32_t index, a, b;  /* the first number that differs, and its bits: those of a bf16 with zeros above */
  uint64_t most_ulps;    /* largest distance of two that differ; without those that have none */
} diff_values;

diff_values diff_values_of(uint32_t type, uint32_t count, const void *a, const void *b);

/* Of a row of the type: the bits of one number. */
uint32_t diff_values_bits(uint32_t type, const void *row, uint32_t index);

/* The number that bits of this type are; exact. */
double diff_values_number(uint32_t type, uint32_t bits);

/* How many numbers of the type lie between the two, one of them counted; 0 between -0 and +0. False: there is no distance, with a NaN, or
 * where the type has no floating point. */
bool diff_values_ulps(uint32_t type, uint32_t a, uint32_t b, uint64_t *ulps);

#endif
