/* trial.c - see trial.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "trial.h"
#include "engine/base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void *trial_shared(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT(memory != MAP_FAILED);
  return memory;
}

int trial_wait(int process, double seconds, bool *was_killed) {
  double end = clock_seconds() + seconds;
  int state = 0;
  *was_killed = false;
  while (waitpid(process, &state, WNOHANG) == 0) {
    if (clock_seconds() < end) {
      nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
      continue;
    }
    kill(process, SIGKILL);
    *was_killed = true;
    waitpid(process, &state, 0);
    break;
  }
  return state;
}

void trial_enter(bool is_quiet) {
  static const int ends[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
  int null = is_quiet ? open("/dev/null", O_WRONLY) : -1;
  for (size_t i = 0; i < ARRAY_LEN(ends); i++) signal(ends[i], SIG_DFL);
  if (null >= 0) dup2(null, STDERR_FILENO);
}

static _Noreturn void play(const run_stage *stage, const schedule_case *c, bool is_quiet, trial *shared) {
  run_stage own = *stage;
  trial_enter(is_quiet);
  status result = run_case(&own, c, &shared->outcome, &shared->counts);
  if (result != OK) snprintf(shared->error, sizeof shared->error, "%s", fail_text());
  shared->end = result != OK ? TRIAL_ERROR : shared->outcome.failed ? TRIAL_BROKEN : TRIAL_SOUND;
  run_close(&own);
  _exit(0);
}

status trial_run(const run_stage *stage, const schedule_case *c, double seconds, bool is_quiet, trial *out) {
  trial *shared = trial_shared(sizeof *shared);
  bool was_killed;
  shared->end = TRIAL_CRASHED; /* unless the child reports something else */
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) return FAIL(ERR_IO, "fork: %s", strerror(errno));
  if (child == 0) play(stage, c, is_quiet, shared);
  int state = trial_wait(child, seconds, &was_killed);
  *out = *shared;
  munmap(shared, sizeof *shared);
  out->state = state;
  if (was_killed) out->end = TRIAL_HUNG;
  else if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) out->end = TRIAL_CRASHED;
  return OK;
}

bool trial_fails(const trial *t) { return t->end == TRIAL_BROKEN || t->end == TRIAL_CRASHED || t->end == TRIAL_HUNG; }

void trial_text(const trial *t, char *text, size_t bytes) {
  switch (t->end) {
    case TRIAL_SOUND: snprintf(text, bytes, "every receipt is the one of the request alone"); return;
    case TRIAL_BROKEN: snprintf(text, bytes, "r%" PRIu32 ": %s", t->outcome.request, t->outcome.what); return;
    case TRIAL_CRASHED:
      snprintf(text, bytes, "the process ended in the midst, by %s %d: see its message, or run it in a debugger",
               WIFSIGNALED(t->state) ? "signal" : "exit code", WIFSIGNALED(t->state) ? WTERMSIG(t->state) : WEXITSTATUS(t->state));
      return;
    case TRIAL_HUNG: snprintf(text, bytes, "it did not come to an end"); return;
    case TRIAL_ERROR: snprintf(text, bytes, "it could not be played: %s", t->error); return;
  }
}
