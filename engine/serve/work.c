/* serve/work.c - see serve/work.h. */
#include "serve/work.h"
#include "base/thread.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct task_list {
  serve_task *first, *last;
} task_list;

struct serve_work {
  pthread_t thread;
  pthread_mutex_t mutex; /* protects all members below */
  pthread_cond_t news;
  task_list lists[2]; /* short tasks, long tasks */
  bool is_ending;
};

static serve_task *next_task(serve_work *self) {
  pthread_mutex_lock(&self->mutex);
  while (!self->lists[0].first && !self->lists[1].first && !self->is_ending) pthread_cond_wait(&self->news, &self->mutex);
  task_list *list = &self->lists[!self->lists[0].first];
  serve_task *task = list->first;
  if (task) list->first = task->next;
  if (!list->first) list->last = NULL;
  pthread_mutex_unlock(&self->mutex);
  return task;
}

static void *work(void *argument) {
  for (serve_task *task; (task = next_task(argument));) task->run(task);
  return NULL;
}

status serve_work_open(serve_work **out) {
  serve_work *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "server: no memory");
  ASSERT(pthread_mutex_init(&self->mutex, NULL) == 0 && pthread_cond_init(&self->news, NULL) == 0);
  if (thread_begin(&self->thread, work, self) == 0) {
    *out = self;
    return OK;
  }
  self->is_ending = true;
  serve_work_close(self);
  return FAIL(ERR_LIMIT, "server: cannot start a thread");
}

bool serve_work_add(serve_work *self, serve_task *task, bool is_long) {
  task_list *list = &self->lists[is_long];
  pthread_mutex_lock(&self->mutex);
  bool taken = !self->is_ending;
  if (taken) {
    task->next = NULL;
    *(list->last ? &list->last->next : &list->first) = task;
    list->last = task;
    pthread_cond_signal(&self->news);
  }
  pthread_mutex_unlock(&self->mutex);
  return taken;
}

void serve_work_end(serve_work *self) {
  pthread_mutex_lock(&self->mutex);
  self->is_ending = true;
  pthread_cond_signal(&self->news);
  pthread_mutex_unlock(&self->mutex);
  pthread_join(self->thread, NULL);
}

void serve_work_close(serve_work *self) {
  if (!self) return;
  ASSERT(self->is_ending && !self->lists[0].first && !self->lists[1].first);
  pthread_cond_destroy(&self->news);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}
