/* serve/router.h - the router: finds the endpoint of a request from its head, or refuses it.
 *
 * Checks, in this order: sizes, API key, path, method, framing of the body, content type, length. Without the key a client learns nothing
 * else. Knows neither sockets nor bodies. Read next: serve/parse.h, serve/http.c. */
#ifndef VERBATIM_SERVE_ROUTER_H
#define VERBATIM_SERVE_ROUTER_H
#include "base/base.h"
#include "serve/request.h"

#define SERVE_ROUTER_URL_BYTES_MAX 4096u
#define SERVE_ROUTER_HEAD_BYTES_MAX 16384u /* all names and values of headers, and the query */

enum serve_endpoint {
  SERVE_COMPLETIONS, SERVE_CHAT_COMPLETIONS, SERVE_TOKENIZE, SERVE_DETOKENIZE, SERVE_RESET_CACHE,
  SERVE_MODELS, SERVE_MODEL, SERVE_HEALTH, SERVE_VERSION, SERVE_METRICS, SERVE_TOKENIZER_INFO, SERVE_ROOT, SERVE_LOAD
};

typedef struct serve_route {
  const char *path;
  enum serve_endpoint endpoint;
  bool is_post;
  bool is_open;   /* needs no API key */
  bool is_prefix; /* the path goes on after it */
} serve_route;

typedef struct serve_router {
  const char *api_key; /* null: none is needed */
  uint64_t body_bytes_max;
} serve_router;

typedef struct serve_head { /* of a request; null: it has no such header */
  const char *host, *origin;
  bool asks_method;        /* it has the header Access-Control-Request-Method */
  const char *method, *url, *authorization, *content_type, *content_encoding, *content_length, *transfer_encoding;
  uint32_t length_count;   /* number of headers Content-Length and Transfer-Encoding */
  bool has_wrong_name;     /* a header's name contains a blank: a proxy may have read it as another header */
  uint64_t bytes;          /* of the names and values of all headers, and of the query */
} serve_head;

/* True: the request may come in. route is set whenever the path is known, even if the request is refused, else null. False: fault is the
 * reply. */
bool serve_router_judge(const serve_router *self, const serve_head *head, const serve_route **route, serve_fault *fault);

/* The head states the length of the body unambiguously. Otherwise nothing after the head may be read. */
bool serve_router_is_framed(const serve_head *head);

/* The routes in order; NULL after the last one. */
const serve_route *serve_router_at(uint32_t index);

/* The value of the header Allow. */
const char *serve_router_allow(const serve_route *route);

/* Builds a fault; its type follows from the status. */
serve_fault serve_router_fault(unsigned http_status, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
