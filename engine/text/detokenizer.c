/* detokenizer.c - holds back incomplete UTF-8 (see detokenizer.h).
 *
 * Bytes are examined one at a time: the pending bytes plus the next one are still a prefix, complete, or ill-formed. If ill-formed, the
 * pending part becomes U+FFFD and the byte is examined again by itself. */
#include "text/detokenizer.h"
#include "base/utf8.h"
#include <string.h>

static const uint8_t replacement[3] = {0xEF, 0xBF, 0xBD};

typedef struct writer {
  char *out;
  size_t out_max, used;
} writer;

static status put(writer *w, const uint8_t *bytes, size_t count) {
  if (count > w->out_max - w->used) return FAIL(ERR_LIMIT, "text: expected room for more than %zu bytes, found no more", w->out_max);
  memcpy(w->out + w->used, bytes, count);
  w->used += count;
  return OK;
}

static status push_byte(detokenizer *d, writer *w, uint8_t byte) {
  d->pending[d->pending_bytes++] = byte;
  int scan = utf8_scan(d->pending, d->pending_bytes);
  if (scan == 0) return OK;
  if (scan > 0) {
    ASSERT(scan == d->pending_bytes);
    d->pending_bytes = 0;
    return put(w, d->pending, (size_t)scan);
  }
  bool was_alone = d->pending_bytes == 1;
  d->pending_bytes = 0;
  TRY(put(w, replacement, sizeof replacement));
  return was_alone ? OK : push_byte(d, w, byte); /* recurses once: the byte is alone then */
}

status detokenizer_push_bytes(detokenizer *d, const uint8_t *bytes, size_t count, char *out, size_t out_max, size_t *out_bytes) {
  ASSERT(d->pending_bytes < 4);
  detokenizer next = *d;
  writer w = {out, out_max, 0};
  for (size_t i = 0; i < count; i++) TRY(push_byte(&next, &w, bytes[i]));
  *d = next;
  *out_bytes = w.used;
  return OK;
}

status detokenizer_push(const tokenizer *t, detokenizer *d, int32_t id, char *out, size_t out_max, size_t *out_bytes) {
  size_t bytes = 0;
  const uint8_t *token = tokenizer_token_bytes(t, id, &bytes);
  return detokenizer_push_bytes(d, token, token ? bytes : 0, out, out_max, out_bytes);
}

status detokenizer_flush(detokenizer *d, char *out, size_t out_max, size_t *out_bytes) {
  writer w = {out, out_max, 0};
  if (d->pending_bytes > 0) TRY(put(&w, replacement, sizeof replacement));
  d->pending_bytes = 0;
  *out_bytes = w.used;
  return OK;
}
