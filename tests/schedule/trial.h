/* trial.h - plays a case in a process of its own, so that a case that ends the process, or never ends, is a result like any other.
 *
 * The calling process must have opened no engine: then a forked child may use a GPU. Read next: run.h. */
#ifndef VERBATIM_TRIAL_H
#define VERBATIM_TRIAL_H
#include "run.h"

enum trial_end {
  TRIAL_SOUND = 0,
  TRIAL_BROKEN = 1,  /* a request differs from its run alone: see outcome     */
  TRIAL_CRASHED = 2, /* a signal ended the process, or it ended itself        */
  TRIAL_HUNG = 3,    /* it exceeded its time limit                            */
  TRIAL_ERROR = 4    /* the case could not be played: error says why          */
};

typedef struct trial {
  enum trial_end end;
  run_outcome outcome;
  run_counts counts;
  char error[FAIL_TEXT_MAX];
  int state; /* TRIAL_CRASHED: of the process, as waitpid gives it */
} trial;

/* ERR_IO: no process could be created. is_quiet: the child's stderr is dropped. */
status trial_run(const run_stage *stage, const schedule_case *c, double seconds, bool is_quiet, trial *out);

/* The contract is broken, or the engine is. */
bool trial_fails(const trial *t);

/* One line that says how it ended. */
void trial_text(const trial *t, char *text, size_t bytes);

/* Memory that child processes share, zeroed; never released. */
void *trial_shared(size_t bytes);

/* Called first in a child: signals end it, whatever the parent does with its own; with is_quiet its stderr is dropped. */
void trial_enter(bool is_quiet);

/* Waits for the process, which is killed after that many seconds (0: immediately). Returns its state as waitpid gives it. */
int trial_wait(int process, double seconds, bool *was_killed);

#endif
