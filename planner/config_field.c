/* config_field.c - see config_field.h. Every message names the file, the field, what was expected and what was found. */
#include "config_field.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool config_field_is_among(const char *name, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

void config_field_note(char *list, const char *format, ...) {
  size_t used = strlen(list);
  va_list args;
  if (used > 0) used += (size_t)snprintf(list + used, CONFIG_FIELD_NOTE_BYTES - used, ", ");
  if (used >= CONFIG_FIELD_NOTE_BYTES) return;
  va_start(args, format);
  vsnprintf(list + used, CONFIG_FIELD_NOTE_BYTES - used, format, args);
  va_end(args);
}

const json_t *config_field_find(const config_reader *r, const char *name) {
  const json_t *value = json_object_get(r->object, name);
  return value && json_is_null(value) ? NULL : value;
}

bool config_field_exists(const config_reader *r, const char *name) { return json_object_get(r->object, name) != NULL; }

const char *config_field_kind(const json_t *value) {
  static const char *const NAMES[] = {"an object", "an array", "a string", "an integer", "a real number", "true", "false", "null"};
  return NAMES[json_typeof(value)];
}

status config_field_missing(const config_reader *r, const char *name) {
  return FAIL(ERR_FORMAT, "config.json: field \"%s%s\" is missing", r->prefix, name);
}

static status wrong_type(const config_reader *r, const char *name, const char *expected, const json_t *value) {
  return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected %s, found %s", r->prefix, name, expected, config_field_kind(value));
}

status config_field_count(const config_reader *r, const char *name, uint32_t low, uint32_t high, uint32_t multiple, int64_t fallback,
                          uint32_t *out) {
  const json_t *value = config_field_find(r, name);
  if (!value && fallback < 0) return config_field_missing(r, name);
  if (!value) {
    config_field_note(r->notes->assumed, "%s = %lld", name, (long long)fallback);
    *out = (uint32_t)fallback;
    return OK;
  }
  if (!json_is_integer(value)) return wrong_type(r, name, "an integer", value);
  json_int_t number = json_integer_value(value);
  if (number < (low > 0))
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected %u or more, found %lld", r->prefix, name, low > 0, (long long)number);
  if (low == high && number != (json_int_t)low)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s%s\" is %lld; only %u is supported", r->prefix, name, (long long)number, low);
  if (number < (json_int_t)low || number > (json_int_t)high)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s%s\" is %lld; %u to %u are supported", r->prefix, name, (long long)number, low, high);
  if (number % multiple != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s%s\" is %lld, not a multiple of %u, which the kernels need", r->prefix, name,
                (long long)number, multiple);
  *out = (uint32_t)number;
  return OK;
}

static status check_real(const config_reader *r, const char *name, const json_t *value, double low, double high) {
  if (!json_is_number(value)) return wrong_type(r, name, "a number", value);
  double number = json_number_value(value);
  if (!(number >= low && number <= high))
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected %g to %g, found %g", r->prefix, name, low, high, number);
  return OK;
}

status config_field_real(const config_reader *r, const char *name, double low, double high, double fallback, double *out) {
  const json_t *value = config_field_find(r, name);
  if (!value && isnan(fallback)) return config_field_missing(r, name);
  if (value) TRY(check_real(r, name, value, low, high));
  if (!value && fallback != 0) config_field_note(r->notes->assumed, "%s%s = %g", r->prefix, name, fallback);
  *out = value ? json_number_value(value) : fallback;
  return OK;
}

status config_field_reals(const config_reader *r, const char *name, double low, double high, uint32_t count, double *out) {
  const json_t *list = config_field_find(r, name);
  if (!list) return config_field_missing(r, name);
  if (!json_is_array(list) || json_array_size(list) != count)
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected a list of %u numbers", r->prefix, name, count);
  for (uint32_t i = 0; i < count; i++) TRY(check_real(r, name, json_array_get(list, i), low, high));
  for (uint32_t i = 0; i < count; i++) out[i] = json_number_value(json_array_get(list, i));
  return OK;
}

status config_field_flag(const config_reader *r, const char *name, bool fallback, bool *out) {
  const json_t *value = json_object_get(r->object, name);
  if (value && !json_is_boolean(value) && !json_is_null(value)) return wrong_type(r, name, "true or false", value);
  *out = value ? json_is_true(value) : fallback;
  return OK;
}

status config_field_text(const config_reader *r, const char *name, const char *fallback, const char **out) {
  const json_t *value = config_field_find(r, name);
  if (!value && !fallback) return config_field_missing(r, name);
  if (value && !json_is_string(value)) return wrong_type(r, name, "a string", value);
  *out = value ? json_string_value(value) : fallback;
  return OK;
}

status config_field_require_flag(const config_reader *r, const char *name, bool wanted) {
  bool found = wanted;
  TRY(config_field_flag(r, name, wanted, &found));
  if (found != wanted)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s%s\" is %s; only %s is supported", r->prefix, name, found ? "true" : "false",
                wanted ? "true" : "false");
  return OK;
}

status config_field_require_text(const config_reader *r, const char *name, const char *wanted) {
  const char *found = wanted;
  TRY(config_field_text(r, name, wanted, &found));
  if (strcmp(found, wanted) != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s%s\" is \"%.64s\"; only \"%s\" is supported", r->prefix, name, found, wanted);
  return OK;
}

status config_field_require_absent(const config_reader *r, const char *name) {
  if (!config_field_find(r, name)) return OK;
  return FAIL(ERR_UNSUPPORTED, "config.json: \"%s%s\" is set, which is not supported", r->prefix, name);
}
