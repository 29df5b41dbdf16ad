/* common/signals.h - SIGINT and SIGTERM as something to ask for, between two steps of an engine.
 *
 * A handler could only write static data, and of the calls that wait for a signal only sigwait is on every system. */
#ifndef VERBATIM_CLI_SIGNALS_H
#define VERBATIM_CLI_SIGNALS_H
#include <signal.h>
#include <stdbool.h>

/* SIGINT, and SIGTERM if asked for. */
sigset_t cli_signals_set(bool has_term);

/* Takes a signal of the set, which every thread blocks, if one has arrived; returns whether it did. On the program's first thread. */
bool cli_signals_take(const sigset_t *set);

#endif
