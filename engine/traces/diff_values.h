/* diff_values.h - compares the numbers of two runs: which differ, and by how much.
 *
 * Numbers are compared by their bits, so -0 and +0 differ, and so do two NaN with different payloads. Read next: diff_trace.h. */
#ifndef VERBATIM_DIFF_VALUES_H
#define VERBATIM_DIFF_VALUES_H
#include "base/base.h"
#include "verbatim.h"

typedef struct diff_values { /* two rows; type: enum verbatim_point_type */
  uint32_t type, count, differ_count;
  uint32_t index, a, b;  /* the first number that differs, and its bits (zero-extended for bf16) */
  uint64_t most_ulps;    /* largest distance of a differing pair; pairs without a distance are not counted */
} diff_values;

diff_values diff_values_of(uint32_t type, uint32_t count, const void *a, const void *b);

/* The bits of one number of a row of this type. */
uint32_t diff_values_bits(uint32_t type, const void *row, uint32_t index);

/* The number that these bits stand for in this type; exact. */
double diff_values_number(uint32_t type, uint32_t bits);

/* Distance in units of the type's numbers: adjacent numbers have 1, -0 and +0 have 0. False: there is no distance, because one is NaN or
 * the type is an integer. */
bool diff_values_ulps(uint32_t type, uint32_t a, uint32_t b, uint64_t *ulps);

#endif
