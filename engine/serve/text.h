/* serve/text.h - text that grows, and the pieces of JSON that replies are made of.
 *
 * JSON is written as it is to be sent: keys in the order of the calls, no spaces, and numbers in the shortest form that reads back as
 * the same number (of a float32 the same float32), so that equal values are equal bytes. Out of memory, a text stays as it is, takes
 * nothing more and says so. Knows nothing of requests. Read next: serve/tokens.h, serve/reply.h. */
#ifndef VERBATIM_SERVE_TEXT_H
#define VERBATIM_SERVE_TEXT_H
#include <jansson.h>
#include "base/base.h"
#include "base/digest.h"

typedef struct serve_text { /* zeroed: empty */
  char *bytes;              /* [count], no NUL behind it */
  size_t count, room;
  bool failed;              /* there was no memory: what is there is not whole */
} serve_text;

void serve_text_close(serve_text *self);

/* Room for so many more bytes, 1 or more, at the end, or null: no memory. The caller adds what it wrote to count. */
char *serve_text_reserve(serve_text *self, size_t bytes);

void serve_text_add(serve_text *self, const char *bytes, size_t count);
void serve_text_put(serve_text *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string of UTF-8; of bytes that are not UTF-8 each becomes U+FFFD. */
void serve_text_string(serve_text *self, const char *bytes, size_t count);
void serve_text_digest(serve_text *self, const uint8_t bytes[DIGEST_BYTES]);

/* Finite numbers, always with a point or an exponent: a reader takes them for real ones. */
void serve_text_float(serve_text *self, float value);
void serve_text_double(serve_text *self, double value);

void serve_text_bool(serve_text *self, bool value);
void serve_text_ids(serve_text *self, const int32_t *ids, size_t count);

/* A value as jansson has it, its keys in their order. */
void serve_text_json(serve_text *self, const json_t *value);

#endif
