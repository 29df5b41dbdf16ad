/* trial.h - a case played in a process of its own, so that one which ends the process, or never ends, is a result like any other.
 *
 * The process that asks has opened no engine: a forked child may use a GPU then. Read next: run.h. */
#ifndef VERBATIM_TRIAL_H
#define VERBATIM_TRIAL_H
#include "run.h"

enum trial_end {
  TRIAL_SOUND = 0,
  TRIAL_BROKEN = 1,  /* a request is not what it is alone: outcome says which */
  TRIAL_CRASHED = 2, /* the process was ended by a signal, or ended itself    */
  TRIAL_HUNG = 3,    /* it took longer than it may                            */
  TRIAL_ERROR = 4    /* the case could not be played: error says why          */
};

typedef struct trial {
  enum trial_end end;
  run_outcome outcome;
  run_counts counts;
  char error[FAIL_TEXT_MAX];
  int state; /* TRIAL_CRASHED: of the process, as waitpid gives it */
} trial;

/* ERR_IO: no process could be made. is_quiet: what the child writes to stderr is dropped. */
status trial_run(const run_stage *stage, const schedule_case *c, double seconds, bool is_quiet, trial *out);

/* The contract is broken, or the engine is. */
bool trial_fails(const trial *t);

/* One line on how it ended. */
void trial_text(const trial *t, char *text, size_t bytes);

/* Memory that children share, zeroed; never given back. */
void *trial_shared(size_t bytes);

/* In a child, first: signals end it, whatever the parent does with its own; with is_quiet nobody reads its stderr. */
void trial_enter(bool is_quiet);

/* Waits for the process, which is killed after so many seconds (0: as soon as it is asked for). Returns its state as waitpid gives it. */
int trial_wait(int process, double seconds, bool *was_killed);

#endif
