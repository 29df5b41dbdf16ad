/* serve/http.h - the server's sockets: HTTP requests in, replies and streams out, through libmicrohttpd on one thread of its own.
 *
 * A body becomes an ask, which goes through the queue while its connection is suspended; the thread waits for nothing else than sockets,
 * and leaves what takes long to serve_work. What a connection may hold is bounded, in bytes and in time. Read next: serve/router.h,
 * serve/links.h, serve/queue.h. */
#ifndef VERBATIM_SERVE_HTTP_H
#define VERBATIM_SERVE_HTTP_H
#include <stdio.h>
#include "base/base.h"
#include "serve/ask.h"
#include "serve/router.h"
#include "serve/metrics.h"
#include "serve/queue.h"

typedef struct serve_http serve_http;

typedef struct serve_http_config { /* what is pointed to outlives the server */
  const char *host;         /* a name or an address   */
  const char *model_dir;    /* read by serve_http_open */
  uint32_t port;            /* 0: any that is free    */
  uint32_t connections_max;
  uint32_t client_seconds;  /* 1 ..: for a head, for a body, and for a client that reads nothing */
  serve_router router;
  serve_model model;        /* created is set for each reply */
  serve_queue *queue;
  serve_metrics *metrics;
  serve_metrics_labels labels;
  FILE *access_log;         /* a line of JSON for each reply; null: none */
} serve_http_config;

/* Listens and answers when this returns. url: room for it, "http://127.0.0.1:8000". ERR_IO, ERR_LIMIT. */
status serve_http_open(serve_http **out, const serve_http_config *config, char *url, size_t url_bytes);

/* The caller waits on the descriptor, calls look when it is readable, and tick now and then: at least four times in client_seconds. */
int serve_http_descriptor(const serve_http *self);
void serve_http_look(serve_http *self);
void serve_http_tick(serve_http *self);

void serve_http_drain(serve_http *self); /* takes no more connections; those that are there are told of it */
bool serve_http_idle(serve_http *self);  /* no request is being read or answered */

/* Ends all connections. The queue is idle. Null: nothing. */
void serve_http_close(serve_http *self);

#endif
