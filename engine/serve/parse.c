/* serve/parse.c - see serve/parse.h. */
#include "serve/parse.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SKIPPED_MAX (16u << 10)
#define SIZE_DIGITS_MAX 15u /* of a chunk's size, which then is below 2^60 */

serve_fault serve_parse_fault(const char *what) {
  return serve_router_fault(400, "malformed_request", "the request is not HTTP/1.1: %s", what);
}

static bool refuse(serve_fault *to, const char *what) {
  *to = serve_parse_fault(what);
  return false;
}

/* === Characters ============================================================================================================= */

static bool is_control(char c) { return (unsigned char)c < 0x20 || c == 0x7f; }

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static bool is_token(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* === The end of a head ====================================================================================================== */

/* Requires a LF after every CR, a CR before every LF, and no other control character but the tab. */
enum serve_parse serve_parse_find(const char *bytes, size_t count, size_t *scanned, size_t *head_bytes) {
  for (size_t i = *scanned; i < count; i++) {
    bool follows_cr = i > 0 && bytes[i - 1] == '\r';
    if (follows_cr != (bytes[i] == '\n')) return SERVE_PARSE_BAD;
    if (is_control(bytes[i]) && !strchr("\r\n\t", bytes[i])) return SERVE_PARSE_BAD;
    if (bytes[i] == 0) return SERVE_PARSE_BAD;
    if (bytes[i] != '\n' || i < 3 || bytes[i - 2] != '\n') continue;
    *scanned = *head_bytes = i + 1;
    return SERVE_PARSE_DONE;
  }
  *scanned = count;
  return SERVE_PARSE_MORE;
}

/* === A head ================================================================================================================= */

/* Terminates the line with a NUL and moves on to the next one. */
static char *next_line(char **at) {
  char *line = *at, *end = strchr(line, '\r');
  *end = 0;
  *at = end + 2;
  return line;
}

/* Decodes percent escapes; invalid ones stay as they are. So does a whole path with %00, which decoded would be a shorter path: as it is,
 * it matches no route. */
static void decode_path(char *path) {
  char *to = path;
  if (strstr(path, "%00")) return;
  for (const char *from = path; *from; from++) {
    int high = *from == '%' ? hex_value(from[1]) : -1, low = high < 0 ? -1 : hex_value(from[2]);
    *to++ = *from;
    if (low < 0) continue;
    to[-1] = (char)(high << 4 | low);
    from += 2;
  }
  *to = 0;
}

/* The path of a target in absolute form, http://HOST/PATH, which every server must accept (RFC 9112, 3.2.2); any other target as it is.
 * NULL: there is no host. An empty path becomes "/". The host counts instead of the header's. */
static char *path_in(char *target, const char **host) {
  size_t scheme = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
  if (!scheme) return target;
  char *path = target + scheme + strcspn(target + scheme, "/?");
  size_t host_bytes = (size_t)(path - target) - scheme;
  if (!host_bytes) return NULL;
  *host = memmove(target + scheme - 2, target + scheme, host_bytes); /* makes room for its end, and for a path */
  target[scheme - 2 + host_bytes] = 0;
  if (*path == '/') return path;
  path[-1] = '/';
  return path - 1;
}

/* METHOD TARGET HTTP/1.x. The path is decoded; the query only counts towards the size of the headers. */
static bool parse_request_line(char *line, serve_message *out, serve_fault *fault) {
  char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
  if (!version || target == line || version == target + 1 || strchr(line, '\t'))
    return refuse(fault, "expected a method, a target and a version, with one space between them");
  *target++ = *version++ = 0;
  bool has_form = strncmp(version, "HTTP/", 5) == 0 && version[5] >= '0' && version[5] <= '9' && version[6] == '.' && version[7] >= '0' &&
                  version[7] <= '9' && !version[8];
  if (!has_form) return refuse(fault, "expected the version HTTP/1.1 or HTTP/1.0");
  if (version[5] != '1') {
    *fault = serve_router_fault(505, "http_version_not_supported", "expected the version HTTP/1.1 or HTTP/1.0, found %.8s", version);
    return false;
  }
  out->is_http10 = version[7] == '0';
  if (!(target = path_in(target, &out->head.host))) return refuse(fault, "expected a host in the target's absolute form");
  char *query = strchr(target, '?');
  if (query) {
    *query++ = 0;
    out->head.bytes += strlen(query);
  }
  decode_path(target);
  out->head.method = line;
  out->head.url = target;
  return true;
}

static bool parse_length(const char *value, uint64_t *out) {
  uint64_t bytes = 0;
  if (!*value || strspn(value, "0123456789") != strlen(value)) return false;
  for (; *value; value++) {
    unsigned digit = (unsigned)(*value - '0');
    bytes = bytes > (UINT64_MAX - digit) / 10 ? UINT64_MAX : 10 * bytes + digit;
  }
  *out = bytes;
  return true;
}

/* Searches a comma-separated list of tokens, such as the value of Connection. */
static bool has_token(const char *list, const char *name) {
  size_t bytes = strlen(name);
  for (const char *at = list; *at;) {
    at += strspn(at, ", \t");
    size_t count = strcspn(at, ", \t");
    if (count == bytes && strncasecmp(at, name, bytes) == 0) return true;
    at += count;
  }
  return false;
}

typedef struct seen { /* headers that are judged after all have been read */
  uint32_t hosts;
  bool closes, keeps;
} seen;

static bool take_header(const char *name, const char *value, serve_message *out, seen *s, serve_fault *fault) {
  serve_head *head = &out->head;
  head->bytes += strlen(name) + strlen(value);
  if (strcasecmp(name, "Content-Length") == 0) {
    if (!parse_length(value, &out->body_bytes)) return refuse(fault, "expected a Content-Length of digits");
    head->content_length = value;
    head->length_count++;
  } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
    head->transfer_encoding = value;
    head->length_count++;
  } else if (strcasecmp(name, "Host") == 0) {
    s->hosts++;
    if (!head->host) head->host = value;
  } else if (strcasecmp(name, "Origin") == 0) {
    if (!head->origin) head->origin = value;
  } else if (strcasecmp(name, "Access-Control-Request-Method") == 0) {
    head->asks_method = true;
  } else if (strcasecmp(name, "Connection") == 0) {
    s->closes |= has_token(value, "close");
    s->keeps |= has_token(value, "keep-alive");
  } else if (strcasecmp(name, "Expect") == 0) {
    out->expects_continue |= strcasecmp(value, "100-continue") == 0;
  } else if (strcasecmp(name, "Authorization") == 0) {
    if (!head->authorization) head->authorization = value;
  } else if (strcasecmp(name, "Content-Type") == 0) {
    if (!head->content_type) head->content_type = value;
  } else if (strcasecmp(name, "Content-Encoding") == 0) {
    if (!head->content_encoding || strcasecmp(head->content_encoding, "identity") == 0) head->content_encoding = value;
  } else if (strcasecmp(name, "X-Request-Id") == 0) {
    if (!out->request_id) out->request_id = value;
  }
  return true;
}

/* A blank in a name is noted only; the router refuses it, with an error of its own. */
static bool parse_header(char *line, serve_message *out, seen *s, serve_fault *fault) {
  char *colon = strchr(line, ':');
  if (is_blank(*line)) return refuse(fault, "a header's line is folded");
  if (!colon || colon == line) return refuse(fault, "expected a header's name, a colon and a value");
  *colon = 0;
  for (const char *c = line; *c; c++) {
    if (is_blank(*c)) out->head.has_wrong_name = true;
    else if (!is_token(*c)) return refuse(fault, "a header's name holds a character that no name may hold");
  }
  char *value = colon + 1, *end = value + strlen(value);
  while (is_blank(*value)) value++;
  while (end > value && is_blank(end[-1])) *--end = 0;
  return take_header(line, value, out, s, fault);
}

bool serve_parse_head(char *bytes, size_t count, serve_message *out, serve_fault *fault) {
  serve_message message = {0};
  seen s = {0};
  char *at = bytes;
  ASSERT(count >= 4 && memcmp(bytes + count - 4, "\r\n\r\n", 4) == 0);
  if (!parse_request_line(next_line(&at), &message, fault)) return false;
  while (*at != '\r')
    if (!parse_header(next_line(&at), &message, &s, fault)) return false;
  if (s.hosts > 1 || (s.hosts == 0 && !message.is_http10)) return refuse(fault, "expected one header Host");
  message.is_chunked = message.head.transfer_encoding != NULL;
  message.expects_continue &= !message.is_http10;
  /* HTTP/1.0 has no chunks: RFC 9112 asks to close the connection after such a request. */
  message.keeps_open = !s.closes && (message.is_http10 ? s.keeps && !message.is_chunked : true);
  *out = message;
  return true;
}

/* === Chunks ================================================================================================================= */

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER_START, TRAILER, TRAILER_LF, END_LF, ENDED };

/* Consumes a byte that is not part of a chunk's data. False: it is not allowed there. */
static bool take_byte(serve_chunks *self, char c) {
  int digit = hex_value(c);
  switch (self->state) {
    case SIZE:
      if (digit >= 0) {
        self->left = self->left << 4 | (unsigned)digit;
        return ++self->digits <= SIZE_DIGITS_MAX;
      }
      self->state = c == ';' ? EXTENSION : SIZE_LF;
      return self->digits > 0 && (c == ';' || c == '\r');
    case EXTENSION:
    case TRAILER:
      if (c == '\r') self->state = self->state == EXTENSION ? SIZE_LF : TRAILER_LF;
      return c == '\r' || ((!is_control(c) || c == '\t') && ++self->skipped <= SKIPPED_MAX);
    case SIZE_LF: self->state = self->left ? DATA : TRAILER_START; return c == '\n';
    case DATA_CR: self->state = DATA_LF; return c == '\r';
    case DATA_LF:
      self->state = SIZE;
      self->digits = 0;
      return c == '\n';
    case TRAILER_START:
      self->state = c == '\r' ? END_LF : TRAILER;
      return c == '\r' || !is_control(c);
    case TRAILER_LF: self->state = TRAILER_START; return c == '\n';
    case END_LF: self->state = ENDED; return c == '\n';
    default: return false;
  }
}

enum serve_parse serve_parse_chunks(serve_chunks *self, const char *bytes, size_t count, size_t *used, const char **part,
                                    size_t *part_bytes) {
  size_t at = 0;
  *part = bytes;
  *used = *part_bytes = 0;
  while (at < count && self->state != DATA && self->state != ENDED)
    if (!take_byte(self, bytes[at++])) return SERVE_PARSE_BAD;
  if (self->state == DATA && at < count) {
    *part = bytes + at;
    *part_bytes = (size_t)min_u64(self->left, count - at);
    self->left -= *part_bytes;
    at += *part_bytes;
    if (self->left == 0) self->state = DATA_CR;
  }
  *used = at;
  return self->state == ENDED ? SERVE_PARSE_DONE : SERVE_PARSE_MORE;
}
