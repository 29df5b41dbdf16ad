/* serve/access.c - see serve/access.h. */
#include "serve/access.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct name { /* a part of a text */
  const char *at;
  size_t bytes;
} name;

static bool refuse(serve_fault *to, serve_fault fault) {
  *to = fault;
  return false;
}

/* Without brackets. */
static name bare(const char *at, size_t bytes) {
  bool has_brackets = bytes >= 2 && at[0] == '[' && at[bytes - 1] == ']';
  return has_brackets ? (name){at + 1, bytes - 2} : (name){at, bytes};
}

/* HOST[:PORT] without the port; empty if it is not of that form. */
static name host_in(const char *value) {
  const char *end = *value == '[' ? strchr(value, ']') : NULL, *colon = strchr(end ? end : value, ':');
  size_t bytes = colon ? (size_t)(colon - value) : strlen(value);
  if (colon && strspn(colon + 1, "0123456789") != strlen(colon + 1)) return (name){"", 0};
  return bare(value, bytes);
}

static bool is_same(name host, const char *listed) {
  name other = bare(listed, strlen(listed));
  return host.bytes == other.bytes && strncasecmp(host.at, other.at, host.bytes) == 0;
}

static bool allows_host(const serve_access *self, const char *value) {
  static const char *const own[] = {"localhost", "127.0.0.1", "::1"};
  name host = host_in(value);
  for (size_t i = 0; i < ARRAY_LEN(own); i++)
    if (is_same(host, own[i])) return true;
  for (uint32_t i = 0; i < self->hosts.count; i++)
    if (strcmp(self->hosts.list[i], "*") == 0 || is_same(host, self->hosts.list[i])) return true;
  return is_same(host, self->bound);
}

static const char *find_origin(const serve_access *self, const char *value) {
  for (uint32_t i = 0; i < self->origins.count; i++)
    if (strcmp(self->origins.list[i], "*") == 0 || strcasecmp(self->origins.list[i], value) == 0) return self->origins.list[i];
  return NULL;
}

bool serve_access_judge(const serve_access *self, const serve_head *head, const char **origin, serve_fault *fault) {
  *origin = NULL;
  if (strcmp(head->url, "/health") == 0 || strcmp(head->url, "/ping") == 0) return true;
  if ((self->is_loopback || self->hosts.count) && head->host && !allows_host(self, head->host))
    return refuse(fault, serve_router_fault(403, "host_not_allowed", "the host %.200s is not a name of this server; hint: the server's "
                                          "--allowed-host", head->host));
  if (!head->origin) return true;
  *origin = find_origin(self, head->origin);
  if (*origin) return true;
  return refuse(fault, serve_router_fault(403, "origin_not_allowed", "web pages of the origin %.200s may not use this server; hint: the "
                                        "server's --allowed-origin", head->origin));
}

bool serve_access_is_preflight(const serve_head *head) {
  return head->origin && head->asks_method && strcmp(head->method, "OPTIONS") == 0;
}

void serve_access_headers(const char *origin, bool is_preflight, char *room, size_t room_bytes) {
  *room = 0;
  if (!origin) return;
  snprintf(room, room_bytes, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n%s", origin,
           is_preflight ? "Access-Control-Allow-Methods: GET, HEAD, POST\r\nAccess-Control-Allow-Headers: Authorization, *\r\n"
                          "Access-Control-Max-Age: 600\r\n"
                        : "Access-Control-Expose-Headers: Retry-After, X-Request-Id\r\n");
}

bool serve_access_is_loopback(const char *url) {
  static const char *const starts[] = {"http://127.", "http://[::1]:", "http://[::ffff:127."};
  for (size_t i = 0; i < ARRAY_LEN(starts); i++)
    if (strncmp(url, starts[i], strlen(starts[i])) == 0) return true;
  return false;
}
