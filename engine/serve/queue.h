/* serve/queue.h - from bodies that were accepted to the engine and back: one thread that works, and what may wait for it.
 *
 * The queue's thread alone calls the engine while the queue is open: it submits in the order of arrival between two steps, cancels what
 * nobody waits for any more, tells asks of their progress once a step, and sleeps when there is nothing to do. What has been accepted is
 * bounded in requests and in bytes. Knows nothing of sockets or JSON. Read next: serve/ask.h, serve/http.h. */
#ifndef VERBATIM_SERVE_QUEUE_H
#define VERBATIM_SERVE_QUEUE_H
#include "base/base.h"
#include "serve/ask.h"
#include "serve/metrics.h"
#include "verbatim.h"

typedef struct serve_queue serve_queue;

typedef struct serve_queue_config {
  verbatim *engine;
  serve_metrics *metrics;
  uint32_t active_max;  /* requests that the engine has places for   */
  uint32_t waiting_max; /* requests accepted beyond these            */
  uint64_t bytes_max;   /* of all accepted asks, and bodies on their way */
  /* On the queue's thread, of every request that the engine took and that is over: before its client can have the end of the reply. */
  void (*on_finished)(void *context, const char *name, const verbatim_request *request);
  void *context;
} serve_queue_config;

enum serve_admission {
  SERVE_ADMITTED,
  SERVE_FULL,      /* too many requests wait: later                  */
  SERVE_NO_MEMORY, /* the memory for requests is taken: later        */
  SERVE_TOO_LARGE, /* larger than all the memory for requests: never */
  SERVE_CLOSING    /* the server takes nothing more                  */
};

typedef struct serve_place serve_place;
typedef struct serve_ticket serve_ticket;
struct serve_ticket { /* an ask's way through the queue, in its caller's memory, at rest until on_left */
  serve_ask *ask;     /* the caller's                              */
  void (*on_progress)(serve_ticket *ticket); /* of a stream: the engine has taken it, or there is something new; on the queue's thread */
  void (*on_left)(serve_ticket *ticket);     /* the ask is over, and the queue does not touch it again: its last call, on its thread */
  void *owner;        /* the caller's                              */
  uint64_t bytes;     /* taken out of the budget by serve_queue_add; the caller gives them back when it has closed the ask */
  /* The queue's own. */
  serve_ticket *next, *previous;
  serve_queue *queue;
  serve_place *places; /* [choice_count] */
  uint32_t unfinished;
  double arrived_at;
  bool is_new_to_show, is_cancelled;
};

/* Starts the thread. ERR_LIMIT. */
status serve_queue_open(serve_queue **out, const serve_queue_config *config);

/* Ends the thread; serve_queue_idle must hold. Null: nothing. */
void serve_queue_close(serve_queue *self);

/* ticket: ask, the callbacks and owner set, the rest zero. Anything but SERVE_ADMITTED leaves it as it was. */
enum serve_admission serve_queue_add(serve_queue *self, serve_ticket *ticket);

/* Nobody waits for the ask any more. It still ends by on_left, unless it has left. The caller sees to it that the ticket is there. */
void serve_queue_cancel(serve_queue *self, serve_ticket *ticket);

/* Memory of bodies that are being read, out of the same budget. Takes all of it or, returning false, nothing. */
bool serve_queue_take_bytes(serve_queue *self, uint64_t bytes);
void serve_queue_give_bytes(serve_queue *self, uint64_t bytes);

void serve_queue_drain(serve_queue *self); /* from here on nothing is admitted */
void serve_queue_stop(serve_queue *self);  /* and what is there is cancelled: its clients are told so */
bool serve_queue_idle(serve_queue *self);  /* no ask is in the queue, and no callback under way */

/* The engine can do no more: ends with the cause of that, else OK. */
status serve_queue_failure(serve_queue *self);

#endif
