/* schema.c - see schema.h. One function for each type; every keyword that a type does not know is refused. */
#include "constrain/schema.h"
#include "base/json_text.h"
#include "constrain/alternatives.h"
#include "constrain/regex.h"
#include "constrain/value.h"

#define PATH_BYTES 256u
#define REPEAT_MAX 10000
#define ALTERNATIVES_MAX 64u           /* each is compared with each */
#define WORK_MAX (1u << 18)            /* schemas that are looked at whether they are possible */
#define RECURSIVE_MAX (PROGRAM_MAX / 8) /* instructions of a schema that contains itself */
static const uint32_t LEVELS[] = {16, 8, 5, 4, 3, 2}; /* so often it may stand within itself, itself counted: the first that fits */

typedef struct place { /* a schema on the way from the root */
  const struct place *outer;
  const json_t *schema;
  const char *key;     /* of the outer schema; NULL: the root, or what a $ref names */
  size_t index;        /* in the list of that name, or of the member's name; SIZE_MAX: none */
  const char *member;  /* of the object of that name, or NULL */
} place;

typedef struct compiler {
  program *p;
  const json_t *root;
  uint32_t depth, levels; /* a schema may stand in the chain of places so often */
  uint32_t work, ahead; /* of is_possible: schemas so far, and now within each other */
  bool is_recursive;
} compiler;

static status add_schema(compiler *c, const place *at);
static bool is_inner_possible(compiler *c, const place *outer, const char *key, const json_t *schema);
static bool is_type_possible(compiler *c, const place *at, const json_t *type);

/* === Messages =============================================================================================================== */

/* The JSON pointer to a keyword of this schema, as far as it fits. */
static void write_path(const place *at, const char *keyword, char *text) {
  const place *chain[SCHEMA_DEPTH_MAX + 1];
  uint32_t count = 0;
  size_t used = 0;
  for (; at && count < ARRAY_LEN(chain); at = at->outer) chain[count++] = at;
  text[0] = 0;
  for (; count > 0 && used < PATH_BYTES - 1; used = strlen(text)) {
    const place *now = chain[--count];
    if (!now->key) snprintf(text + used, PATH_BYTES - used, "%s", now->outer ? "/$ref" : "#");
    else if (now->member) snprintf(text + used, PATH_BYTES - used, "/%s/%.64s", now->key, now->member);
    else if (now->index != SIZE_MAX) snprintf(text + used, PATH_BYTES - used, "/%s/%zu", now->key, now->index);
    else snprintf(text + used, PATH_BYTES - used, "/%s", now->key);
  }
  if (used < PATH_BYTES - 1 && keyword) snprintf(text + used, PATH_BYTES - used, "/%.64s", keyword);
}

static status wrong(const place *at, const char *keyword, const char *expected) {
  char path[PATH_BYTES];
  write_path(at, keyword, path);
  return FAIL(ERR_USAGE, "json_schema: %s: expected %s", path, expected);
}

static status lacks(const place *at, const char *keyword, const char *hint) {
  char path[PATH_BYTES];
  write_path(at, keyword, path);
  return FAIL(ERR_UNSUPPORTED, "json_schema: %s is not offered%s%s", path, *hint ? "; hint: " : "", hint);
}

/* === Keywords =============================================================================================================== */

static const json_t *get(const place *at, const char *keyword) { return json_object_get(at->schema, keyword); }

/* Keywords that say nothing about the value, and those of `names`, a NULL-terminated list. */
static status check_keywords(const place *at, const char *const *names) {
  static const char *const NOTES[] = {"title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions",
                                      "deprecated", "readOnly", "writeOnly", NULL};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)at->schema, key, value) {
    bool is_known = false;
    for (size_t i = 0; NOTES[i]; i++) is_known |= strcmp(NOTES[i], key) == 0;
    for (size_t i = 0; names[i]; i++) is_known |= strcmp(names[i], key) == 0;
    if (!is_known) return lacks(at, key, "");
  }
  return OK;
}

/* A keyword's whole number of 0 to REPEAT_MAX; absent: unchanged. */
static status take_count(const place *at, const char *keyword, uint32_t *out) {
  const json_t *value = get(at, keyword);
  if (!value) return OK;
  if (!json_is_integer(value) || json_integer_value(value) < 0) return wrong(at, keyword, "an integer of 0 or more");
  if (json_integer_value(value) > REPEAT_MAX) return lacks(at, keyword, "at most 10000");
  *out = (uint32_t)json_integer_value(value);
  return OK;
}

/* === Strings and numbers ==================================================================================================== */

static const char *format_regex(const json_t *format) {
  static const char *const FORMATS[][2] = {
      {"date", "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"},
      {"time", "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"},
      {"date-time", "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?"
                    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"}};
  for (size_t i = 0; i < ARRAY_LEN(FORMATS); i++)
    if (json_text_is(format, FORMATS[i][0])) return FORMATS[i][1];
  return NULL;
}

static status add_pattern(compiler *c, const char *text, size_t bytes, bool is_found) {
  program_bytes(c->p, "\"", 1);
  TRY(regex_add(c->p, &(regex_source){.text = text, .bytes = bytes, .in_json = true, .is_found = is_found}));
  program_bytes(c->p, "\"", 1);
  return OK;
}

static status add_string(compiler *c, const place *at) {
  const json_t *pattern = get(at, "pattern"), *format = get(at, "format");
  const bool has_length = get(at, "minLength") || get(at, "maxLength");
  uint32_t least = 0, most = PROGRAM_ENDLESS;
  if (pattern && !json_is_string(pattern)) return wrong(at, "pattern", "a text");
  if (pattern && (has_length || format)) return lacks(at, "pattern", "without minLength, maxLength and format");
  if (format && has_length) return lacks(at, "format", "without minLength and maxLength");
  if (pattern) return add_pattern(c, json_string_value(pattern), json_string_length(pattern), true);
  if (format && !format_regex(format)) return lacks(at, "format", "date, time, date-time or uuid");
  if (format) return add_pattern(c, format_regex(format), strlen(format_regex(format)), false);
  TRY(take_count(at, "minLength", &least));
  TRY(take_count(at, "maxLength", &most));
  if (least > most) return wrong(at, "minLength", "at most maxLength");
  value_add_string(c->p, least, most);
  return OK;
}

/* A bound of an integer: *out becomes the bound, moved by `step` where the keyword excludes it, if that is narrower. */
static status take_bound(const place *at, const char *keyword, int64_t step, bool is_lower, int64_t *out) {
  const json_t *value = get(at, keyword);
  if (!value) return OK;
  if (!json_is_integer(value)) return json_is_number(value) ? lacks(at, keyword, "an integer") : wrong(at, keyword, "a number");
  const json_int_t bound = json_integer_value(value);
  if (bound > VALUE_INTEGER_MAX || bound < -VALUE_INTEGER_MAX) return lacks(at, keyword, "at most 18 digits");
  if (is_lower ? bound + step > *out : bound + step < *out) *out = bound + step;
  return OK;
}

/* Every integer is a multiple of 1. */
static status check_multiple(const place *at) {
  const json_t *value = get(at, "multipleOf");
  if (!value) return OK;
  if (!json_is_number(value) || !(json_number_value(value) > 0)) return wrong(at, "multipleOf", "a number above 0");
  return json_number_value(value) < 1 || json_number_value(value) > 1 ? lacks(at, "multipleOf", "1") : OK;
}

static status add_integer(compiler *c, const place *at) {
  int64_t least = -VALUE_INTEGER_MAX, most = VALUE_INTEGER_MAX;
  TRY(check_multiple(at));
  TRY(take_bound(at, "minimum", 0, true, &least));
  TRY(take_bound(at, "exclusiveMinimum", 1, true, &least));
  TRY(take_bound(at, "maximum", 0, false, &most));
  TRY(take_bound(at, "exclusiveMaximum", -1, false, &most));
  if (least > most || least > VALUE_INTEGER_MAX || most < -VALUE_INTEGER_MAX)
    return wrong(at, "minimum", "bounds with an integer between them");
  value_add_integer(c->p, least, most);
  return OK;
}

/* A bound of a number, in units of 10^-VALUE_DECIMALS_MAX. */
static status take_decimal(const place *at, const char *keyword, int64_t step, bool is_lower, int64_t *out) {
  static const char hint[] = "at most 9 digits before the point and 6 after";
  const json_t *value = get(at, keyword);
  if (!value) return OK;
  if (!json_is_number(value)) return wrong(at, keyword, "a number");
  const double number = json_number_value(value), units = number * VALUE_DECIMAL_UNITS;
  if (!(number > -1e9 && number < 1e9)) return lacks(at, keyword, hint);
  const int64_t bound = (int64_t)(units < 0 ? units - 0.5 : units + 0.5); /* 15 digits tell doubles apart: the nearest one is meant */
  const double back = (double)bound / VALUE_DECIMAL_UNITS;
  if (back < number || back > number) return lacks(at, keyword, hint);
  if (is_lower ? bound + step > *out : bound + step < *out) *out = bound + step;
  return OK;
}

static status add_number(compiler *c, const place *at) {
  static const char *const BOUNDS[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
  int64_t least = -VALUE_DECIMAL_MAX, most = VALUE_DECIMAL_MAX;
  bool is_bound = false;
  TRY(check_multiple(at));
  for (size_t i = 0; i < ARRAY_LEN(BOUNDS); i++) {
    is_bound |= get(at, BOUNDS[i]) != NULL;
    TRY(take_decimal(at, BOUNDS[i], i % 2 == 0 ? 0 : i < 2 ? 1 : -1, i < 2, i < 2 ? &least : &most));
  }
  const uint32_t decimals = get(at, "multipleOf") ? 0 : VALUE_DECIMALS_MAX;
  if (!is_bound && decimals) value_add_number(c->p);
  else if (!value_has_decimal(least, most, decimals)) return wrong(at, "minimum", "bounds with a number between them");
  else value_add_decimal(c->p, least, most, decimals);
  return OK;
}

/* === Lists and objects ====================================================================================================== */

static status add_inner(compiler *c, const place *outer, const char *key, const char *member, size_t index, const json_t *schema) {
  const place inner = {.outer = outer, .schema = schema, .key = key, .index = index, .member = member};
  return add_schema(c, &inner);
}

/* An item and, behind commas, low - 1 .. high - 1 more. */
static status add_items(compiler *c, const place *at, uint32_t low, uint32_t high) {
  const uint32_t first = c->p->count;
  TRY(add_inner(c, at, "items", NULL, SIZE_MAX, get(at, "items")));
  if (low <= 1 && high == PROGRAM_ENDLESS) { /* one copy, which comes again */
    const uint32_t end = program_fork(c->p);
    value_add_comma(c->p);
    program_back(c->p, first);
    program_lead(c->p, end, c->p->count);
    return OK;
  }
  if (high == 1) return OK;
  const uint32_t start = c->p->count;
  value_add_comma(c->p);
  TRY(add_inner(c, at, "items", NULL, SIZE_MAX, get(at, "items")));
  program_repeat(c->p, start, low > 0 ? low - 1 : 0, high == PROGRAM_ENDLESS ? high : high - 1);
  return OK;
}

static status add_array(compiler *c, const place *at) {
  uint32_t least = 0, most = PROGRAM_ENDLESS;
  TRY(take_count(at, "minItems", &least));
  TRY(take_count(at, "maxItems", &most));
  if (least > most) return wrong(at, "minItems", "at most maxItems");
  if (!get(at, "items") && (least || most != PROGRAM_ENDLESS)) return lacks(at, least ? "minItems" : "maxItems", "with items");
  if (!get(at, "items")) {
    value_add_list(c->p, VALUE_NESTING_MAX - 1);
    return OK;
  }
  program_bytes(c->p, "[", 1);
  const uint32_t none = least == 0 ? program_fork(c->p) : PROGRAM_NONE;
  if (most > 0 && is_inner_possible(c, at, "items", get(at, "items"))) TRY(add_items(c, at, least, most));
  if (least == 0) program_lead(c->p, none, c->p->count);
  program_bytes(c->p, "]", 1);
  return OK;
}

static bool is_required(const json_t *list, const char *name) {
  size_t i;
  const json_t *entry;
  json_array_foreach(list, i, entry) if (json_text_is(entry, name)) return true;
  return false;
}

static status check_object(const place *at) {
  const json_t *all = get(at, "properties"), *list = get(at, "required"), *others = get(at, "additionalProperties"), *entry;
  size_t i;
  if (all && !json_is_object(all)) return wrong(at, "properties", "an object");
  if (list && !json_is_array(list)) return wrong(at, "required", "a list of names");
  json_array_foreach(list, i, entry) {
    if (!json_is_string(entry)) return wrong(at, "required", "a list of names");
    if (!json_object_get(all, json_string_value(entry))) return lacks(at, "required", "only names of properties");
  }
  if (others && !json_is_boolean(others) && !json_is_object(others)) return wrong(at, "additionalProperties", "true, false or a schema");
  if (others && !json_is_false(others) && all) return lacks(at, "additionalProperties", "false, or leave it out");
  return json_is_object(others) && json_object_size(others) ? lacks(at, "additionalProperties", "") : OK;
}

/* How many properties come before the first required one: all, if none is. */
static uint32_t count_before_required(const json_t *all, const json_t *required) {
  const char *name;
  json_t *schema;
  uint32_t count = 0;
  json_object_foreach((json_t *)(uintptr_t)all, name, schema) {
    if (is_required(required, name)) break;
    count++;
  }
  return count;
}

/* Members in the order of `properties`. The object may begin with one of the first that are optional, or with the first required one, or
 * end: a chain of forks leads to each of these. Every other member is behind a comma. */
static status add_members(compiler *c, const place *at, const json_t *all, const json_t *required) {
  const uint32_t chain = c->p->count, leaders = count_before_required(all, required);
  const char *name;
  json_t *schema;
  uint32_t number = 0;
  for (uint32_t i = 0; i < leaders; i++) program_fork(c->p);
  const uint32_t jump = program_jump(c->p);
  json_object_foreach((json_t *)(uintptr_t)all, name, schema) {
    const uint32_t skip = number > 0 && !is_required(required, name) ? program_fork(c->p) : PROGRAM_NONE;
    if (number > 0) value_add_comma(c->p);
    if (number < leaders) program_lead(c->p, chain + number, c->p->count);
    if (number == leaders) program_land(c->p, jump);
    value_add_text(c->p, name, strlen(name));
    value_add_colon(c->p);
    TRY(add_inner(c, at, "properties", name, SIZE_MAX, schema));
    if (skip != PROGRAM_NONE) program_lead(c->p, skip, c->p->count);
    number++;
  }
  if (leaders == number) program_land(c->p, jump);
  return OK;
}

static status add_object(compiler *c, const place *at) {
  const json_t *all = get(at, "properties");
  TRY(check_object(at));
  if (!all && !json_is_false(get(at, "additionalProperties"))) {
    value_add_object(c->p, VALUE_NESTING_MAX - 1);
    return OK;
  }
  json_t *possible = json_object(), *schema;
  const char *name;
  bool is_whole = possible != NULL;
  json_object_foreach((json_t *)(uintptr_t)all, name, schema)
    if (is_inner_possible(c, at, "properties", schema)) is_whole = is_whole && json_object_set(possible, name, schema) == 0;
  program_bytes(c->p, "{", 1);
  status result = is_whole ? OK : FAIL(ERR_LIMIT, "json_schema: no memory");
  if (result == OK && json_object_size(possible)) result = add_members(c, at, possible, get(at, "required"));
  program_bytes(c->p, "}", 1);
  json_decref(possible);
  return result;
}

/* === Types ================================================================================================================== */

typedef struct type_row {
  const char *name;
  status (*add)(compiler *c, const place *at);
  const char *keywords[8]; /* NULL-terminated */
} type_row;

static status add_boolean(compiler *c, const place *at) {
  program_choice choice = program_open(c->p);
  (void)at;
  program_bytes(c->p, "true", 4);
  program_or(c->p, &choice);
  program_bytes(c->p, "false", 5);
  program_shut(c->p, &choice);
  return OK;
}

static status add_null(compiler *c, const place *at) {
  (void)at;
  program_bytes(c->p, "null", 4);
  return OK;
}

static const type_row TYPES[] = {
    {"string", add_string, {"minLength", "maxLength", "pattern", "format", NULL}},
    {"integer", add_integer, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", NULL}},
    {"number", add_number, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", NULL}},
    {"boolean", add_boolean, {NULL}},
    {"null", add_null, {NULL}},
    {"array", add_array, {"items", "minItems", "maxItems", NULL}},
    {"object", add_object, {"properties", "required", "additionalProperties", NULL}},
};

static const type_row *find_type(const json_t *name) {
  for (size_t i = 0; i < ARRAY_LEN(TYPES); i++)
    if (json_text_is(name, TYPES[i].name)) return &TYPES[i];
  return NULL;
}

/* Every keyword belongs to one of the types. */
static status check_types(const place *at, const json_t *list) {
  const char *names[ARRAY_LEN(TYPES) * 8] = {"type"};
  size_t i, count = 1;
  const json_t *name;
  json_array_foreach(list, i, name) {
    const type_row *type = find_type(name);
    if (!type) return wrong(at, "type", "string, integer, number, boolean, null, array or object");
    for (size_t k = 0; k < i; k++)
      if (json_equal((json_t *)(uintptr_t)json_array_get(list, k), (json_t *)(uintptr_t)name)) return wrong(at, "type", "no type twice");
    for (size_t k = 0; type->keywords[k]; k++) names[count++] = type->keywords[k];
  }
  names[count] = NULL;
  return check_keywords(at, names);
}

static status add_types(compiler *c, const place *at, const json_t *list) {
  program_choice choice = program_open(c->p);
  size_t i;
  const json_t *name;
  bool is_first = true;
  if (json_array_size(list) == 0) return wrong(at, "type", "one or more types");
  TRY(check_types(at, list));
  json_array_foreach(list, i, name) {
    if (!is_type_possible(c, at, name)) continue;
    if (!is_first) program_or(c->p, &choice);
    TRY(find_type(name)->add(c, at));
    is_first = false;
  }
  program_shut(c->p, &choice);
  return OK;
}

static status add_type(compiler *c, const place *at, const json_t *type) {
  if (json_is_array(type)) return add_types(c, at, type);
  json_t *list = json_array();
  if (!list || json_array_append(list, (json_t *)(uintptr_t)type) != 0) {
    json_decref(list);
    return FAIL(ERR_LIMIT, "json_schema: no memory");
  }
  const status result = add_types(c, at, list);
  json_decref(list);
  return result;
}

/* === Values, alternatives, references ======================================================================================= */

static bool is_of_type(const json_t *value, const json_t *name) {
  if (json_text_is(name, "integer"))
    return json_is_integer(value);
  return (json_text_is(name, "string") && json_is_string(value)) || (json_text_is(name, "number") && json_is_number(value)) ||
         (json_text_is(name, "boolean") && json_is_boolean(value)) || (json_text_is(name, "null") && json_is_null(value)) ||
         (json_text_is(name, "array") && json_is_array(value)) || (json_text_is(name, "object") && json_is_object(value));
}

static bool fits_type(const json_t *value, const json_t *type) {
  size_t i;
  const json_t *name;
  bool fits = !type || is_of_type(value, type);
  json_array_foreach(type, i, name) fits |= is_of_type(value, name);
  return fits;
}

static status add_enum(compiler *c, const place *at, const json_t *list) {
  static const char *const NAMES[] = {"enum", "type", NULL};
  program_choice choice = program_open(c->p);
  size_t i;
  const json_t *value;
  TRY(check_keywords(at, NAMES));
  if (json_array_size(list) == 0) return wrong(at, "enum", "a list of one or more values");
  json_array_foreach(list, i, value) {
    if (!fits_type(value, get(at, "type"))) return wrong(at, "enum", "values of the type");
    if (i > 0) program_or(c->p, &choice);
    value_add_this(c->p, value);
  }
  program_shut(c->p, &choice);
  return OK;
}

static status add_const(compiler *c, const place *at, const json_t *value) {
  static const char *const NAMES[] = {"const", "type", NULL};
  TRY(check_keywords(at, NAMES));
  if (!fits_type(value, get(at, "type"))) return wrong(at, "const", "a value of the type");
  value_add_this(c->p, value);
  return OK;
}

/* Each of them excludes the others, so that what fits one of them fits no other. */
static status check_apart(const compiler *c, const place *at, const json_t *list) {
  for (size_t i = 0; i < json_array_size(list); i++)
    for (size_t k = 0; k < i; k++)
      if (!alternatives_are_apart(c->root, json_array_get(list, k), json_array_get(list, i)))
        return lacks(at, "oneOf", "schemas without a type in common, or that differ in const or enum, their own or a required property's; "
                                  "else anyOf");
  return OK;
}

static status add_any_of(compiler *c, const place *at, const char *keyword, const json_t *list) {
  const char *const names[] = {keyword, strcmp(keyword, "oneOf") == 0 ? "discriminator" : NULL, NULL}; /* OpenAPI's, a note */
  program_choice choice = program_open(c->p);
  size_t i;
  const json_t *schema;
  bool is_first = true;
  TRY(check_keywords(at, names));
  if (json_array_size(list) > ALTERNATIVES_MAX) return lacks(at, keyword, "at most 64 schemas");
  if (strcmp(keyword, "oneOf") == 0) TRY(check_apart(c, at, list));
  if (json_array_size(list) == 0) return wrong(at, keyword, "a list of one or more schemas");
  if (strcmp(keyword, "allOf") == 0 && json_array_size(list) > 1) return lacks(at, keyword, "one schema");
  json_array_foreach(list, i, schema) {
    if (!is_inner_possible(c, at, keyword, schema)) continue;
    if (!is_first) program_or(c->p, &choice);
    TRY(add_inner(c, at, keyword, NULL, i, schema));
    is_first = false;
  }
  program_shut(c->p, &choice);
  return OK;
}

/* How often the schema stands in the chain of places. */
static uint32_t count_levels(const place *at, const json_t *schema) {
  uint32_t count = 0;
  for (; at; at = at->outer) count += at->schema == schema;
  return count;
}

static status add_ref(compiler *c, const place *at, const json_t *ref) {
  static const char *const NAMES[] = {"$ref", NULL};
  TRY(check_keywords(at, NAMES));
  const json_t *target = json_is_string(ref) ? alternatives_resolve(c->root, json_string_value(ref)) : NULL;
  if (!target) return lacks(at, "$ref", "#/$defs/NAME of a schema that is there");
  return add_inner(c, at, NULL, NULL, SIZE_MAX, target);
}

/* === What is possible ======================================================================================================= */

static bool is_possible(compiler *c, const place *at);

/* Too deep counts as possible: writing it out fails there. */
static bool is_inner_possible(compiler *c, const place *outer, const char *key, const json_t *schema) {
  const place inner = {.outer = outer, .schema = schema, .key = key, .index = SIZE_MAX};
  if (c->depth + c->ahead >= SCHEMA_DEPTH_MAX) return true;
  c->ahead++;
  const bool found = is_possible(c, &inner);
  c->ahead--;
  return found;
}

static bool is_any_possible(compiler *c, const place *at, const json_t *list) {
  size_t i;
  const json_t *each;
  json_array_foreach(list, i, each) if (is_inner_possible(c, at, "anyOf", each)) return true;
  return json_array_size(list) == 0; /* refused elsewhere */
}

static bool is_type_possible(compiler *c, const place *at, const json_t *type) {
  const json_t *all = get(at, "properties"), *least = get(at, "minItems"), *schema;
  const char *name;
  if (json_text_is(type, "array"))
    return !json_is_integer(least) || json_integer_value(least) == 0 || is_inner_possible(c, at, "items", get(at, "items"));
  if (!json_text_is(type, "object")) return true;
  json_object_foreach((json_t *)(uintptr_t)all, name, schema)
    if (is_required(get(at, "required"), name) && !is_inner_possible(c, at, "properties", schema)) return false;
  return true;
}

/* Whether any value fits without a schema more often within itself than `levels` says. */
static bool is_possible(compiler *c, const place *at) {
  static const char *const LISTS[] = {"anyOf", "oneOf", "allOf"};
  const json_t *ref = get(at, "$ref"), *type = get(at, "type"), *each;
  size_t i;
  if (++c->work > WORK_MAX) c->p->is_full = true;
  if (c->p->is_full) return true;
  const json_t *target = json_is_string(ref) ? alternatives_resolve(c->root, json_string_value(ref)) : NULL;
  if (target) {
    const uint32_t levels = count_levels(at, target);
    c->is_recursive |= levels > 0;
    return levels < c->levels && is_inner_possible(c, at, NULL, target);
  }
  for (i = 0; i < ARRAY_LEN(LISTS); i++)
    if (get(at, LISTS[i])) return is_any_possible(c, at, get(at, LISTS[i]));
  if (!json_is_array(type)) return is_type_possible(c, at, type);
  json_array_foreach(type, i, each) if (is_type_possible(c, at, each)) return true;
  return json_array_size(type) == 0;
}

/* === A schema =============================================================================================================== */

static status add_by_keyword(compiler *c, const place *at) {
  static const char *const NONE[] = {NULL};
  if (get(at, "$ref")) return add_ref(c, at, get(at, "$ref"));
  if (get(at, "enum")) return add_enum(c, at, get(at, "enum"));
  if (get(at, "const")) return add_const(c, at, get(at, "const"));
  if (get(at, "anyOf")) return add_any_of(c, at, "anyOf", get(at, "anyOf"));
  if (get(at, "oneOf")) return add_any_of(c, at, "oneOf", get(at, "oneOf"));
  if (get(at, "allOf")) return add_any_of(c, at, "allOf", get(at, "allOf"));
  if (get(at, "type")) return add_type(c, at, get(at, "type"));
  TRY(check_keywords(at, NONE));
  value_add_any(c->p, VALUE_NESTING_MAX - 2);
  return OK;
}

static status add_schema(compiler *c, const place *at) {
  if (json_is_true(at->schema)) {
    value_add_any(c->p, VALUE_NESTING_MAX - 2);
    return OK;
  }
  if (!json_is_object(at->schema)) return wrong(at, NULL, "a schema, which is an object");
  if (++c->depth > SCHEMA_DEPTH_MAX) return FAIL(ERR_LIMIT, "json_schema: more than %u schemas within schemas", SCHEMA_DEPTH_MAX);
  if (c->p->is_full) return OK; /* the caller tells */
  TRY(add_by_keyword(c, at));
  c->depth--;
  return OK;
}

/* A schema that contains itself is written out, as deep as it fits. */
status schema_add(program *p, const json_t *schema) {
  const place root = {.schema = schema, .index = SIZE_MAX};
  const uint32_t start = p->count;
  status result = OK;
  if (p->is_full) return OK;
  for (size_t i = 0; i < ARRAY_LEN(LEVELS); i++) {
    compiler c = {.p = p, .root = schema, .levels = LEVELS[i]};
    p->count = start;
    p->is_full = false;
    fail_clear();
    result = is_possible(&c, &root) ? add_schema(&c, &root)
                                    : FAIL(ERR_UNSUPPORTED, "json_schema: $ref without an end is not offered: every value contains itself");
    const bool fits = result == OK && !p->is_full && p->count - start <= RECURSIVE_MAX;
    if (!c.is_recursive || fits || (result != OK && result != ERR_LIMIT)) break;
  }
  return result;
}

void schema_add_object(program *p) { value_add_object(p, VALUE_NESTING_MAX); }
