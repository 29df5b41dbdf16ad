/* json_text.h - JSON as text: parsing it, comparing a JSON text with a word, and objects without their null members.
 *
 * jansson reports that memory ran out as wrong syntax, or as nothing. JSON texts may contain NUL, so strcmp alone would take a longer text
 * for the word. A file of a model or a deployment may begin with a byte order mark, which RFC 8259 lets a reader ignore; a request may not,
 * by the same RFC. Read next: serve/fields.h, chat/message.h. */
#ifndef VERBATIM_JSON_TEXT_H
#define VERBATIM_JSON_TEXT_H
#include "base/base.h"
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* json_loadb, but with json_error_out_of_memory and a text that says so when memory ran out; malloc leaves ENOMEM. */
static inline json_t *json_text_load(const char *text, size_t bytes, size_t flags, json_error_t *error) {
  errno = 0;
  json_t *root = json_loadb(text, bytes, flags, error);
  if (root || errno != ENOMEM) return root;
  snprintf(error->text, sizeof error->text, "out of memory");
  error->text[sizeof error->text - 1] = json_error_out_of_memory; /* where json_error_code looks */
  return NULL;
}

/* The bytes of the byte order mark that the text begins with: 3 or 0. */
static inline size_t json_text_mark(const char *text, size_t bytes) {
  return bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

/* The same after a byte order mark: for files of a model or a deployment. */
static inline json_t *json_text_load_file(const char *text, size_t bytes, size_t flags, json_error_t *error) {
  const size_t mark = json_text_mark(text, bytes);
  return json_text_load(text + mark, bytes - mark, flags, error);
}

/* The status of a text that json_text_load has refused: ERR_LIMIT if memory ran out, else that of wrong syntax. */
static inline status json_text_fault(const json_error_t *error, status wrong) {
  return json_error_code(error) == json_error_out_of_memory ? ERR_LIMIT : wrong;
}

/* A copy of the object, one level deep, without the members that are null. Null: memory ran out. The caller releases it. */
static inline json_t *json_text_given(const json_t *object) {
  json_t *copy = json_copy((json_t *)(uintptr_t)object), *value;
  const char *name;
  void *next;
  json_object_foreach_safe(copy, next, name, value) {
    if (json_is_null(value)) json_object_del(copy, name);
  }
  return copy;
}

/* A new list: what the first has, then what the second has and the first lacks. first: NULL is an empty list. Null: memory ran out. */
static inline json_t *json_text_union(const json_t *first, const json_t *second) {
  json_t *joined = first ? json_copy((json_t *)(uintptr_t)first) : json_array(), *value;
  size_t i, k;
  json_array_foreach((json_t *)(uintptr_t)second, i, value) {
    for (k = 0; k < json_array_size(joined) && !json_equal(json_array_get(joined, k), value);) k++;
    if (k < json_array_size(joined) || json_array_append(joined, value) == 0) continue;
    json_decref(joined);
    return NULL;
  }
  return joined;
}

/* True if value is a text that equals the word in its whole length. value: may be null. */
static inline bool json_text_is(const json_t *value, const char *word) {
  return json_is_string(value) && json_string_length(value) == strlen(word) && strcmp(json_string_value(value), word) == 0;
}

#endif
