/* serve/text.h - the pieces of JSON that replies consist of, written into a strbuf.
 *
 * JSON is written as it is sent: keys in the order of the calls, no spaces, and numbers in the shortest form that reads back as the same
 * number (a float32 as the same float32), so that equal values give equal bytes. Knows nothing of requests.
 * Read next: serve/tokens.h, serve/reply.h. */
#ifndef VERBATIM_SERVE_TEXT_H
#define VERBATIM_SERVE_TEXT_H
#include <jansson.h>
#include "base/base.h"
#include "base/digest.h"
#include "base/strbuf.h"

typedef strbuf serve_text;

/* A JSON string of UTF-8; each byte that is not UTF-8 becomes U+FFFD. */
static inline void serve_text_string(serve_text *self, const char *bytes, size_t count) {
  strbuf_json(self, bytes, count, STRBUF_JSON_SHORT);
}

void serve_text_digest(serve_text *self, const uint8_t bytes[DIGEST_BYTES]);

/* Finite numbers, always with a point or an exponent, so that a reader never takes them for integers. */
void serve_text_float(serve_text *self, float value);
void serve_text_double(serve_text *self, double value);

void serve_text_bool(serve_text *self, bool value);
void serve_text_ids(serve_text *self, const int32_t *ids, size_t count);

/* A value as jansson writes it, compact, keys in their order. */
void serve_text_json(serve_text *self, const json_t *value);

#endif
