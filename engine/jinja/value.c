/* jinja/value.c - see jinja/value.h. */
#include "jinja/value.h"
#include <string.h>

/* === Making ================================================================================================== */

jinja_value jinja_value_bool(bool truth) { return (jinja_value){.kind = JINJA_BOOL, .truth = truth}; }
jinja_value jinja_value_integer(int64_t integer) { return (jinja_value){.kind = JINJA_INTEGER, .integer = integer}; }
jinja_value jinja_value_text(const char *bytes, size_t count) { return (jinja_value){.kind = JINJA_TEXT, .text = {bytes, count}}; }
jinja_value jinja_value_words(const char *words) { return jinja_value_text(words, strlen(words)); }
jinja_value jinja_value_undefined(const char *missing) { return (jinja_value){.kind = JINJA_UNDEFINED, .missing = missing}; }

status jinja_value_copy_text(jinja_memory *memory, const char *bytes, size_t count, jinja_value *out) {
  char *copy = NULL;
  if (count > JINJA_TEXT_BYTES_MAX) return FAIL(ERR_LIMIT, "chat template: a text of more than %u bytes", JINJA_TEXT_BYTES_MAX);
  TRY(jinja_memory_step(memory, count));
  TRY(jinja_memory_take(memory, count, &copy));
  if (count) memcpy(copy, bytes, count);
  *out = jinja_value_text(copy, count);
  return OK;
}

status jinja_value_take(jinja_memory *memory, strbuf *buffer, jinja_value *out) {
  status result = buffer->failed ? FAIL(ERR_LIMIT, "chat template: no memory")
                                 : jinja_value_copy_text(memory, buffer->bytes, buffer->count, out);
  strbuf_close(buffer);
  return result;
}

status jinja_value_list(jinja_memory *memory, jinja_kind kind, size_t count, jinja_value *out) {
  jinja_list *list = NULL;
  if (count > JINJA_MEMORY_BYTES_MAX / sizeof *list->items) return FAIL(ERR_LIMIT, "chat template: a list of %zu items", count);
  TRY(jinja_memory_step(memory, count * sizeof *list->items));
  TRY(jinja_memory_take(memory, sizeof *list, &list));
  TRY(jinja_memory_take(memory, count * sizeof *list->items, &list->items));
  list->count = count;
  *out = (jinja_value){.kind = (uint8_t)kind, .list = list};
  return OK;
}

status jinja_value_dict(jinja_memory *memory, jinja_kind kind, size_t room, jinja_value *out) {
  jinja_dict *dict = NULL;
  if (room > JINJA_MEMORY_BYTES_MAX / sizeof *dict->entries) return FAIL(ERR_LIMIT, "chat template: a dict of %zu entries", room);
  TRY(jinja_memory_take(memory, sizeof *dict, &dict));
  TRY(jinja_memory_take(memory, room * sizeof *dict->entries, &dict->entries));
  dict->room = room;
  *out = (jinja_value){.kind = (uint8_t)kind, .dict = dict};
  return OK;
}

static bool is_hashable(jinja_value key) { return key.kind <= JINJA_TEXT || key.kind == JINJA_TUPLE; }

status jinja_value_put(jinja_memory *memory, jinja_dict *dict, jinja_value key, jinja_value value) {
  if (!is_hashable(key)) return FAIL(ERR_FORMAT, "chat template: unhashable type: '%s'", jinja_value_type(key));
  for (size_t i = 0; i < dict->count; i++) {
    bool is_equal = false;
    TRY(jinja_value_equal(memory, dict->entries[i].key, key, &is_equal));
    if (is_equal) {
      dict->entries[i].value = value;
      return OK;
    }
  }
  if (dict->count == dict->room) {
    jinja_entry *grown = NULL;
    size_t room = dict->room ? 2 * dict->room : 4;
    TRY(jinja_memory_take(memory, room * sizeof *grown, &grown));
    if (dict->count) memcpy(grown, dict->entries, dict->count * sizeof *grown);
    dict->entries = grown;
    dict->room = room;
  }
  dict->entries[dict->count++] = (jinja_entry){.key = key, .value = value};
  return OK;
}

static status read_json(jinja_memory *memory, const json_t *json, unsigned depth, jinja_value *out) {
  if (depth > JINJA_DEPTH_MAX) return FAIL(ERR_LIMIT, "the conversation: a value nested more than %u deep", JINJA_DEPTH_MAX);
  const char *key;
  json_t *value;
  size_t count = 0;
  switch (json_typeof(json)) {
    case JSON_OBJECT:
      TRY(jinja_value_dict(memory, JINJA_DICT, json_object_size(json), out));
      json_object_foreach((json_t *)(uintptr_t)json, key, value) { /* keys are distinct: put would compare them all */
        jinja_entry *entry = &out->dict->entries[out->dict->count++];
        entry->key = jinja_value_words(key);
        TRY(read_json(memory, value, depth + 1, &entry->value));
      }
      break;
    case JSON_ARRAY:
      TRY(jinja_value_list(memory, JINJA_LIST, json_array_size(json), out));
      json_array_foreach(json, count, value) TRY(read_json(memory, value, depth + 1, &out->list->items[count]));
      break;
    case JSON_STRING: *out = jinja_value_text(json_string_value(json), json_string_length(json)); break;
    case JSON_INTEGER: *out = jinja_value_integer(json_integer_value(json)); break;
    case JSON_REAL: *out = (jinja_value){.kind = JINJA_REAL, .real = json_real_value(json)}; break;
    case JSON_TRUE: *out = jinja_value_bool(true); break;
    case JSON_FALSE: *out = jinja_value_bool(false); break;
    case JSON_NULL: *out = (jinja_value){.kind = JINJA_NONE}; break;
  }
  return OK;
}

status jinja_value_of_json(jinja_memory *memory, const json_t *json, jinja_value *out) { return read_json(memory, json, 1, out); }

/* === Asking ================================================================================================== */

bool jinja_value_is(jinja_text text, const char *words) {
  return text.count == strlen(words) && memcmp(text.bytes, words, text.count) == 0;
}

jinja_entry *jinja_value_find(const jinja_dict *dict, jinja_text key) {
  for (size_t i = 0; i < dict->count; i++) {
    const jinja_value *found = &dict->entries[i].key;
    if (found->kind == JINJA_TEXT && found->text.count == key.count &&
        (key.count == 0 || memcmp(found->text.bytes, key.bytes, key.count) == 0))
      return &dict->entries[i];
  }
  return NULL;
}

bool jinja_value_is_true(jinja_value value) {
  switch ((jinja_kind)value.kind) {
    case JINJA_ABSENT: case JINJA_UNDEFINED: case JINJA_NONE: return false;
    case JINJA_BOOL: return value.truth;
    case JINJA_INTEGER: return value.integer != 0;
    case JINJA_REAL: return value.real != 0;
    case JINJA_TEXT: return value.text.count > 0;
    case JINJA_LIST: case JINJA_TUPLE: case JINJA_RANGE: case JINJA_VIEW: return value.list->count > 0;
    case JINJA_DICT: return value.dict->count > 0;
    default: return true;
  }
}

bool jinja_value_is_number(jinja_value value) { return value.kind >= JINJA_BOOL && value.kind <= JINJA_REAL; }
bool jinja_value_is_listed(jinja_value value) { return value.kind >= JINJA_LIST && value.kind <= JINJA_ITERATOR; }

double jinja_value_real(jinja_value number) {
  return number.kind == JINJA_REAL ? number.real : number.kind == JINJA_BOOL ? number.truth : (double)number.integer;
}

static int64_t whole(jinja_value number) { return number.kind == JINJA_BOOL ? number.truth : number.integer; }

const char *jinja_value_type(jinja_value value) {
  static const char *const names[] = {"nothing", "Undefined", "NoneType", "bool", "int", "float", "str", "list", "tuple", "range",
                                      "dict_items", "generator", "dict", "Namespace", "LoopContext", "Macro", "method", "function"};
  return names[value.kind];
}

/* === Comparing =============================================================================================== */

static int order_of_reals(double a, double b) { return a < b ? -1 : a > b; }

/* An integer and a real are compared exactly, as Python does: the real's neighbourhood decides first. */
static int order_of_numbers(jinja_value a, jinja_value b) {
  if (a.kind != JINJA_REAL && b.kind != JINJA_REAL) return whole(a) < whole(b) ? -1 : whole(a) > whole(b);
  if (a.kind == JINJA_REAL && b.kind == JINJA_REAL) return order_of_reals(a.real, b.real);
  if (a.kind == JINJA_REAL) return -order_of_numbers(b, a);
  if (b.real >= 9223372036854775808.0) return -1;
  if (b.real < -9223372036854775808.0) return 1;
  int64_t floor_of = (int64_t)b.real; /* towards zero */
  if (whole(a) != floor_of) return whole(a) < floor_of ? -1 : 1;
  return order_of_reals((double)floor_of, b.real);
}

static int order_of_texts(jinja_text a, jinja_text b) {
  size_t common = a.count < b.count ? a.count : b.count;
  int order = common ? memcmp(a.bytes, b.bytes, common) : 0;
  return order ? order : a.count < b.count ? -1 : a.count > b.count;
}

static status are_equal(jinja_memory *memory, jinja_value a, jinja_value b, unsigned depth, bool *out);

static status are_dicts_equal(jinja_memory *memory, const jinja_dict *a, const jinja_dict *b, unsigned depth, bool *out) {
  *out = a->count == b->count;
  for (size_t i = 0; i < a->count && *out; i++) {
    bool is_found = false;
    a->entries[i].was_read = true;
    for (size_t k = 0; k < b->count && !is_found; k++) {
      TRY(are_equal(memory, a->entries[i].key, b->entries[k].key, depth, &is_found));
      if (!is_found) continue;
      b->entries[k].was_read = true;
      TRY(are_equal(memory, a->entries[i].value, b->entries[k].value, depth, out));
    }
    *out &= is_found;
  }
  return OK;
}

static status are_equal(jinja_memory *memory, jinja_value a, jinja_value b, unsigned depth, bool *out) {
  TRY(jinja_memory_step(memory, 0));
  if (depth > JINJA_DEPTH_MAX) return FAIL(ERR_LIMIT, "chat template: a value nested more than %u deep", JINJA_DEPTH_MAX);
  *out = false;
  if (jinja_value_is_number(a) && jinja_value_is_number(b)) *out = order_of_numbers(a, b) == 0;
  if (a.kind != b.kind || jinja_value_is_number(a)) return OK;
  switch ((jinja_kind)a.kind) {
    case JINJA_UNDEFINED: case JINJA_NONE: *out = true; break;
    case JINJA_TEXT: *out = a.text.count == b.text.count && order_of_texts(a.text, b.text) == 0; break;
    case JINJA_DICT: TRY(are_dicts_equal(memory, a.dict, b.dict, depth + 1, out)); break;
    case JINJA_LIST: case JINJA_TUPLE: case JINJA_RANGE:
      *out = a.list->count == b.list->count;
      for (size_t i = 0; i < a.list->count && *out; i++) TRY(are_equal(memory, a.list->items[i], b.list->items[i], depth + 1, out));
      break;
    default: *out = a.list == b.list; /* by identity: all these are pointers */
  }
  return OK;
}

status jinja_value_equal(jinja_memory *memory, jinja_value a, jinja_value b, bool *out) { return are_equal(memory, a, b, 1, out); }

static status order_of(jinja_memory *memory, jinja_value a, jinja_value b, unsigned depth, int *order) {
  TRY(jinja_memory_step(memory, 0));
  if (depth > JINJA_DEPTH_MAX) return FAIL(ERR_LIMIT, "chat template: a value nested more than %u deep", JINJA_DEPTH_MAX);
  *order = 0;
  if (jinja_value_is_number(a) && jinja_value_is_number(b)) {
    *order = order_of_numbers(a, b);
    return OK;
  }
  if (a.kind == JINJA_TEXT && b.kind == JINJA_TEXT) {
    *order = order_of_texts(a.text, b.text);
    return OK;
  }
  if (a.kind != b.kind || (a.kind != JINJA_LIST && a.kind != JINJA_TUPLE))
    return FAIL(ERR_FORMAT, "chat template: '<' not supported between instances of '%s' and '%s'", jinja_value_type(a),
                jinja_value_type(b));
  for (size_t i = 0; i < a.list->count && i < b.list->count; i++) {
    bool is_equal = false;
    TRY(are_equal(memory, a.list->items[i], b.list->items[i], depth + 1, &is_equal));
    if (!is_equal) return order_of(memory, a.list->items[i], b.list->items[i], depth + 1, order);
  }
  *order = a.list->count < b.list->count ? -1 : a.list->count > b.list->count;
  return OK;
}

status jinja_value_order(jinja_memory *memory, jinja_value a, jinja_value b, int *order) { return order_of(memory, a, b, 1, order); }
