/* answer/schema.c - see answer/schema.h. One function for each kind of value; jansson has no schemas, and the libraries that have are in
 * other languages. */
#include "answer/schema.h"
#include "base/json_text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 64u
#define WORK_MAX 1000000u /* schemas applied to values, values of enum, names required: alternatives within alternatives multiply */
#define PATH_BYTES 128u

typedef struct check {
  const json_t *root;
  char *why;
  size_t why_bytes;
  uint32_t depth;
  uint64_t work;
} check;

static bool apply(check *self, const json_t *schema, const json_t *value, const char *path);

static bool refuse(check *self, const char *path, const char *expected) {
  snprintf(self->why, self->why_bytes, "%s: expected %s", path, expected);
  return false;
}

/* === Types ================================================================================================================== */

static bool is_whole(const json_t *value) {
  double number = json_real_value(value);
  return json_is_integer(value) || (json_is_real(value) && number == trunc(number));
}

static bool is_type(const json_t *value, const char *type) {
  return (json_is_string(value) && strcmp(type, "string") == 0) || (json_is_number(value) && strcmp(type, "number") == 0) ||
         (is_whole(value) && strcmp(type, "integer") == 0) || (json_is_boolean(value) && strcmp(type, "boolean") == 0) ||
         (json_is_null(value) && strcmp(type, "null") == 0) || (json_is_array(value) && strcmp(type, "array") == 0) ||
         (json_is_object(value) && strcmp(type, "object") == 0);
}

static bool check_type(check *self, const json_t *type, const json_t *value, const char *path) {
  char expected[PATH_BYTES];
  bool is_good = json_is_string(type) && is_type(value, json_string_value(type));
  for (size_t i = 0; i < json_array_size(type) && !is_good; i++) {
    const json_t *one = json_array_get(type, i);
    is_good = json_is_string(one) && is_type(value, json_string_value(one));
  }
  if (is_good || !(json_is_string(type) || json_is_array(type))) return true; /* another value says nothing */
  snprintf(expected, sizeof expected, "type %.100s", json_is_string(type) ? json_string_value(type) : "of the list");
  return refuse(self, path, expected);
}

static bool is_equal(const json_t *a, const json_t *b) {
  return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b) : json_equal(a, b) == 1;
}

static bool check_values(check *self, const json_t *schema, const json_t *value, const char *path) {
  const json_t *only = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
  bool is_in = !json_is_array(list);
  if (only && !is_equal(only, value)) return refuse(self, path, "the value of const");
  for (size_t i = 0; i < json_array_size(list) && !is_in; i++) is_in = is_equal(json_array_get(list, i), value);
  return is_in || refuse(self, path, "a value of enum");
}

/* === Bounds ================================================================================================================= */

static bool bound(const json_t *schema, const char *key, double *out) {
  const json_t *value = json_object_get(schema, key);
  if (json_is_number(value)) *out = json_number_value(value);
  return json_is_number(value);
}

/* The characters of a text, the items of a list. */
static bool check_size(check *self, const json_t *schema, double size, const char *least, const char *most, const char *path) {
  double limit;
  if (bound(schema, least, &limit) && size < limit) return refuse(self, path, least);
  if (bound(schema, most, &limit) && size > limit) return refuse(self, path, most);
  return true;
}

static bool check_number(check *self, const json_t *schema, const json_t *value, const char *path) {
  double number = json_number_value(value), limit;
  if (bound(schema, "minimum", &limit) && number < limit) return refuse(self, path, "minimum");
  if (bound(schema, "maximum", &limit) && number > limit) return refuse(self, path, "maximum");
  if (bound(schema, "exclusiveMinimum", &limit) && number <= limit) return refuse(self, path, "more than exclusiveMinimum");
  if (bound(schema, "exclusiveMaximum", &limit) && number >= limit) return refuse(self, path, "less than exclusiveMaximum");
  return true;
}

static size_t characters(const json_t *text) {
  size_t count = 0;
  for (size_t i = 0; i < json_string_length(text); i++) count += ((uint8_t)json_string_value(text)[i] & 0xC0) != 0x80;
  return count;
}

/* === Lists and objects ====================================================================================================== */

static bool check_list(check *self, const json_t *schema, const json_t *value, const char *path) {
  const json_t *items = json_object_get(schema, "items");
  char inner[PATH_BYTES];
  if (!check_size(self, schema, (double)json_array_size(value), "minItems", "maxItems", path)) return false;
  for (size_t i = 0; items && i < json_array_size(value); i++) {
    snprintf(inner, sizeof inner, "%.100s[%zu]", path, i);
    if (!apply(self, items, json_array_get(value, i), inner)) return false;
  }
  return true;
}

static bool check_object(check *self, const json_t *schema, const json_t *value, const char *path) {
  const json_t *properties = json_object_get(schema, "properties"), *others = json_object_get(schema, "additionalProperties");
  const json_t *required = json_object_get(schema, "required"), *member;
  const char *key;
  char inner[PATH_BYTES];
  for (size_t i = 0; i < json_array_size(required); i++) {
    const char *name = json_string_value(json_array_get(required, i));
    snprintf(inner, sizeof inner, "%.50s.%.60s", path, name ? name : "");
    if (name && !json_object_get(value, name)) return refuse(self, inner, "a value, as it is required");
  }
  json_object_foreach((json_t *)(uintptr_t)value, key, member) {
    const json_t *own = json_object_get(properties, key);
    snprintf(inner, sizeof inner, "%.50s.%.60s", path, key);
    if (!own && json_is_false(others)) return refuse(self, inner, "no such property");
    if ((own || others) && !apply(self, own ? own : others, member, inner)) return false;
  }
  return true;
}

/* === Alternatives and references ============================================================================================ */

static bool check_alternatives(check *self, const json_t *schema, const json_t *value, const char *path) {
  const json_t *all = json_object_get(schema, "allOf"), *any = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "oneOf");
  size_t fits_any = 0, fits_one = 0;
  for (size_t i = 0; i < json_array_size(all); i++)
    if (!apply(self, json_array_get(all, i), value, path)) return false;
  for (size_t i = 0; i < json_array_size(any) && !fits_any; i++) fits_any += apply(self, json_array_get(any, i), value, path);
  for (size_t i = 0; i < json_array_size(one); i++) fits_one += apply(self, json_array_get(one, i), value, path);
  if (json_array_size(any) && !fits_any) return refuse(self, path, "what anyOf allows");
  if (json_array_size(one) && fits_one != 1) return refuse(self, path, "what exactly one of oneOf allows");
  return true;
}

/* The place of "#/a/b" in the schema; NULL: there is none. */
static const json_t *resolve(const json_t *root, const char *reference) {
  const json_t *at = root;
  char name[PATH_BYTES];
  if (*reference != '#') return NULL;
  for (reference++; *reference == '/' && at;) {
    size_t bytes = strcspn(++reference, "/");
    if (bytes >= sizeof name) return NULL;
    memcpy(name, reference, bytes);
    name[bytes] = 0;
    at = json_object_get(at, name);
    reference += bytes;
  }
  return *reference ? NULL : at;
}

static bool check_all(check *self, const json_t *schema, const json_t *value, const char *path) {
  const json_t *reference = json_object_get(schema, "$ref"), *type = json_object_get(schema, "type");
  const json_t *found = json_is_string(reference) ? resolve(self->root, json_string_value(reference)) : NULL;
  if (reference && !found) return refuse(self, path, "a $ref that leads to a place in the schema");
  if (found && !apply(self, found, value, path)) return false;
  if (type && !check_type(self, type, value, path)) return false;
  if (!check_values(self, schema, value, path) || !check_alternatives(self, schema, value, path)) return false;
  if (json_is_string(value)) return check_size(self, schema, (double)characters(value), "minLength", "maxLength", path);
  if (json_is_number(value)) return check_number(self, schema, value, path);
  if (json_is_array(value)) return check_list(self, schema, value, path);
  return !json_is_object(value) || check_object(self, schema, value, path);
}

static bool apply(check *self, const json_t *schema, const json_t *value, const char *path) {
  if (json_is_false(schema)) return refuse(self, path, "nothing: its schema is false");
  if (!json_is_object(schema)) return true;
  self->work += 1 + json_array_size(json_object_get(schema, "enum")) + json_array_size(json_object_get(schema, "required"));
  if (self->depth == DEPTH_MAX || self->work > WORK_MAX) return refuse(self, path, "a schema of less depth and fewer alternatives");
  self->depth++;
  bool is_good = check_all(self, schema, value, path);
  self->depth--;
  return is_good;
}

bool answer_schema_check(const json_t *schema, const json_t *value, const char *path, char *why, size_t why_bytes) {
  check self = {.root = schema, .why = why, .why_bytes = why_bytes};
  return apply(&self, schema, value, path);
}

bool answer_schema_allows(const json_t *schema, const char *key, size_t key_bytes, const json_t *value) {
  char why[PATH_BYTES];
  check self = {.root = schema, .why = why, .why_bytes = sizeof why};
  return apply(&self, json_object_getn(json_object_get(schema, "properties"), key, key_bytes), value, "");
}
