/* chat/text.c - see chat/text.h. The growing text is base/strbuf's; this file adds the limit and Python's forms of values. */
#include "chat/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "text/tokenizer.h"

/* === Growing ================================================================================================= */

static void refuse(chat_text *self, status failure) {
  if (self->failure == OK) self->failure = failure;
}

void chat_text_put(chat_text *self, chat_span span) {
  if (self->failure != OK) return;
  if (span.count > TOKENIZER_TEXT_BYTES_MAX - self->buffer.count) {
    refuse(self, FAIL(ERR_LIMIT, "the conversation makes a prompt of more than %u bytes", TOKENIZER_TEXT_BYTES_MAX));
    return;
  }
  strbuf_add(&self->buffer, span.bytes, span.count);
  if (self->buffer.failed) refuse(self, FAIL(ERR_LIMIT, "the conversation: no memory"));
}

void chat_text_say(chat_text *self, const char *literal) { chat_text_put(self, (chat_span){literal, strlen(literal)}); }

status chat_text_take(chat_text *self, char **bytes, size_t *count) {
  status result = self->failure;
  if (result == OK) result = strbuf_take(&self->buffer, bytes, count);
  chat_text_close(self);
  return result;
}

void chat_text_close(chat_text *self) {
  strbuf_close(&self->buffer);
  *self = (chat_text){0};
}

/* === JSON as Python writes it ================================================================================ */

/* Escapes the string in a buffer of its own: chat_text_put then applies the limit on the prompt. */
static void put_string(chat_text *self, const char *bytes, size_t count) {
  strbuf escaped = {0};
  strbuf_json(&escaped, bytes, count, STRBUF_JSON_PYTHON);
  if (escaped.failed) refuse(self, FAIL(ERR_LIMIT, "the conversation: no memory"));
  chat_text_put(self, (chat_span){escaped.bytes, escaped.count});
  strbuf_close(&escaped);
}

/* repr(float): the shortest digits that read back as the same number; an exponent below 1e-4 and from 1e16 on. */
static void put_real(chat_text *self, double value) {
  char shortest[40], digits[24];
  int precision = 0;
  do snprintf(shortest, sizeof shortest, "%.*e", precision, value);
  while (strtod(shortest, NULL) != value && ++precision < 17);
  const char *from = shortest + (shortest[0] == '-');
  char *mark = strchr(from, 'e');
  ASSERT(mark != NULL);
  int exponent = (int)strtol(mark + 1, NULL, 10), count = 0;
  for (const char *c = from; c < mark; c++)
    if (*c >= '0' && *c <= '9') digits[count++] = *c; /* the decimal point, which depends on the locale, is left out */
  digits[count] = 0;
  if (from != shortest) chat_text_say(self, "-");
  char text[64];
  if (exponent < -4 || exponent >= 16)
    snprintf(text, sizeof text, "%c%s%se%c%02d", digits[0], count > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
  else if (exponent < 0) snprintf(text, sizeof text, "0.%.*s%s", -exponent - 1, "000", digits);
  else if (exponent >= count - 1) snprintf(text, sizeof text, "%s%.*s.0", digits, exponent - count + 1, "0000000000000000");
  else snprintf(text, sizeof text, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
  chat_text_say(self, text);
}

static void put_json(chat_text *self, const json_t *value, bool is_tight, int depth);

static void put_array(chat_text *self, const json_t *value, bool is_tight, int depth) {
  chat_text_say(self, "[");
  for (size_t i = 0; i < json_array_size(value) && self->failure == OK; i++) {
    if (i) chat_text_say(self, is_tight ? "," : ", ");
    put_json(self, json_array_get(value, i), is_tight, depth + 1);
  }
  chat_text_say(self, "]");
}

static void put_object(chat_text *self, const json_t *value, bool is_tight, int depth) {
  chat_text_say(self, "{");
  json_t *object = (json_t *)value; /* jansson's iterators do not change it but take a non-const pointer */
  for (void *at = json_object_iter(object); at && self->failure == OK; at = json_object_iter_next(object, at)) {
    if (at != json_object_iter(object)) chat_text_say(self, is_tight ? "," : ", ");
    const char *key = json_object_iter_key(at);
    put_string(self, key, strlen(key));
    chat_text_say(self, is_tight ? ":" : ": ");
    put_json(self, json_object_iter_value(at), is_tight, depth + 1);
  }
  chat_text_say(self, "}");
}

static void put_json(chat_text *self, const json_t *value, bool is_tight, int depth) {
  char number[32];
  if (depth > CHAT_TEXT_DEPTH_MAX) {
    refuse(self, FAIL(ERR_LIMIT, "the conversation: a value nested more than %d deep", CHAT_TEXT_DEPTH_MAX));
    return;
  }
  switch (json_typeof(value)) {
    case JSON_OBJECT: put_object(self, value, is_tight, depth); break;
    case JSON_ARRAY: put_array(self, value, is_tight, depth); break;
    case JSON_STRING: put_string(self, json_string_value(value), json_string_length(value)); break;
    case JSON_REAL: put_real(self, json_real_value(value)); break;
    case JSON_TRUE: chat_text_say(self, "true"); break;
    case JSON_FALSE: chat_text_say(self, "false"); break;
    case JSON_NULL: chat_text_say(self, "null"); break;
    case JSON_INTEGER:
      snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
      chat_text_say(self, number);
  }
}

void chat_text_json(chat_text *self, const json_t *value, bool is_tight) { put_json(self, value, is_tight, 1); }

/* === Pieces of text ========================================================================================== */

/* The size of the white-space character at p, by str.isspace; 0: not white space. No such character has more than three bytes. */
static size_t space_bytes(const char *p, size_t left) {
  const unsigned char *c = (const unsigned char *)p;
  if (left >= 1 && ((c[0] >= 0x09 && c[0] <= 0x0d) || (c[0] >= 0x1c && c[0] <= 0x20))) return 1;
  if (left >= 2 && c[0] == 0xc2 && (c[1] == 0x85 || c[1] == 0xa0)) return 2;
  if (left < 3) return 0;
  uint32_t code = (uint32_t)c[0] << 16 | (uint32_t)c[1] << 8 | c[2];
  bool is_space = code == 0xe19a80 || (code >= 0xe28080 && code <= 0xe2808a) || code == 0xe280a8 || code == 0xe280a9 ||
                  code == 0xe280af || code == 0xe2819f || code == 0xe38080; /* U+1680, 2000-200A, 2028, 2029, 202F, 205F, 3000 */
  return is_space ? 3 : 0;
}

chat_span chat_text_strip_end(chat_span span) {
  for (size_t tail = 1; tail <= 3; tail++)
    while (span.count >= tail && space_bytes(span.bytes + span.count - tail, tail) == tail) {
      span.count -= tail;
      tail = 1;
    }
  return span;
}

chat_span chat_text_strip(chat_span span) {
  span = chat_text_strip_end(span);
  for (size_t found; (found = space_bytes(span.bytes, span.count)) > 0; span.bytes += found) span.count -= found;
  return span;
}

chat_span chat_text_trim(chat_span span, bool start, bool end) {
  for (; start && span.count && span.bytes[0] == '\n'; span.bytes++) span.count--;
  while (end && span.count && span.bytes[span.count - 1] == '\n') span.count--;
  return span;
}

ptrdiff_t chat_text_find(chat_span span, const char *piece) {
  size_t length = strlen(piece);
  for (size_t at = 0; at + length <= span.count; at++) {
    const char *next = memchr(span.bytes + at, piece[0], span.count - length - at + 1);
    if (!next) return -1;
    at = (size_t)(next - span.bytes);
    if (memcmp(next, piece, length) == 0) return (ptrdiff_t)at;
  }
  return -1;
}

ptrdiff_t chat_text_find_last(chat_span span, const char *piece) {
  size_t length = strlen(piece);
  for (size_t at = span.count >= length ? span.count - length + 1 : 0; at-- > 0;)
    if (memcmp(span.bytes + at, piece, length) == 0) return (ptrdiff_t)at;
  return -1;
}

chat_span chat_text_after_last(chat_span span, const char *piece) {
  ptrdiff_t at = chat_text_find_last(span, piece);
  if (at < 0) return span;
  size_t skipped = (size_t)at + strlen(piece);
  return (chat_span){span.bytes + skipped, span.count - skipped};
}

chat_span chat_text_before_first(chat_span span, const char *piece) {
  ptrdiff_t at = chat_text_find(span, piece);
  if (at >= 0) span.count = (size_t)at;
  return span;
}
