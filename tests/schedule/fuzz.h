/* fuzz.h - a run of the schedule fuzzer: random cases in processes of their own until the time or the number is reached, or until one
 * fails, which is then shrunk. Also the witnesses: a run in which nothing was preempted proves nothing about preemption.
 *
 * Case i of a seed is the same in every run; the number of processes that share the cases does not change them. Read next: draw.h,
 * shrink.h. */
#ifndef VERBATIM_FUZZ_H
#define VERBATIM_FUZZ_H
#include "draw.h"
#include "trial.h"

#define FUZZ_JOBS_MAX 64u
#define FUZZ_WITNESS_SCHEDULES 30u /* in that many schedules every witness occurs */

typedef struct fuzz_options {
  run_stage stage;
  draw_limits limits;
  uint64_t seed;
  uint64_t schedules;    /* at least that many; 0: none    */
  double seconds;        /* about that long; 0: no limit   */
  uint32_t jobs;         /* processes, 1 .. FUZZ_JOBS_MAX  */
  double case_seconds;   /* a longer case counts as a hang */
  double shrink_seconds; /* 0: a failing case is not shrunk */
  bool is_quiet;         /* stderr of failing cases is dropped */
  void (*on_progress)(const run_counts *counts, double seconds); /* called now and then; may be null */
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

/* Fails, with the case in *out, if a case cannot be played or a process cannot be created; a case that fails is no error. */
status fuzz_run(const fuzz_options *options, fuzz_report *out);

/* The name of a witness that did not occur within the limits, or null. */
const char *fuzz_missing(const run_counts *counts, const draw_limits *limits);

#endif
