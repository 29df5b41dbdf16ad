/* serve/router.h - what is judged by the head of an HTTP request alone: which endpoint it is for, and whether it may come in.
 *
 * Knows neither sockets nor bodies. Read next: serve/http.c. */
#ifndef VERBATIM_SERVE_ROUTER_H
#define VERBATIM_SERVE_ROUTER_H
#include "base/base.h"
#include "serve/ask.h"

#define SERVE_ROUTER_URL_BYTES_MAX 4096u
#define SERVE_ROUTER_HEAD_BYTES_MAX 16384u /* of all names and values */

enum serve_endpoint {
  SERVE_COMPLETIONS, SERVE_CHAT_COMPLETIONS, SERVE_TOKENIZE, SERVE_DETOKENIZE,
  SERVE_MODELS, SERVE_MODEL, SERVE_HEALTH, SERVE_VERSION, SERVE_METRICS, SERVE_TOKENIZER_INFO
};

typedef struct serve_route {
  const char *path;
  enum serve_endpoint endpoint;
  bool is_post;
  bool is_open;  /* without a key */
  bool is_prefix;
} serve_route;

typedef struct serve_router {
  const char *api_key; /* null: none is asked for */
  uint64_t body_bytes_max;
} serve_router;

typedef struct serve_head { /* null: no such header */
  const char *method, *url, *authorization, *content_type, *content_length, *transfer_encoding;
  uint32_t length_count;   /* headers that say how long the body is: Content-Length and Transfer-Encoding */
  bool has_wrong_name;     /* a header's name holds a blank: who passed the request on may have read another one */
  uint64_t bytes;          /* of names and values */
} serve_head;

/* route: of a path that is known, also when the request is refused; else null. false: fault says why. */
bool serve_router_judge(const serve_router *self, const serve_head *head, const serve_route **route, serve_fault *fault);

/* Everybody reads the same length of the body out of the head; else nothing may be read of it. */
bool serve_router_is_framed(const serve_head *head);

/* The value of the header Allow. */
const char *serve_router_allow(const serve_route *route);

/* A fault by its parts. param and code may be "". */
serve_fault serve_router_fault(unsigned http_status, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
