/* thread.h - starts a thread with the same stack on every system: macOS gives half a MiB, Linux what `ulimit -s` says.
 *
 * Includes libc only. */
#ifndef VERBATIM_THREAD_H
#define VERBATIM_THREAD_H
#include <pthread.h>

/* Returns what pthread_create returns: 0, or an errno. */
int thread_begin(pthread_t *id, void *(*run)(void *), void *context);

#endif
