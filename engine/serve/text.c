/* serve/text.c - see serve/text.h. */
#include "serve/text.h"
#include "base/utf8.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLOAT_DIGITS_MAX 9
#define DOUBLE_DIGITS_MAX 17
#define NUMBER_BYTES 40

void serve_text_close(serve_text *self) {
  free(self->bytes);
  *self = (serve_text){0};
}

char *serve_text_reserve(serve_text *self, size_t bytes) {
  if (self->failed) return NULL;
  if (bytes > self->room - self->count) {
    size_t room = 2 * (self->count + bytes) + 64;
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

void serve_text_add(serve_text *self, const char *bytes, size_t count) {
  char *end = count ? serve_text_reserve(self, count) : NULL;
  if (!end) return;
  memcpy(end, bytes, count);
  self->count += count;
}

void serve_text_put(serve_text *self, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  int bytes = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  ASSERT(bytes >= 0 && (size_t)bytes < sizeof text);
  serve_text_add(self, text, (size_t)bytes);
}

/* === JSON =================================================================================================================== */

static void put_escaped(serve_text *self, unsigned char c) {
  static const char short_names[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
  const char *at = c ? strchr(short_names, c) : NULL;
  if (at) serve_text_put(self, "\\%c", letters[at - short_names]);
  else serve_text_put(self, "\\u%04x", c);
}

void serve_text_string(serve_text *self, const char *bytes, size_t count) {
  const uint8_t *text = (const uint8_t *)bytes;
  serve_text_add(self, "\"", 1);
  for (size_t from = 0, at = 0; count && at <= count; at++) {
    bool is_end = at == count, is_plain = !is_end && text[at] >= 0x20 && text[at] < 0x7f && text[at] != '"' && text[at] != '\\';
    int step = is_end || is_plain || text[at] < 0x80 ? 0 : utf8_scan(text + at, count - at);
    if (is_plain || step > 1) {
      at += step > 1 ? (size_t)step - 1 : 0;
      continue;
    }
    serve_text_add(self, bytes + from, at - from);
    from = at + 1;
    if (!is_end && text[at] < 0x80) put_escaped(self, text[at]);
    else if (!is_end) serve_text_add(self, "\xef\xbf\xbd", 3);
  }
  serve_text_add(self, "\"", 1);
}

void serve_text_digest(serve_text *self, const uint8_t bytes[DIGEST_BYTES]) {
  char text[DIGEST_TEXT_BYTES];
  serve_text_put(self, "\"%s\"", digest_text(bytes, text));
}

static void put_real(serve_text *self, const char *number) {
  serve_text_add(self, number, strlen(number));
  if (!strpbrk(number, ".e")) serve_text_add(self, ".0", 2);
}

/* What reads back with some digits does with more: the shortest form is found from the longest one down, in a few steps. */
void serve_text_float(serve_text *self, float value) {
  char number[NUMBER_BYTES], shorter[NUMBER_BYTES];
  ASSERT(isfinite(value));
  snprintf(number, sizeof number, "%.*g", FLOAT_DIGITS_MAX, (double)value);
  for (int digits = FLOAT_DIGITS_MAX - 1; digits > 0; digits--) {
    snprintf(shorter, sizeof shorter, "%.*g", digits, (double)value);
    if (strtof(shorter, NULL) != value) break;
    memcpy(number, shorter, sizeof number);
  }
  put_real(self, number);
}

void serve_text_double(serve_text *self, double value) {
  char number[NUMBER_BYTES], shorter[NUMBER_BYTES];
  ASSERT(isfinite(value));
  snprintf(number, sizeof number, "%.*g", DOUBLE_DIGITS_MAX, value);
  for (int digits = DOUBLE_DIGITS_MAX - 1; digits > 0; digits--) {
    snprintf(shorter, sizeof shorter, "%.*g", digits, value);
    if (strtod(shorter, NULL) != value) break;
    memcpy(number, shorter, sizeof number);
  }
  put_real(self, number);
}

void serve_text_bool(serve_text *self, bool value) { serve_text_put(self, value ? "true" : "false"); }

void serve_text_ids(serve_text *self, const int32_t *ids, size_t count) {
  serve_text_add(self, "[", 1);
  for (size_t i = 0; i < count; i++) serve_text_put(self, i ? ",%d" : "%d", (int)ids[i]);
  serve_text_add(self, "]", 1);
}

static int add_dumped(const char *bytes, size_t count, void *self) {
  serve_text_add(self, bytes, count);
  return ((serve_text *)self)->failed ? -1 : 0;
}

void serve_text_json(serve_text *self, const json_t *value) {
  if (json_dump_callback(value, add_dumped, self, JSON_COMPACT | JSON_ENCODE_ANY) != 0) self->failed = true;
}
