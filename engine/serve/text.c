/* serve/text.c - see serve/text.h. The growing text and its string escapes are base/strbuf's. */
#include "serve/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLOAT_DIGITS_MAX 9
#define DOUBLE_DIGITS_MAX 17
#define NUMBER_BYTES 40

void serve_text_digest(serve_text *self, const uint8_t bytes[DIGEST_BYTES]) {
  char text[DIGEST_TEXT_BYTES];
  strbuf_addf(self, "\"%s\"", digest_text(bytes, text));
}

static void put_real(serve_text *self, const char *number) {
  strbuf_add(self, number, strlen(number));
  if (!strpbrk(number, ".e")) strbuf_add(self, ".0", 2);
}

/* A number that reads back from some digits also does from more, so searching from the longest form down finds the shortest in a few
 * steps. */
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

void serve_text_bool(serve_text *self, bool value) { strbuf_addf(self, value ? "true" : "false"); }

void serve_text_ids(serve_text *self, const int32_t *ids, size_t count) {
  strbuf_add(self, "[", 1);
  for (size_t i = 0; i < count; i++) strbuf_addf(self, i ? ",%d" : "%d", (int)ids[i]);
  strbuf_add(self, "]", 1);
}

static int add_dumped(const char *bytes, size_t count, void *self) {
  strbuf_add(self, bytes, count);
  return ((serve_text *)self)->failed ? -1 : 0;
}

void serve_text_json(serve_text *self, const json_t *value) {
  if (json_dump_callback(value, add_dumped, self, JSON_COMPACT | JSON_ENCODE_ANY) != 0) self->failed = true;
}
