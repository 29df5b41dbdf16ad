/* strbuf.c - see strbuf.h. The room doubles, so that n added bytes cost O(n) copies. */
#include "base/strbuf.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

#define ROOM_MIN 64u

void strbuf_close(strbuf *self) {
  free(self->bytes);
  *self = (strbuf){0};
}

char *strbuf_reserve(strbuf *self, size_t bytes) {
  if (self->failed) return NULL;
  if (bytes > self->room - self->count) {
    size_t room = 2 * (self->count + bytes) + ROOM_MIN;
    char *grown = bytes < SIZE_MAX / 4 ? realloc(self->bytes, room) : NULL;
    if (!grown) {
      self->failed = true;
      return NULL;
    }
    self->bytes = grown;
    self->room = room;
  }
  return self->bytes + self->count;
}

void strbuf_add(strbuf *self, const char *bytes, size_t count) {
  char *end = count ? strbuf_reserve(self, count) : NULL;
  if (!end) return;
  memcpy(end, bytes, count);
  self->count += count;
}

void strbuf_adds(strbuf *self, const char *text) { strbuf_add(self, text, strlen(text)); }

void strbuf_addf(strbuf *self, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  int bytes = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  ASSERT(bytes >= 0 && (size_t)bytes < sizeof text);
  strbuf_add(self, text, (size_t)bytes);
}

status strbuf_take(strbuf *self, char **bytes, size_t *count) {
  char *end = strbuf_reserve(self, 1);
  if (!end) {
    strbuf_close(self);
    return FAIL(ERR_LIMIT, "no memory for a text");
  }
  *end = 0;
  *bytes = self->bytes;
  *count = self->count;
  *self = (strbuf){0};
  return OK;
}

/* === JSON =================================================================================================================== */

static void add_escape(strbuf *self, unsigned char c, strbuf_json_style style) {
  static const char escaped[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
  const char *at = c && style != STRBUF_JSON_HEX ? strchr(escaped, c) : NULL;
  if (at) strbuf_addf(self, "\\%c", letters[at - escaped]);
  else if (c < 0x80 || style == STRBUF_JSON_HEX) strbuf_addf(self, "\\u%04x", c);
  else strbuf_adds(self, "\xef\xbf\xbd");
}

static bool is_plain(unsigned char c, strbuf_json_style style) {
  return c >= 0x20 && c != '"' && c != '\\' && (c != 0x7f || style == STRBUF_JSON_PYTHON);
}

void strbuf_json(strbuf *self, const char *bytes, size_t count, strbuf_json_style style) {
  const uint8_t *text = (const uint8_t *)bytes;
  bool is_scanned = style != STRBUF_JSON_HEX, is_utf8 = is_scanned || utf8_valid_bytes(text, count) == count;
  size_t from = 0, at = 0;
  strbuf_add(self, "\"", 1);
  while (at < count) {
    int step = text[at] < 0x80 ? is_plain(text[at], style) : is_scanned ? utf8_scan(text + at, count - at) : is_utf8;
    if (step > 0) {
      at += (size_t)step;
      continue;
    }
    strbuf_add(self, bytes + from, at - from);
    add_escape(self, text[at], style);
    from = ++at;
  }
  if (from < count) strbuf_add(self, bytes + from, count - from);
  strbuf_add(self, "\"", 1);
}
