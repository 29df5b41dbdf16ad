/* answer/scan.c - see answer/scan.h. */
#include "answer/scan.h"
#include <string.h>

answer_scan_match answer_scan_literal(const char *text, size_t bytes, const char *mark) {
  size_t length = strlen(mark), common = bytes < length ? bytes : length;
  if (memcmp(text ? text : "", mark, common) != 0) return ANSWER_SCAN_NO;
  return common == length ? ANSWER_SCAN_YES : ANSWER_SCAN_MORE;
}

bool answer_scan_is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

size_t answer_scan_blank(const char *text, size_t bytes, size_t from) {
  while (from < bytes && answer_scan_is_blank(text[from])) from++;
  return from;
}

size_t answer_scan_find(const char *text, size_t bytes, const char *const *marks, size_t count, size_t *which) {
  for (size_t at = 0; at < bytes; at++) {
    bool may_begin = false;
    for (size_t i = 0; i < count; i++) {
      if (text[at] != marks[i][0]) continue;
      answer_scan_match match = answer_scan_literal(text + at, bytes - at, marks[i]);
      if (match == ANSWER_SCAN_YES) {
        *which = i;
        return at;
      }
      may_begin |= match == ANSWER_SCAN_MORE;
    }
    if (!may_begin) continue;
    *which = count;
    return at;
  }
  *which = count;
  return bytes;
}

/* One byte of an object. */
static void step(answer_scan_json *self, char c) {
  if (self->in_text) {
    self->in_text = self->is_escaped || c != '"';
    self->is_escaped = !self->is_escaped && c == '\\';
  } else if (c == '"') self->in_text = true;
  else if (c == '{' || c == '[') self->depth++;
  else if ((c == '}' || c == ']') && self->depth) self->depth--;
}

bool answer_scan_object(answer_scan_json *self, const char *text, size_t bytes, size_t *at) {
  while (*at < bytes) {
    step(self, text[(*at)++]);
    if (self->depth == 0 && !self->in_text) return true;
  }
  return false;
}

/* The end of the JSON value at `from`: a comma or the brace that closes the object around it. */
static size_t value_end(const char *object, size_t bytes, size_t from) {
  answer_scan_json scan = {0};
  for (; from < bytes; from++) {
    if (!scan.in_text && scan.depth == 0 && (object[from] == ',' || object[from] == '}')) break;
    step(&scan, object[from]);
  }
  return from;
}

bool answer_scan_member(const char *object, size_t bytes, const char *key, size_t *at, size_t *value_bytes) {
  size_t length = strlen(key), from = 1; /* after the brace */
  while ((from = answer_scan_blank(object, bytes, from)) < bytes && object[from] == '"') {
    size_t key_end = from + 1;
    answer_scan_json scan = {.in_text = true};
    while (key_end < bytes && scan.in_text) step(&scan, object[key_end++]);
    bool is_it = key_end - from == length + 2 && memcmp(object + from + 1, key, length) == 0;
    from = answer_scan_blank(object, bytes, key_end);               /* at the colon */
    from = answer_scan_blank(object, bytes, from < bytes ? from + 1 : from);
    size_t end = value_end(object, bytes, from), last = end;
    while (last > from && answer_scan_is_blank(object[last - 1])) last--;
    if (is_it) {
      *at = from;
      *value_bytes = last - from;
      return true;
    }
    from = end < bytes ? end + 1 : end;
  }
  return false;
}
