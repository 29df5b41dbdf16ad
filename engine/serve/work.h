/* serve/work.h - a thread for what takes long, so that the thread of the sockets does not: bodies, large replies.
 *
 * Tasks are done one after the other: short ones before long ones, else in the order in which they came. One at a time also because what
 * they use may learn as it works, as the tokenizer does. Knows nothing of what they are. Read next: serve/http.c. */
#ifndef VERBATIM_SERVE_WORK_H
#define VERBATIM_SERVE_WORK_H
#include "base/base.h"

typedef struct serve_work serve_work;
typedef struct serve_task serve_task;
struct serve_task { /* in its caller's memory until run was called, which may free it */
  void (*run)(serve_task *task);
  serve_task *next; /* the thread's own */
};

/* Starts the thread. ERR_LIMIT. */
status serve_work_open(serve_work **out);

/* False: the thread ends, and the task is not done. By any thread. */
bool serve_work_add(serve_work *self, serve_task *task, bool is_long);

void serve_work_end(serve_work *self);   /* takes no more, does what is there, ends the thread. Once */
void serve_work_close(serve_work *self); /* has ended. Null: nothing */

#endif
