/* serve/connections.h - TCP connections and HTTP/1.1 on them: turns bytes into requests and replies into bytes. Owns libevent.
 *
 * libevent_core.a (event loop, buffered sockets) is linked as Debian and Ubuntu ship it and needs no other library. libevent's own HTTP
 * server is not used: it passes a request on only once its whole body is in memory, too late to refuse it or to bound that memory.
 * libmicrohttpd's archive needs GnuTLS; http_parser's accepts malformed chunk ends and blanks in header names. Hence serve/parse.h.
 *
 * States of a connection: IDLE -> HEAD -> BODY -> WAITING -> SENDING -> IDLE ..., or after its last reply SENDING -> LINGERING -> closed.
 *   IDLE       waits for the next request               for at most `seconds`
 *   HEAD       has part of a head                       for at most `seconds`
 *   BODY       the exchange has the head; reads the body for at most `seconds`
 *   WAITING    the request is read; the reply is being made, or streamed
 *   SENDING    the whole reply is in the output buffer  (WAITING and SENDING end after `seconds` in which the client reads nothing)
 *   LINGERING  our side is shut; input is discarded so that the client can read the reply
 * A client that closes its side has left: its exchange learns of it while the reply is being made. All functions are called, and all
 * callbacks made, on the thread that calls serve_connections_run. Knows nothing of endpoints. Read next: serve/parse.h, serve/http.c. */
#ifndef VERBATIM_SERVE_CONNECTIONS_H
#define VERBATIM_SERVE_CONNECTIONS_H
#include "base/base.h"
#include "serve/parse.h"
#include "serve/text.h"

typedef struct serve_connections serve_connections;
typedef struct serve_connection serve_connection;

/* An exchange (a request and its reply) is an object of the caller's. A callback may reply or abort. */
typedef struct serve_callbacks {
  void *context;
  /* A head has been read. With a fault, message is null: the input is not a request, and the exchange must reply at once. Returns the
   * exchange; null: no memory, the connection ends. */
  void *(*on_head)(void *context, serve_connection *connection, const serve_message *message, const serve_fault *fault);
  bool (*on_body)(void *exchange, const char *bytes, size_t count); /* the next part of the body; false: ends the connection */
  void (*on_bad_body)(void *exchange, const serve_fault *fault);    /* its chunks are malformed; the exchange must reply at once */
  void (*on_request)(void *exchange); /* the body is complete */
  void (*on_room)(void *exchange);    /* the kernel has taken all of the stream so far: more may be added */
  void (*on_gone)(void *exchange);    /* the client closed its side while the reply is being made */
  void (*on_end)(void *exchange, bool whole); /* the last call. whole: the kernel has taken the whole reply; else the connection ended */
  void (*on_news)(void *context);     /* follows one or more calls of serve_connections_wake */
} serve_callbacks;

typedef struct serve_connections_config {
  const char *host;         /* a name or an address */
  uint32_t port;            /* 0: any that is free  */
  uint32_t connections_max; /* others wait in the kernel until one ends, or take the place of a silent one */
  double seconds;           /* the time limit above */
  serve_callbacks callbacks;
} serve_connections_config;

/* Listens when this returns, and writes the address to url: "http://127.0.0.1:8000". ERR_USAGE, ERR_IO, ERR_LIMIT. */
status serve_connections_open(serve_connections **out, const serve_connections_config *config, char *url, size_t url_bytes);

/* Runs the loop for that long, or until the descriptor is readable. The descriptor is the same in every call. */
void serve_connections_run(serve_connections *self, int descriptor, uint32_t milliseconds);

void serve_connections_wake(serve_connections *self);  /* from any thread: makes the loop call on_news */
void serve_connections_drain(serve_connections *self); /* closes the listening socket; each connection ends with its next reply */
uint32_t serve_connections_count(const serve_connections *self);
void serve_connections_close(serve_connections *self); /* ends all connections. Null: nothing */

/* Sends the reply of the connection's exchange, once. headers: lines that end in CR LF, without Date, Connection and the length. Takes
 * ownership of the body. A reply before the whole request has been read is the last of its connection. */
void serve_connections_reply(serve_connection *c, unsigned http_status, const char *headers, serve_text *body);

/* A streamed reply: begin, add as often as needed, finish. */
void serve_connections_begin(serve_connection *c, unsigned http_status, const char *headers);
void serve_connections_add(serve_connection *c, serve_text *part); /* not empty; takes ownership */
void serve_connections_finish(serve_connection *c);

bool serve_connections_has_room(const serve_connection *c); /* the kernel has taken all of the stream so far */
bool serve_connections_is_gone(const serve_connection *c);  /* the client has closed its side */
void serve_connections_abort(serve_connection *c);          /* ends the connection; on_end follows after this has returned */

#endif
