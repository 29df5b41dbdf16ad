/* serve/parse.h - the grammar of HTTP/1.1 (RFC 9112): the head of a request, and the chunks of its body.
 *
 * Strict, because of proxies: what two parsers could read as different requests is refused (request smuggling). Lines end in CR LF and are
 * not folded, a header's name is a token, a number has digits only. The router judges what is well formed. Allocates nothing and knows
 * nothing of sockets. Read next: serve/connections.h, serve/router.h. */
#ifndef VERBATIM_SERVE_PARSE_H
#define VERBATIM_SERVE_PARSE_H
#include "base/base.h"
#include "serve/router.h"

#define SERVE_PARSE_HEAD_BYTES_MAX (48u << 10)

enum serve_parse {
  SERVE_PARSE_MORE, /* well formed so far, incomplete */
  SERVE_PARSE_DONE,
  SERVE_PARSE_BAD
};

typedef struct serve_message { /* its texts point into the bytes that were parsed */
  serve_head head;
  const char *request_id;  /* X-Request-Id; null: none */
  uint64_t body_bytes;     /* Content-Length, at most 2^64 - 1; without it 0 */
  bool is_chunked;         /* Transfer-Encoding is present: body_bytes does not count */
  bool is_http10;
  bool keeps_open;         /* the client keeps the connection for another request */
  bool expects_continue;   /* the client sends the body after "100 Continue" */
} serve_message;

/* Searches for the empty line that ends a head. scanned: bytes that earlier calls have searched, at first 0. DONE: head_bytes includes that
 * line. */
enum serve_parse serve_parse_find(const char *bytes, size_t count, size_t *scanned, size_t *head_bytes);

/* Parses, and modifies, a head that serve_parse_find has found. False: fault is the reply, and nothing after the head can be read. */
bool serve_parse_head(char *bytes, size_t count, serve_message *out, serve_fault *fault);

/* The fault for input that is not an HTTP/1 request. */
serve_fault serve_parse_fault(const char *what);

/* The state of a chunked body as it arrives; zeroed at its start. */
typedef struct serve_chunks {
  unsigned state;
  uint64_t left;    /* bytes of the chunk to come */
  uint32_t digits;  /* of the chunk's size */
  uint32_t skipped; /* bytes of extensions and trailers, which are discarded; bounded */
} serve_chunks;

/* Consumes *used bytes and yields at most one part of the body (*part_bytes may be 0). DONE: the body has ended. */
enum serve_parse serve_parse_chunks(serve_chunks *self, const char *bytes, size_t count, size_t *used, const char **part,
                                    size_t *part_bytes);

#endif
