/* fuzz.c - see fuzz.h. */
#include "fuzz.h"
#include "engine/base/clock.h"
#include "shrink.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct worker { /* shared by a process and the one that started it */
  run_counts counts;    /* of whole cases */
  uint64_t number;      /* of the case that is running */
  double started;       /* when it began */
  trial end;            /* of the last case, if it failed */
  bool is_done;
  pid_t process;        /* used by the parent; 0: waited for */
} worker;

typedef struct run {
  const fuzz_options *options;
  worker *workers;
  double begun;
  uint64_t case_count;
  fuzz_report *report;
} run;

static uint64_t seed_of(const fuzz_options *o, uint64_t number) {
  uint64_t z = (o->seed + 1) * 0x9e3779b97f4a7c15ull + number * 0xd1342543de82ef95ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/* === In a process of its own ================================================================================================ */

static _Noreturn void work(const run *self, uint32_t job) {
  const fuzz_options *o = self->options;
  worker *shared = &self->workers[job];
  run_stage stage = o->stage;
  schedule_case *c = malloc(sizeof *c);
  ASSERT(c);
  trial_enter(o->is_quiet);
  for (uint64_t i = job; i < self->case_count && shared->end.end == TRIAL_SOUND; i += o->jobs) {
    if (o->seconds > 0 && clock_seconds() - self->begun > o->seconds) break;
    shared->number = i;
    shared->started = clock_seconds();
    draw_case(c, seed_of(o, i), &o->limits);
    status result = run_case(&stage, c, &shared->end.outcome, &shared->counts);
    if (result != OK) snprintf(shared->end.error, sizeof shared->end.error, "%s", fail_text());
    shared->end.end = result != OK ? TRIAL_ERROR : shared->end.outcome.failed ? TRIAL_BROKEN : TRIAL_SOUND;
  }
  shared->is_done = true;
  shared->started = clock_seconds();
  run_close(&stage);
  _exit(0);
}

/* === In the parent ========================================================================================================== */

static status start(const run *self) {
  fflush(NULL);
  for (uint32_t i = 0; i < self->options->jobs; i++) {
    self->workers[i].started = clock_seconds();
    pid_t child = fork();
    if (child < 0) return FAIL(ERR_IO, "fork: %s", strerror(errno));
    if (child == 0) work(self, i);
    self->workers[i].process = child;
  }
  return OK;
}

/* Checks on one process. Returns whether it still runs. */
static bool look(const run *self, worker *w) {
  int state = 0;
  if (!w->process) return false;
  bool hangs = clock_seconds() - w->started > self->options->case_seconds;
  if (hangs) kill(w->process, SIGKILL);
  if (waitpid(w->process, &state, hangs ? 0 : WNOHANG) == 0) return true;
  w->process = 0;
  w->end.state = state;
  if (hangs) w->end.end = TRIAL_HUNG;
  else if ((!WIFEXITED(state) || WEXITSTATUS(state) != 0 || !w->is_done) && w->end.end == TRIAL_SOUND) w->end.end = TRIAL_CRASHED;
  return false;
}

static run_counts sum_counts(const run *self) {
  run_counts sum = {0};
  for (uint32_t i = 0; i < self->options->jobs; i++) run_add_counts(&sum, &self->workers[i].counts);
  return sum;
}

static void stop_all(const run *self) {
  for (uint32_t i = 0; i < self->options->jobs; i++) {
    worker *w = &self->workers[i];
    if (!w->process) continue;
    kill(w->process, SIGKILL);
    waitpid(w->process, NULL, 0);
    w->process = 0;
  }
}

/* Waits until all have ended, or until one has found a failure, which is returned. */
static worker *wait_all(const run *self) {
  double shown = clock_seconds();
  for (bool any = true; any;) {
    any = false;
    for (uint32_t i = 0; i < self->options->jobs; i++) {
      any |= look(self, &self->workers[i]);
      if (!self->workers[i].process && self->workers[i].end.end != TRIAL_SOUND) return &self->workers[i];
    }
    if (any) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (!self->options->on_progress || clock_seconds() - shown < 0.5) continue;
    shown = clock_seconds();
    run_counts counts = sum_counts(self);
    self->options->on_progress(&counts, shown - self->begun);
  }
  return NULL;
}

/* Plays the case again, alone in a process, then smaller ones. */
static status examine(const run *self, const worker *found) {
  const fuzz_options *o = self->options;
  fuzz_report *report = self->report;
  trial again;
  draw_case(&report->smallest, seed_of(o, found->number), &o->limits);
  report->result = found->end;
  if (found->end.end == TRIAL_ERROR) return FAIL(ERR_MISMATCH, "case %" PRIu64 " could not be played: %s", found->number, found->end.error);
  report->failed = true;
  TRY(trial_run(&o->stage, &report->smallest, o->case_seconds, o->is_quiet, &again));
  report->repeats = trial_fails(&again);
  if (!report->repeats) return OK;
  report->result = again;
  if (o->shrink_seconds <= 0) return OK;
  return shrink_case(&o->stage, &report->smallest, &report->result, o->shrink_seconds, o->case_seconds, &report->tried);
}

status fuzz_run(const fuzz_options *options, fuzz_report *out) {
  run self = {.options = options, .begun = clock_seconds(), .case_count = UINT64_MAX, .report = out};
  memset(out, 0, sizeof *out);
  if (options->schedules) self.case_count = (options->schedules + options->limits.schedules - 1) / options->limits.schedules;
  self.workers = trial_shared(sizeof *self.workers * options->jobs);
  status result = start(&self);
  const worker *found = result == OK ? wait_all(&self) : NULL;
  stop_all(&self);
  out->counts = sum_counts(&self);
  out->seconds = clock_seconds() - self.begun;
  return found ? examine(&self, found) : result;
}

#define MANY_DIVIDED 16u /* engines, of which not all have latent attention over whole contexts */

const char *fuzz_missing(const run_counts *c, const draw_limits *limits) {
  const struct {
    const char *name;
    uint64_t seen;
  } witnesses[] = {{"steps with several sequences", c->engine.most_sequences > 1},
                   {"steps with prompt and decode rows", c->engine.mixed_steps},
                   {"tokens taken from the prefix cache", c->engine.reused_tokens},
                   {"preemptions", c->engine.preemptions},
                   {"recomputed tokens", c->engine.recomputed_tokens},
                   {"evicted pages", c->engine.evicted_pages},
                   {"cancellations", c->engine.cancellations},
                   {"deadlines", c->engine.deadlines},
                   {"restarts", c->restarts},
                   {"accepted drafts", c->engine.accepted_tokens},
                   {"rejected drafts", c->engine.drafted_tokens - c->engine.accepted_tokens},
                   {"engines of several ranks", c->divided || limits->ranks == 1},
                   {"steps that attend by requests", c->engine.request_steps || c->divided < MANY_DIVIDED || limits->ranks == 1}};
  for (size_t i = 0; i < ARRAY_LEN(witnesses); i++)
    if (!witnesses[i].seen) return witnesses[i].name;
  return NULL;
}
