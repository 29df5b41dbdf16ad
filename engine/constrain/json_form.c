/* json_form.c - see json_form.h. */
#include "constrain/json_form.h"
#include "base/json_text.h"
#include <stdlib.h>

static const struct {
  const char *name, *member; /* member: of structured_outputs, which the older name stands for */
} OLDER[] = {{"guided_choice", "choice"}, {"guided_regex", "regex"}, {"guided_json", "json"}};

bool json_form_has(const char *name) {
  for (size_t i = 0; i < ARRAY_LEN(OLDER); i++)
    if (strcmp(name, OLDER[i].name) == 0) return true;
  return strcmp(name, "structured_outputs") == 0 || strcmp(name, "response_format") == 0;
}

static status wrong(const char *expected) { return FAIL(ERR_USAGE, "expected %s", expected); }

/* The JSON text of a value; a text is taken as it is, for a schema may be given as one. */
static status compile_json(enum verbatim_constraint_kind kind, const json_t *value, verbatim_constraint **out) {
  if (json_is_string(value)) return constraint_open(out, kind, json_string_value(value), json_string_length(value));
  char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
  if (!text) return FAIL(ERR_LIMIT, "constraint: no memory, or text that JSON cannot hold");
  const status result = constraint_open(out, kind, text, strlen(text));
  free(text);
  return result;
}

static status read_member(const char *member, const json_t *value, verbatim_constraint **out) {
  if (strcmp(member, "choice") == 0) return json_is_array(value) ? compile_json(VERBATIM_CHOICE, value, out) : wrong("a list of texts");
  if (strcmp(member, "json") == 0)
    return json_is_object(value) || json_is_string(value) ? compile_json(VERBATIM_JSON_SCHEMA, value, out) : wrong("a JSON schema");
  if (strcmp(member, "json_object") == 0)
    return json_is_true(value) ? constraint_open(out, VERBATIM_JSON_OBJECT, "", 0) : wrong("true, or leave it out");
  if (strcmp(member, "regex") != 0)
    return FAIL(ERR_UNSUPPORTED, "\"%.40s\" is not offered; choice, regex, json and json_object are", member);
  if (!json_is_string(value)) return wrong("a regular expression as a text");
  return constraint_open(out, VERBATIM_REGEX, json_string_value(value), json_string_length(value));
}

static status read_structured(const json_t *value, verbatim_constraint **out) {
  const char *member = NULL, *key;
  json_t *given, *only = NULL;
  if (!json_is_object(value)) return wrong("an object with choice, regex, json or json_object");
  json_object_foreach((json_t *)(uintptr_t)value, key, given) {
    if (json_is_null(given)) continue;
    if (only) return wrong("one of choice, regex, json and json_object");
    member = key;
    only = given;
  }
  if (!only) return wrong("one of choice, regex, json and json_object");
  return read_member(member, only, out);
}

/* strict may be true or false: the answer is valid either way. name and description are for people. */
static status read_schema(const json_t *value, verbatim_constraint **out) {
  const char *key;
  json_t *member;
  if (!json_is_object(value)) return wrong("json_schema to be an object");
  json_object_foreach((json_t *)(uintptr_t)value, key, member) {
    if (strcmp(key, "schema") == 0) continue;
    if (strcmp(key, "strict") == 0 && (json_is_boolean(member) || json_is_null(member))) continue;
    if (strcmp(key, "description") == 0 && (json_is_string(member) || json_is_null(member))) continue;
    if (strcmp(key, "name") == 0 && json_is_string(member)) continue;
    return FAIL(ERR_USAGE, "json_schema.%.40s: expected name, description, schema and strict", key);
  }
  if (!json_is_string(json_object_get(value, "name"))) return wrong("json_schema.name to be a text");
  const json_t *schema = json_object_get(value, "schema");
  return json_is_object(schema) ? compile_json(VERBATIM_JSON_SCHEMA, schema, out) : wrong("json_schema.schema to be an object");
}

static status read_given(const json_t *value, verbatim_constraint **out) {
  const json_t *type = json_object_get(value, "type"), *schema = json_object_get(value, "json_schema");
  const bool has_schema = json_text_is(type, "json_schema");
  if (!has_schema && !json_text_is(type, "text") && !json_text_is(type, "json_object"))
    return wrong("an object whose type is text, json_object or json_schema");
  if (json_object_size(value) != 1u + has_schema || (schema != NULL) != has_schema)
    return wrong("no members but type, and json_schema where the type says so");
  if (has_schema) return read_schema(schema, out);
  return json_text_is(type, "text") ? OK : constraint_open(out, VERBATIM_JSON_OBJECT, "", 0);
}

static status read_format(const json_t *value, verbatim_constraint **out) {
  if (!json_is_object(value)) return wrong("an object whose type is text, json_object or json_schema");
  json_t *given = json_text_given(value);
  const status result = given ? read_given(given, out) : FAIL(ERR_LIMIT, "constraint: no memory");
  json_decref(given);
  return result;
}

status json_form_read(const char *name, const json_t *value, verbatim_constraint **out) {
  status result = OK;
  bool is_older = false;
  *out = NULL;
  for (size_t i = 0; i < ARRAY_LEN(OLDER) && !is_older; i++) {
    is_older = strcmp(name, OLDER[i].name) == 0;
    if (is_older) result = read_member(OLDER[i].member, value, out);
  }
  if (!is_older) result = strcmp(name, "response_format") == 0 ? read_format(value, out) : read_structured(value, out);
  if (result != OK) fail_prefix(name);
  return result;
}
