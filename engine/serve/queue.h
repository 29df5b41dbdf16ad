/* serve/queue.h - the queue between the HTTP server and the engine, and the thread that runs the engine.
 *
 * While the queue is open, only its thread calls the engine. Between two steps it submits new requests in order of arrival and cancels
 * those whose client has left; after each step it reports progress; it sleeps when there is nothing to do. The number of accepted requests
 * and their memory are bounded. An HTTP request for tokens (serve_request) holds one or more requests of the engine. Knows nothing of
 * sockets or JSON. Read next: serve/request.h, serve/http.h. */
#ifndef VERBATIM_SERVE_QUEUE_H
#define VERBATIM_SERVE_QUEUE_H
#include "base/base.h"
#include "serve/request.h"
#include "serve/metrics.h"
#include "verbatim.h"

typedef struct serve_queue serve_queue;

typedef struct serve_queue_config {
  verbatim *engine;
  serve_metrics *metrics;
  uint32_t active_max;  /* engine requests that run at the same time   */
  uint32_t waiting_max; /* engine requests accepted beyond these       */
  uint64_t bytes_max;   /* memory of all accepted requests and of bodies that are being read */
  /* Called on the queue's thread for every request that the engine accepted, when it finishes and before its client can see the end of
   * the reply. Where it fails the HTTP request ends with an error that has the recorded text. */
  status (*on_finished)(void *context, const char *name, const verbatim_request *engine_request);
  void *context;
} serve_queue_config;

enum serve_admission {
  SERVE_ADMITTED,
  SERVE_FULL,      /* too many requests are waiting; retry later      */
  SERVE_NO_MEMORY, /* the memory for requests is in use; retry later  */
  SERVE_TOO_LARGE, /* exceeds what the server has for all requests    */
  SERVE_CLOSING    /* the server accepts nothing more                 */
};

typedef struct serve_place serve_place;
typedef struct serve_ticket serve_ticket;
struct serve_ticket { /* a request in the queue; its memory is the caller's and must not move before on_left */
  serve_request *request; /* the caller's */
  void (*on_progress)(serve_ticket *ticket); /* streams only, on the queue's thread: the engine accepted the request, or has new tokens */
  void (*on_left)(serve_ticket *ticket);     /* on the queue's thread, last: the request has finished and the queue no longer uses it */
  void *owner;        /* the caller's */
  uint64_t bytes;     /* reserved by serve_queue_add; the caller returns them after it has closed the request */
  /* Private to the queue. */
  serve_ticket *next, *previous;
  serve_queue *queue;
  serve_place *places; /* [choice_count] */
  uint32_t unfinished;
  double arrived_at;
  bool is_new_to_show, is_cancelled;
};

/* Starts the thread. ERR_LIMIT. */
status serve_queue_open(serve_queue **out, const serve_queue_config *config);

/* Ends the thread. serve_queue_idle must hold. Null: does nothing. */
void serve_queue_close(serve_queue *self);

/* ticket: request, callbacks and owner are set, the rest is zero. It is unchanged unless the result is SERVE_ADMITTED. */
enum serve_admission serve_queue_add(serve_queue *self, serve_ticket *ticket);

/* The client has left. on_left is still called, unless it has been. The ticket must still exist. */
void serve_queue_cancel(serve_queue *self, serve_ticket *ticket);

/* Empties the engine's prefix cache before any request that is added later is submitted. */
void serve_queue_reset_cache(serve_queue *self);

/* Reserves memory of the same budget for a body that is being read: all of it, or none and false. */
bool serve_queue_take_bytes(serve_queue *self, uint64_t bytes);
void serve_queue_give_bytes(serve_queue *self, uint64_t bytes);

void serve_queue_drain(serve_queue *self); /* admits nothing from now on */
void serve_queue_stop(serve_queue *self);  /* also cancels what is in the queue; its clients get an error that says so */
bool serve_queue_idle(serve_queue *self);  /* the queue is empty and no callback is running */

/* Why the engine has failed for good; OK: it has not. */
status serve_queue_failure(serve_queue *self);

#endif
