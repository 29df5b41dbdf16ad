/* json_text.h - reading a JSON text, and comparing a text in it with a word. JSON texts may contain NUL, so strcmp alone would take a
 * longer text for the word. A file of a model or a deployment may begin with a byte order mark, which RFC 8259 lets a reader ignore; a
 * request may not, by the same RFC. Read next: serve/fields.h, chat/message.h. */
#ifndef VERBATIM_JSON_TEXT_H
#define VERBATIM_JSON_TEXT_H
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

/* The bytes of the byte order mark that the text begins with: 3 or 0. */
static inline size_t json_text_mark(const char *text, size_t bytes) {
  return bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

/* As json_loadb, after a byte order mark: for files of a model or a deployment. */
static inline json_t *json_text_load_file(const char *text, size_t bytes, size_t flags, json_error_t *error) {
  const size_t mark = json_text_mark(text, bytes);
  return json_loadb(text + mark, bytes - mark, flags, error);
}

/* True if value is a text that equals the word in its whole length. value: may be null. */
static inline bool json_text_is(const json_t *value, const char *word) {
  return json_is_string(value) && json_string_length(value) == strlen(word) && strcmp(json_string_value(value), word) == 0;
}

#endif
