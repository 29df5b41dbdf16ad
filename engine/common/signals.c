/* common/signals.c - see common/signals.h. */
#include "common/signals.h"

sigset_t cli_signals_set(bool has_term) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  if (has_term) sigaddset(&set, SIGTERM);
  return set;
}

bool cli_signals_take(const sigset_t *set) {
  static const int numbers[] = {SIGINT, SIGTERM};
  sigset_t arrived;
  if (sigpending(&arrived) != 0) return false;
  for (unsigned i = 0; i < 2; i++) {
    int taken = 0;
    if (sigismember(set, numbers[i]) == 1 && sigismember(&arrived, numbers[i]) == 1) return sigwait(set, &taken) == 0;
  }
  return false;
}
