/* strbuf.h - a growing text and JSON string escapes.
 *
 * Out of memory, a buffer keeps what it has, takes nothing more and sets `failed`, so callers test once at the end instead of after every
 * literal. Written by hand because a stream of open_memstream cannot be shortened or edited, and jansson has only one style of escapes. It
 * allocates: for parsers, reports and replies, never for a step of the engine. Does not know what the text means. Read next: utf8.h. */
#ifndef VERBATIM_STRBUF_H
#define VERBATIM_STRBUF_H
#include "base/base.h"

typedef struct strbuf { /* zeroed: empty */
  char *bytes;          /* [count], without a NUL; NULL while nothing was added */
  size_t count, room;
  bool failed; /* out of memory: the text is incomplete */
} strbuf;

void strbuf_close(strbuf *self);

/* Space for `bytes` more bytes (1 or more) at the end, or NULL: out of memory. The caller adds the number it wrote to count. */
char *strbuf_reserve(strbuf *self, size_t bytes);

void strbuf_add(strbuf *self, const char *bytes, size_t count);
void strbuf_adds(strbuf *self, const char *text);                                               /* up to its NUL */
void strbuf_addf(strbuf *self, const char *format, ...) __attribute__((format(printf, 2, 3))); /* at most 1,023 bytes */

/* Appends a NUL and gives the text to the caller, who frees it; self is empty after. ERR_LIMIT: out of memory, nothing is given. */
status strbuf_take(strbuf *self, char **bytes, size_t *count);

typedef enum strbuf_json_style {
  STRBUF_JSON_HEX,    /* every escape is \u00xx; DEL is escaped; in text that is not UTF-8, so is every byte above 0x7f */
  STRBUF_JSON_SHORT,  /* \n and the like where JSON has a short escape; DEL is escaped; each byte that is not UTF-8 becomes U+FFFD */
  STRBUF_JSON_PYTHON, /* as json.dumps(ensure_ascii=False) writes it: STRBUF_JSON_SHORT, but DEL stays */
} strbuf_json_style;

/* The bytes as a JSON string in double quotes. */
void strbuf_json(strbuf *self, const char *bytes, size_t count, strbuf_json_style style);

#endif
