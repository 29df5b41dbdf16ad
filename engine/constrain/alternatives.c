/* alternatives.c - see alternatives.h. */
#include "constrain/alternatives.h"
#include "base/json_text.h"

#define DEPTH_MAX 6u         /* schemas within schemas that are looked at */
#define WORK_MAX (1u << 16) /* pairs of schemas */

typedef struct comparing {
  const json_t *root;
  uint32_t work;
} comparing;

enum { STRING = 1, WHOLE = 2, FRACTION = 4, BOOLEAN = 8, NOTHING = 16, LIST = 32, OBJECT = 64, ALL = 127 };

const json_t *alternatives_resolve(const json_t *root, const char *text) {
  static const char *const LISTS[] = {"$defs", "definitions"};
  if (strcmp(text, "#") == 0) return root;
  for (size_t i = 0; i < ARRAY_LEN(LISTS); i++) {
    const size_t bytes = strlen(LISTS[i]);
    if (strncmp(text, "#/", 2) == 0 && strncmp(text + 2, LISTS[i], bytes) == 0 && text[2 + bytes] == '/')
      return json_object_get(json_object_get(root, LISTS[i]), text + 3 + bytes);
  }
  return NULL;
}

static const json_t *follow(const json_t *root, const json_t *schema) {
  for (uint32_t i = 0; i < DEPTH_MAX && json_is_string(json_object_get(schema, "$ref")); i++)
    schema = alternatives_resolve(root, json_string_value(json_object_get(schema, "$ref")));
  return schema;
}

static unsigned type_of_name(const json_t *name) {
  static const struct { const char *name; unsigned types; } NAMES[] = {
      {"string", STRING}, {"integer", WHOLE}, {"number", WHOLE | FRACTION}, {"boolean", BOOLEAN}, {"null", NOTHING}, {"array", LIST},
      {"object", OBJECT}};
  for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
    if (json_text_is(name, NAMES[i].name)) return NAMES[i].types;
  return ALL;
}

static unsigned type_of_value(const json_t *value) {
  if (json_is_string(value)) return STRING;
  if (json_is_number(value)) return WHOLE | FRACTION; /* 1.0 is an integer of a schema */
  if (json_is_boolean(value)) return BOOLEAN;
  return json_is_null(value) ? NOTHING : json_is_array(value) ? LIST : OBJECT;
}

/* The values of const or enum; NULL: neither. The caller releases the list. */
static json_t *values_of(const json_t *schema) {
  json_t *only = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
  return only ? json_pack("[O]", only) : json_is_array(list) ? json_incref(list) : NULL;
}

static unsigned types_of(const json_t *schema, const json_t *values) {
  const json_t *type = json_object_get(schema, "type"), *each;
  unsigned found = 0;
  size_t i;
  json_array_foreach(values, i, each) found |= type_of_value(each);
  if (values) return found;
  json_array_foreach(type, i, each) found |= type_of_name(each);
  return json_is_array(type) ? found : json_is_string(type) ? type_of_name(type) : ALL;
}

static bool are_equal(const json_t *a, const json_t *b) {
  if (!json_is_number(a) || !json_is_number(b)) return json_equal(a, b) == 1;
  return !(json_number_value(a) < json_number_value(b)) && !(json_number_value(a) > json_number_value(b));
}

static bool have_common(const json_t *a, const json_t *b) {
  size_t i, k;
  const json_t *one, *other;
  json_array_foreach(a, i, one) json_array_foreach(b, k, other) if (are_equal(one, other)) return true;
  return false;
}

static bool is_required(const json_t *schema, const char *name) {
  size_t i;
  const json_t *entry;
  json_array_foreach(json_object_get(schema, "required"), i, entry) if (json_text_is(entry, name)) return true;
  return false;
}

static bool are_apart(comparing *c, const json_t *a, const json_t *b, uint32_t depth);

/* A property that a requires: b does not allow it, or requires it with a schema that excludes a's. */
static bool differ_in_property(comparing *c, const json_t *a, const json_t *b, uint32_t depth) {
  const json_t *theirs = json_object_get(b, "properties"), *schema;
  const char *name;
  json_object_foreach(json_object_get(a, "properties"), name, schema) {
    const json_t *other = json_object_get(theirs, name);
    if (!is_required(a, name)) continue;
    if (!other && json_is_false(json_object_get(b, "additionalProperties"))) return true;
    if (other && is_required(b, name) && are_apart(c, schema, other, depth + 1)) return true;
  }
  return false;
}

/* All of the alternatives of a from b. */
static bool all_are_apart(comparing *c, const json_t *list, const json_t *b, uint32_t depth) {
  size_t i;
  const json_t *each;
  json_array_foreach(list, i, each) if (!are_apart(c, each, b, depth + 1)) return false;
  return json_array_size(list) > 0;
}

static bool are_apart(comparing *c, const json_t *a, const json_t *b, uint32_t depth) {
  static const char *const LISTS[] = {"anyOf", "oneOf"};
  a = follow(c->root, a);
  b = follow(c->root, b);
  if (++c->work > WORK_MAX || depth > DEPTH_MAX || !json_is_object(a) || !json_is_object(b)) return false;
  for (size_t i = 0; i < ARRAY_LEN(LISTS); i++) {
    const json_t *of_a = json_object_get(a, LISTS[i]), *of_b = json_object_get(b, LISTS[i]);
    if (of_a) return all_are_apart(c, of_a, b, depth);
    if (of_b) return all_are_apart(c, of_b, a, depth);
  }
  json_t *values = values_of(a), *others = values_of(b);
  const unsigned common = types_of(a, values) & types_of(b, others);
  bool found = common == 0 || (values && others && !have_common(values, others));
  if (!found && common == OBJECT && !values && !others)
    found = differ_in_property(c, a, b, depth) || differ_in_property(c, b, a, depth);
  json_decref(values);
  json_decref(others);
  return found;
}

bool alternatives_are_apart(const json_t *root, const json_t *a, const json_t *b) {
  return are_apart(&(comparing){.root = root}, a, b, 0);
}
