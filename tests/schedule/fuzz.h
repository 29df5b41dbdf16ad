/* fuzz.h - a run of the schedule fuzzer: random cases in processes of their own until the time or the number is reached, or one fails,
 * which is then shrunk. And the witnesses: a run in which nothing was ever preempted proves nothing of preemption.
 *
 * Case i of a seed is the same in every run; how many processes share the cases changes nothing in them. Read next: draw.h, shrink.h. */
#ifndef VERBATIM_FUZZ_H
#define VERBATIM_FUZZ_H
#include "draw.h"
#include "trial.h"

#define FUZZ_JOBS_MAX 64u
#define FUZZ_WITNESS_SCHEDULES 30u /* in so many schedules every witness is seen */

typedef struct fuzz_options {
  run_stage stage;
  draw_limits limits;
  uint64_t seed;
  uint64_t schedules;    /* at least so many; 0: no number */
  double seconds;        /* about so long; 0: no time      */
  uint32_t jobs;         /* processes, 1 .. FUZZ_JOBS_MAX  */
  double case_seconds;   /* longer, and a case hangs       */
  double shrink_seconds; /* 0: a case that fails is left as it is */
  bool is_quiet;         /* what failing cases write to stderr is dropped */
  void (*on_progress)(const run_counts *counts, double seconds); /* now and then; may be null */
} fuzz_options;

typedef struct fuzz_report {
  run_counts counts;
  double seconds;       /* without the shrinking */
  bool failed;
  bool repeats;         /* failed: the case fails again by itself, so that it could be shrunk */
  trial result;         /* failed: how, in the smallest case */
  uint32_t tried;       /* cases played to shrink it */
  schedule_case smallest;
} fuzz_report;

/* An error, with the case in *out, when a case cannot be played or a process made; a case that fails is no error. */
status fuzz_run(const fuzz_options *options, fuzz_report *out);

/* The name of a witness that was not seen, or null. */
const char *fuzz_missing(const run_counts *counts);

#endif
