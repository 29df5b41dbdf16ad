/* clock.h - seconds since a fixed moment.
 *
 * For figures that people read and for request deadlines. No time enters a plan or changes a bit of a request's output before its deadline.
 * Includes libc only. */
#ifndef VERBATIM_CLOCK_H
#define VERBATIM_CLOCK_H
#include <time.h>

static inline double clock_seconds(void) { /* never goes back */
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
