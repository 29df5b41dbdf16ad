/* text/json_fields.c - see text/json_fields.h. */
#include "text/json_fields.h"
#include <string.h>

static const char *const type_names[] = {"an object", "an array", "a string", "an integer", "a real", "true", "false", "null"};

status json_fields_wrong(const char *where, const char *key, const char *want, const json_t *found) {
  return FAIL(ERR_FORMAT, "%s.%s: expected %s, found %s", where, key, want, found == NULL ? "nothing" : type_names[json_typeof(found)]);
}

/* keys: NULL-terminated; all keys that the object may have. */
status json_fields_check(json_t *object, const char *where, const char *const *keys) {
  const char *key = NULL;
  json_t *value = NULL;
  if (!json_is_object(object)) return FAIL(ERR_FORMAT, "%s: expected an object, found %s", where, type_names[json_typeof(object)]);
  json_object_foreach(object, key, value) {
    size_t i = 0;
    while (keys[i] != NULL && strcmp(keys[i], key) != 0) i++;
    if (keys[i] == NULL) return FAIL(ERR_UNSUPPORTED, "%s: the field \"%.80s\" is not known", where, key);
  }
  return OK;
}

status json_fields_string(const json_t *object, const char *where, const char *key, const char **out) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value)) return json_fields_wrong(where, key, "a string", value);
  *out = json_string_value(value);
  return OK;
}

status json_fields_bool(const json_t *object, const char *where, const char *key, bool *out) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_boolean(value)) return json_fields_wrong(where, key, "true or false", value);
  *out = json_is_true(value);
  return OK;
}

status json_fields_array(const json_t *object, const char *where, const char *key, json_t **out) {
  json_t *value = json_object_get(object, key);
  if (!json_is_array(value)) return json_fields_wrong(where, key, "an array", value);
  *out = value;
  return OK;
}

/* Absent means null: the tokenizers library reads both alike. */
status json_fields_null(const json_t *object, const char *where, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (value == NULL || json_is_null(value)) return OK;
  return FAIL(ERR_UNSUPPORTED, "%s.%s: expected null, found %s", where, key, type_names[json_typeof(value)]);
}

/* As want_null; "" and false also mean null for these fields. */
status json_fields_off(const json_t *object, const char *where, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (json_is_false(value) || (json_is_string(value) && json_string_length(value) == 0)) return OK;
  return json_fields_null(object, where, key);
}

status json_fields_type(const json_t *object, const char *where, const char *type) {
  const char *found = NULL;
  TRY(json_fields_string(object, where, "type", &found));
  if (strcmp(found, type) != 0) return FAIL(ERR_UNSUPPORTED, "%s.type: expected \"%s\", found \"%.80s\"", where, type, found);
  return OK;
}

bool json_fields_is(const json_t *object, const char *type) {
  const char *found = json_string_value(json_object_get(object, "type"));
  return found != NULL && strcmp(found, type) == 0;
}
