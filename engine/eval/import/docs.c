/* eval/import/docs.c - see eval/import/docs.h. */
#include "eval/import/docs.h"
#include <string.h>
#include "base/json_text.h"
#include "eval/items.h"
#include "jsonl/json_line.h"

#define FIELDS_MAX 1024u

static status no_memory(void) { return FAIL(ERR_LIMIT, "data: no memory"); }

/* === Lines or a list ======================================================================================================== */

static status read_lines(const char *text, size_t bytes, json_t *list) {
  uint32_t number = 0;
  for (size_t at = 0; at < bytes;) {
    const char *line = text + at, *end = memchr(line, '\n', bytes - at);
    size_t length = end ? (size_t)(end - line) : bytes - at;
    json_t *object = NULL;
    at += length + 1;
    number++;
    if (strspn(line, " \t\r") >= length) continue;
    if (json_array_size(list) == EVAL_ITEMS_MAX) return FAIL(ERR_LIMIT, "more than %u records", EVAL_ITEMS_MAX);
    TRY(json_line_parse(line, length, number, &object));
    if (json_array_append_new(list, object) != 0) return no_memory();
  }
  return OK;
}

static status read_list(const char *text, size_t bytes, json_t *list) {
  json_error_t error;
  json_t *found = json_text_load(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  status result = OK;
  if (!found) return FAIL(json_text_fault(&error, ERR_FORMAT), "line %d: %.200s", error.line, error.text);
  if (json_array_size(found) > EVAL_ITEMS_MAX) result = FAIL(ERR_LIMIT, "more than %u records", EVAL_ITEMS_MAX);
  else if (json_array_extend(list, found) != 0) result = no_memory();
  json_decref(found);
  return result;
}

/* === Fields ================================================================================================================= */

/* "2020-01-31", perhaps with a time after it. */
static bool is_date(const char *text) {
  static const char form[] = "0000-00-00";
  for (size_t i = 0; form[i]; i++)
    if (form[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != form[i]) return false;
  return text[10] == 0 || text[10] == ' ' || text[10] == 'T';
}

static status complete_field(eval_import_accept *accept, json_t *list, const char *key) {
  bool has_whole = false, has_fraction = false, all_dates = true;
  size_t texts = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *value = json_object_get(json_array_get(list, i), key);
    has_whole |= json_is_integer(value);
    has_fraction |= json_is_real(value);
    if (json_is_string(value)) texts++;
    all_dates &= !value || json_is_null(value) || (json_is_string(value) && is_date(json_string_value(value)));
  }
  if (all_dates && texts > 0)
    TRY(eval_import_cannot(accept, "dates", "the field \"%.64s\" holds dates, which the harness's loader turns into times of another "
                           "spelling; hint: rewrite them as other texts", key));
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *record = json_array_get(list, i), *value = json_object_get(record, key);
    if (!value && json_object_set_new(record, key, json_null()) != 0) return no_memory();
    if (json_is_integer(value) && has_whole && has_fraction &&
        json_object_set_new(record, key, json_real((double)json_integer_value(value))) != 0) return no_memory();
  }
  return OK;
}

status eval_import_docs_complete(eval_import_accept *accept, json_t *list) {
  json_t *fields = json_object(), *value;
  const char *key;
  status result = fields ? OK : no_memory();
  for (size_t i = 0; i < json_array_size(list) && result == OK; i++) {
    const json_t *record = json_array_get(list, i);
    if (!json_is_object(record)) result = FAIL(ERR_FORMAT, "record %zu: expected an object", i + 1);
    json_object_foreach((json_t *)(uintptr_t)record, key, value)
      if (json_object_set_new(fields, key, json_null()) != 0) result = no_memory();
    if (json_object_size(fields) > FIELDS_MAX) result = FAIL(ERR_LIMIT, "more than %u fields", FIELDS_MAX);
  }
  json_object_foreach(fields, key, value)
    if (result == OK) result = complete_field(accept, list, key);
  json_decref(fields);
  return result;
}

status eval_import_docs_parse(eval_import_accept *accept, const char *text, size_t bytes, json_t **out) {
  json_t *list = json_array();
  size_t start = json_text_mark(text, bytes), first = start;
  while (first < bytes && strchr(" \t\r\n", text[first]) && text[first]) first++;
  status result = !list ? no_memory()
                  : first < bytes && text[first] == '[' ? read_list(text + start, bytes - start, list)
                                                        : read_lines(text + start, bytes - start, list);
  if (result == OK && json_array_size(list) == 0) result = FAIL(ERR_FORMAT,
                                                                "expected objects of JSON, one a line or in a list; found none");
  if (result == OK) result = eval_import_docs_complete(accept, list);
  if (result == OK) *out = list;
  else json_decref(list);
  return result;
}
