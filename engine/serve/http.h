/* serve/http.h - the HTTP server: decides what each request gets as its reply, and when.
 *
 * One thread owns all exchanges, the one that calls serve_http_run; serve_work and the queue only post news to it. Must not know tokens or
 * the engine. Read next: enum exchange_state in http.c, serve/connections.h, serve/router.h, serve/queue.h. */
#ifndef VERBATIM_SERVE_HTTP_H
#define VERBATIM_SERVE_HTTP_H
#include "base/base.h"
#include "serve/access.h"
#include "serve/request.h"
#include "serve/router.h"
#include "serve/journal.h"
#include "serve/metrics.h"
#include "serve/queue.h"

typedef struct serve_http serve_http;

typedef struct serve_http_config { /* what it points to outlives the server */
  const char *host;         /* a name or an address   */
  const char *model_dir;    /* read by serve_http_open */
  uint32_t port;            /* 0: any that is free    */
  uint32_t connections_max;
  uint32_t client_seconds;  /* 1 ..: time limit for a head, for a body, and for a client that reads nothing */
  serve_router router;
  serve_access access;      /* is_loopback is set by serve_http_open */
  serve_model model;        /* `created` is set for each reply */
  serve_queue *queue;
  serve_metrics *metrics;
  serve_metrics_labels labels;
  serve_journal *journal;   /* its access log gets a line of JSON for each reply */
} serve_http_config;

/* Listens when this returns, and writes the address to url: "http://127.0.0.1:8000". ERR_USAGE, ERR_IO, ERR_LIMIT. */
status serve_http_open(serve_http **out, const serve_http_config *config, char *url, size_t url_bytes);

/* Serves clients for that long, or until the descriptor is readable. The descriptor is the same in every call. */
void serve_http_run(serve_http *self, int descriptor, uint32_t milliseconds);

void serve_http_drain(serve_http *self);      /* accepts no more connections; each open one ends with its next reply */
bool serve_http_idle(const serve_http *self); /* no client waits for a reply */

/* Ends all connections. The queue must be idle. Null: does nothing. */
void serve_http_close(serve_http *self);

#endif
