/* fuzz_serve_router.c - the head of an HTTP request, as the server checks it. The first byte says which headers there are; texts follow,
 * each up to a NUL: method, path, and the headers in the order of the struct.
 *
 * An accepted request is for a route with its method, has the key if one is required, and a body within the limit whose length is certain;
 * a refusal is an error that makes a JSON object and does not contain the key. */
#include <string.h>
#include "engine/serve/router.h"
#include "engine/serve/reply.h"
#include "fuzz.h"

#define KEY "key-7%d"
#define BODY_BYTES_MAX 4096u

static const char *next_text(const char **at, const char *end) {
  const char *text = *at, *stop = memchr(text, 0, (size_t)(end - text));
  *at = stop ? stop + 1 : end;
  return text;
}

static void check_fault(const serve_fault *fault) {
  serve_text out = {0};
  ASSERT(fault->http_status >= 400 && fault->http_status < 500 && fault->type[0] && fault->code[0] && fault->message[0]);
  serve_reply_fault(fault, &out);
  json_t *reply = json_loadb(out.bytes, out.count, JSON_REJECT_DUPLICATES, NULL);
  ASSERT(json_is_object(reply));
  json_decref(reply);
  strbuf_close(&out);
}

static void check_in(const serve_router *router, const serve_head *head, const serve_route *route) {
  ASSERT(route && strncmp(head->url, route->path, strlen(route->path)) == 0);
  ASSERT(strcmp(head->method, route->is_post ? "POST" : "GET") == 0 || (!route->is_post && strcmp(head->method, "HEAD") == 0));
  ASSERT(serve_router_is_framed(head) && strlen(head->url) <= SERVE_ROUTER_URL_BYTES_MAX);
  ASSERT(!router->api_key || route->is_open ||
         (head->authorization && strlen(head->authorization) == 7 + strlen(KEY) && strcmp(head->authorization + 7, KEY) == 0));
  ASSERT(!head->content_length || strtoull(head->content_length, NULL, 10) <= BODY_BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes == 0) return 0;
  char *copy = malloc(bytes);
  ASSERT(copy);
  memcpy(copy, data + 1, bytes - 1);
  copy[bytes - 1] = 0;
  const char *at = copy, *end = copy + bytes - 1;
  unsigned has = data[0];
  serve_head head = {.method = next_text(&at, end), .url = next_text(&at, end), .length_count = has >> 6,
                     .has_wrong_name = (has & 48) == 48, .bytes = (has & 32) ? bytes * 64 : bytes};
  if (has & 1) head.authorization = next_text(&at, end);
  if (has & 2) head.content_type = next_text(&at, end);
  if (has & 4) head.content_length = next_text(&at, end);
  if (has & 8) head.transfer_encoding = next_text(&at, end);
  for (int locked = 0; locked < 2; locked++) {
    const serve_router router = {.api_key = locked ? KEY : NULL, .body_bytes_max = BODY_BYTES_MAX};
    const serve_route *route = NULL;
    serve_fault fault = {0};
    if (serve_router_judge(&router, &head, &route, &fault)) check_in(&router, &head, route);
    else check_fault(&fault);
    if (route) ASSERT(*serve_router_allow(route));
  }
  free(copy);
  return 0;
}
