/* json_text.h - comparing a JSON text with a word. JSON texts may contain NUL, so strcmp alone would take a longer text for the word.
 * Read next: serve/fields.h, chat/message.h. */
#ifndef VERBATIM_JSON_TEXT_H
#define VERBATIM_JSON_TEXT_H
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

/* True if value is a text that equals the word in its whole length. value: may be null. */
static inline bool json_text_is(const json_t *value, const char *word) {
  return json_is_string(value) && json_string_length(value) == strlen(word) && strcmp(json_string_value(value), word) == 0;
}

#endif
