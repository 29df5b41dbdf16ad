/* serve/work.h - a worker thread for slow tasks (parsing bodies, writing large replies), so that they do not block the sockets.
 *
 * Runs one task at a time: short ones before long ones, each kind in order of arrival. One at a time also because tasks share the
 * tokenizer, which caches as it works. Knows nothing of what tasks do. Read next: serve/http.c. */
#ifndef VERBATIM_SERVE_WORK_H
#define VERBATIM_SERVE_WORK_H
#include "base/base.h"

typedef struct serve_work serve_work;
typedef struct serve_task serve_task;
struct serve_task { /* the caller's memory; run may free it */
  void (*run)(serve_task *task);
  serve_task *next; /* private to serve_work */
};

/* Starts the thread. ERR_LIMIT. */
status serve_work_open(serve_work **out);

/* From any thread. False: the worker is ending, and the task will not run. */
bool serve_work_add(serve_work *self, serve_task *task, bool is_long);

void serve_work_end(serve_work *self);   /* accepts no more tasks, runs those that it has and ends the thread. Called once */
void serve_work_close(serve_work *self); /* after serve_work_end. Null: does nothing */

#endif
