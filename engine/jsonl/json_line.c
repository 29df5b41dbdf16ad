/* json_line.c - see json_line.h. Built on jansson; this file adds limits, ranges and messages that name line and key. */
#include "jsonl/json_line.h"
#include "base/json_text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status json_line_no_memory(void) { return FAIL(ERR_LIMIT, "prompts: no memory"); }

status json_line_wrong(const json_line_key *at, const char *expected) {
  return FAIL(ERR_FORMAT, "line %u: \"%.64s\": expected %s", at->line, at->name, expected);
}

status json_line_unsupported(const json_line_key *at) {
  return FAIL(ERR_UNSUPPORTED, "line %u: \"%.64s\" is not supported; hint: remove it; ignoring it would change what is asked for",
              at->line, at->name);
}

char *json_line_copy(const char *text, size_t bytes) {
  char *copy = malloc(bytes + 1);
  if (!copy) return NULL;
  memcpy(copy, text, bytes);
  copy[bytes] = 0;
  return copy;
}

status json_line_parse(const char *line, size_t bytes, uint32_t number, json_t **out) {
  if (bytes > JSON_LINE_BYTES_MAX) return FAIL(ERR_LIMIT, "line %u: more than %u bytes", number, JSON_LINE_BYTES_MAX);
  if (bytes >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
    return FAIL(ERR_FORMAT, "line %u: begins with a byte order mark; hint: save the file as UTF-8 without one", number);
  json_error_t error;
  json_t *object = json_text_load(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!object) return FAIL(json_text_fault(&error, ERR_FORMAT), "line %u: not JSON: %s (column %d)", number, error.text, error.column);
  if (!json_is_object(object)) {
    json_decref(object);
    return FAIL(ERR_FORMAT, "line %u: expected a JSON object", number);
  }
  *out = object;
  return OK;
}

status json_line_u32(const json_line_key *at, const json_t *value, uint32_t *out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > UINT32_MAX)
    return json_line_wrong(at, "an integer of 0 to 4294967295");
  *out = (uint32_t)json_integer_value(value);
  return OK;
}

status json_line_number(const json_line_key *at, const json_t *value, double *out) {
  if (!json_is_number(value) || !isfinite(json_number_value(value))) return json_line_wrong(at, "a number");
  *out = json_number_value(value);
  return OK;
}

status json_line_seconds(const json_line_key *at, const json_t *value, double *out) {
  double seconds = 0;
  TRY(json_line_number(at, value, &seconds));
  if (seconds < 0) return json_line_wrong(at, "a number of seconds, 0 or more");
  *out = seconds;
  return OK;
}

status json_line_bool(const json_line_key *at, const json_t *value, bool *out) {
  if (!json_is_boolean(value)) return json_line_wrong(at, "true or false");
  *out = json_is_true(value);
  return OK;
}

status json_line_ids(const json_line_key *at, const json_t *value, int32_t *ids, uint32_t room, uint32_t *count) {
  if (!json_is_array(value) || json_array_size(value) > room) return json_line_wrong(at, "a list of token ids (not too long)");
  for (size_t i = 0; i < json_array_size(value); i++) {
    const json_t *id = json_array_get(value, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
      return json_line_wrong(at, "token ids, integers of 0 or more");
    ids[i] = (int32_t)json_integer_value(id);
  }
  *count = (uint32_t)json_array_size(value);
  return OK;
}

status json_line_new_ids(const json_line_key *at, const json_t *value, int32_t **out, uint32_t *count) {
  size_t room = json_array_size(value);
  if (!json_is_array(value) || room > UINT32_MAX) return json_line_wrong(at, "a list of token ids");
  int32_t *ids = calloc(room ? room : 1, sizeof *ids);
  if (!ids) return json_line_no_memory();
  status result = json_line_ids(at, value, ids, (uint32_t)room, count);
  if (result == OK) *out = ids;
  else free(ids);
  return result;
}

status json_line_new_names(const json_line_key *at, const json_t *value, uint32_t room, const char ***out, uint32_t *count) {
  size_t found = json_array_size(value), bytes = 0;
  if (!json_is_array(value) || found > room) return json_line_wrong(at, "a list of names (not too long)");
  for (size_t i = 0; i < found; i++) {
    const json_t *name = json_array_get(value, i);
    if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name))
      return json_line_wrong(at, "names, texts without NUL");
    bytes += json_string_length(name) + 1;
  }
  const char **names = malloc(found * sizeof *names + bytes + 1);
  if (!names) return json_line_no_memory();
  char *end = (char *)(names + found);
  for (size_t i = 0; i < found; i++) {
    size_t length = json_string_length(json_array_get(value, i)) + 1;
    memcpy(end, json_string_value(json_array_get(value, i)), length);
    names[i] = end;
    end += length;
  }
  *out = names;
  *count = (uint32_t)found;
  return OK;
}

status json_line_text(const json_line_key *at, const json_t *value, char **out, size_t *bytes) {
  if (!json_is_string(value)) return json_line_wrong(at, "text");
  size_t length = json_string_length(value);
  if (!bytes && strlen(json_string_value(value)) != length) return json_line_wrong(at, "text without NUL");
  char *copy = json_line_copy(json_string_value(value), length);
  if (!copy) return json_line_no_memory();
  *out = copy;
  if (bytes) *bytes = length;
  return OK;
}

status json_line_id(const json_line_key *at, const json_t *value, char **out) {
  if (json_is_integer(value)) {
    char number[32];
    int bytes = snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return (*out = json_line_copy(number, (size_t)bytes)) ? OK : json_line_no_memory();
  }
  if (!json_is_string(value) || json_string_length(value) > JSON_LINE_ID_BYTES_MAX)
    return json_line_wrong(at, "an integer or a text of at most 256 bytes");
  return json_line_text(at, value, out, NULL);
}
