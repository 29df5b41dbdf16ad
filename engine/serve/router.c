/* serve/router.c - see serve/router.h. */
#include "serve/router.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const serve_route ROUTES[] = {
  {.path = "/v1/completions", .endpoint = SERVE_COMPLETIONS, .is_post = true},
  {.path = "/v1/chat/completions", .endpoint = SERVE_CHAT_COMPLETIONS, .is_post = true},
  {.path = "/tokenize", .endpoint = SERVE_TOKENIZE, .is_post = true},
  {.path = "/detokenize", .endpoint = SERVE_DETOKENIZE, .is_post = true},
  {.path = "/reset_prefix_cache", .endpoint = SERVE_RESET_CACHE, .is_post = true},
  {.path = "/v1/models", .endpoint = SERVE_MODELS},
  {.path = "/v1/models/", .endpoint = SERVE_MODEL, .is_prefix = true},
  {.path = "/", .endpoint = SERVE_ROOT},
  {.path = "/health", .endpoint = SERVE_HEALTH, .is_open = true},
  {.path = "/ping", .endpoint = SERVE_HEALTH, .is_open = true}, /* as some platforms name it */
  {.path = "/load", .endpoint = SERVE_LOAD},
  {.path = "/version", .endpoint = SERVE_VERSION, .is_open = true},
  {.path = "/metrics", .endpoint = SERVE_METRICS},
  {.path = "/tokenizer_info", .endpoint = SERVE_TOKENIZER_INFO},
};

#define USE_CHATS "use /v1/chat/completions"
#define TEXT_ONLY "this server takes and makes text only"

/* Endpoints of OpenAI's API, and of servers like it, that are not offered. The status is 400, because proxies in front of several servers
 * take a model out of service after a 404. */
static const struct { const char *path, *hint; } LACKED[] = {
  {"/v1/responses", USE_CHATS}, {"/v1/conversations", USE_CHATS}, {"/v1/assistants", USE_CHATS}, {"/v1/threads", USE_CHATS},
  {"/v1/messages", USE_CHATS}, {"/v1/edits", USE_CHATS}, {"/v1/chat/completions/", "nothing is stored; keep the reply at the client"},
  {"/v1/embeddings", "this server has no embedding model"}, {"/v1/rerank", "/v1/completions with echo and logprobs scores a text"},
  {"/v1/score", "/v1/completions with echo and logprobs scores a text"}, {"/v1/moderations", "ask a model at /v1/chat/completions"},
  {"/v1/images", TEXT_ONLY}, {"/v1/videos", TEXT_ONLY}, {"/v1/audio", TEXT_ONLY}, {"/v1/realtime", TEXT_ONLY},
  {"/v1/files", "send the text in the request"}, {"/v1/uploads", "send the text in the request"},
  {"/v1/vector_stores", "send the text in the request"}, {"/v1/containers", "send the text in the request"},
  {"/v1/batches", "send the requests to /v1/chat/completions, or run a file of them with \"verbatim run --jsonl\""},
  {"/v1/evals", "use \"verbatim eval\""}, {"/v1/fine_tuning", "models are not changed here"},
  {"/v1/organization", "there are no accounts here"},
};

serve_fault serve_router_fault(unsigned http_status, const char *code, const char *format, ...) {
  serve_fault fault = {.http_status = http_status};
  va_list args;
  va_start(args, format);
  vsnprintf(fault.message, sizeof fault.message, format, args);
  va_end(args);
  snprintf(fault.code, sizeof fault.code, "%s", code);
  snprintf(fault.type, sizeof fault.type, "%s", http_status >= 500   ? "server_error"
                                                : http_status == 429 ? "rate_limit_error"
                                                : http_status == 401 ? "authentication_error"
                                                                     : "invalid_request_error");
  return fault;
}

const serve_route *serve_router_at(uint32_t index) { return index < ARRAY_LEN(ROUTES) ? &ROUTES[index] : NULL; }

const char *serve_router_allow(const serve_route *route) { return route->is_post ? "POST" : "GET, HEAD"; }

static const serve_route *find(const char *url) {
  for (size_t i = 0; i < ARRAY_LEN(ROUTES); i++) {
    const serve_route *route = &ROUTES[i];
    size_t bytes = strlen(route->path);
    if (route->is_prefix ? strncmp(url, route->path, bytes) == 0 && url[bytes] : strcmp(url, route->path) == 0) return route;
  }
  return NULL;
}

/* Why the path is not offered; NULL: it is unknown. */
static const char *lack_of(const char *url) {
  for (size_t i = 0; i < ARRAY_LEN(LACKED); i++) {
    size_t bytes = strlen(LACKED[i].path);
    if (strncmp(url, LACKED[i].path, bytes) == 0 && (!url[bytes] || url[bytes] == '/' || url[bytes - 1] == '/')) return LACKED[i].hint;
  }
  return NULL;
}

/* Takes the same time for every wrong key of the right length; the length is not secret. */
static bool is_key(const char *authorization, const char *key) {
  static const char scheme[] = "Bearer ";
  if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) return false;
  const char *given = authorization + sizeof scheme - 1;
  size_t bytes = strlen(key);
  if (strlen(given) != bytes) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < bytes; i++) difference = (unsigned char)(difference | (given[i] ^ key[i]));
  return difference == 0;
}

static bool is_json(const char *type) {
  static const char json[] = "application/json";
  size_t bytes = sizeof json - 1;
  return strncasecmp(type, json, bytes) == 0 && (!type[bytes] || strchr("; \t", type[bytes]));
}

static bool refuse(serve_fault *to, serve_fault fault) {
  *to = fault;
  return false;
}

bool serve_router_is_framed(const serve_head *head) {
  bool is_known = !head->transfer_encoding || strcasecmp(head->transfer_encoding, "chunked") == 0;
  return head->length_count <= 1 && is_known && !head->has_wrong_name;
}

static bool judge_body(const serve_router *self, const serve_head *head, serve_fault *fault) {
  if (!serve_router_is_framed(head))
    return refuse(fault, serve_router_fault(400, "bad_length", "expected at most one header that says how long the body is, Content-Length "
                                          "or Transfer-Encoding: chunked, and no blanks in the names of headers"));
  if (strcmp(head->method, "POST") == 0 && !(head->content_type && is_json(head->content_type)))
    return refuse(fault, serve_router_fault(415, "unsupported_media_type", "expected the header \"Content-Type: application/json\", found "
                                          "%.100s", head->content_type ? head->content_type : "none"));
  if (head->content_encoding && strcasecmp(head->content_encoding, "identity") != 0)
    return refuse(fault, serve_router_fault(415, "unsupported_content_encoding", "expected a body without Content-Encoding, found %.100s; "
                                          "hint: send it uncompressed", head->content_encoding));
  uint64_t bytes = head->content_length ? strtoull(head->content_length, NULL, 10) : 0;
  if (bytes <= self->body_bytes_max) return true;
  return refuse(fault, serve_router_fault(413, "body_too_large", "expected a body of at most %" PRIu64 " bytes, found one of %" PRIu64
                                        "; hint: the server's --max-body-bytes", self->body_bytes_max, bytes));
}

bool serve_router_judge(const serve_router *self, const serve_head *head, const serve_route **route, serve_fault *fault) {
  *route = NULL;
  if (strlen(head->url) > SERVE_ROUTER_URL_BYTES_MAX)
    return refuse(fault, serve_router_fault(414, "url_too_long", "expected a path of at most %u bytes", SERVE_ROUTER_URL_BYTES_MAX));
  if (head->bytes > SERVE_ROUTER_HEAD_BYTES_MAX)
    return refuse(fault, serve_router_fault(431, "headers_too_large", "expected headers of at most %u bytes", SERVE_ROUTER_HEAD_BYTES_MAX));
  const serve_route *found = *route = find(head->url);
  if (self->api_key && !(found && found->is_open) && !is_key(head->authorization, self->api_key))
    return refuse(fault, serve_router_fault(401, "invalid_api_key",
                                          "expected the header \"Authorization: Bearer KEY\" with the server's key"));
  const char *lack = found ? NULL : lack_of(head->url);
  if (lack) return refuse(fault, serve_router_fault(400, "unsupported_endpoint", "%.200s is not offered; hint: %s", head->url, lack));
  if (!found) return refuse(fault, serve_router_fault(404, "not_found", "no such path: %.200s; hint: SERVING.md lists them", head->url));
  bool reads = strcmp(head->method, "GET") == 0 || strcmp(head->method, "HEAD") == 0;
  if (found->is_post ? strcmp(head->method, "POST") != 0 : !reads)
    return refuse(fault, serve_router_fault(405, "method_not_allowed", "%.200s takes %s, found %.20s", head->url, serve_router_allow(found),
                                          head->method));
  return judge_body(self, head, fault);
}
