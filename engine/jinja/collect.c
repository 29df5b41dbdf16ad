/* jinja/collect.c - see jinja/collect.h. What jinja2 computes late (map, select) is computed at once here: the items are the same, but an
 * error in one that the template never visits shows. */
#include "jinja/collect.h"
#include <string.h>
#include "jinja/filters.h"
#include "jinja/operate.h"
#include "jinja/tests.h"
#include "jinja/text.h"
#include "jinja/write.h"

#define FILTER(name) static status name(jinja_state *state, jinja_value value, const jinja_value *a, jinja_value *out)

static bool is_given(jinja_value value) { return value.kind != JINJA_ABSENT && value.kind != JINJA_NONE; }

static status give(jinja_state *state, jinja_list items, jinja_kind kind, jinja_value *out) {
  TRY(jinja_value_list(state->memory, kind, items.count, out));
  if (items.count) memcpy(out->list->items, items.items, items.count * sizeof *items.items);
  return OK;
}

/* The member that a path such as "function.name" or "0" leads to. */
static status follow(jinja_state *state, jinja_value item, jinja_value path, jinja_value *out) {
  *out = item;
  if (!is_given(path)) return OK;
  if (path.kind != JINJA_TEXT) return jinja_eval_item(state, item, path, out);
  for (size_t at = 0; at <= path.text.count;) {
    jinja_text rest = {path.text.bytes + at, path.text.count - at}, dot = {".", 1};
    ptrdiff_t end = jinja_text_find(rest, dot, 0);
    size_t bytes = end < 0 ? rest.count : (size_t)end;
    jinja_value key = jinja_value_text(rest.bytes, bytes);
    int64_t index = 0;
    bool is_index = bytes > 0 && bytes < 10;
    for (size_t i = 0; i < bytes && is_index; i++) {
      is_index = rest.bytes[i] >= '0' && rest.bytes[i] <= '9';
      index = index * 10 + (rest.bytes[i] - '0');
    }
    TRY(jinja_eval_item(state, *out, is_index ? jinja_value_integer(index) : key, out));
    at += bytes + 1;
  }
  return OK;
}

/* The key by which items are compared: a text without regard to case, unless case_sensitive. */
static status key_of(jinja_state *state, jinja_value item, jinja_value path, jinja_value case_sensitive, jinja_value *out) {
  TRY(follow(state, item, path, out));
  if (out->kind != JINJA_TEXT || jinja_value_is_true(case_sensitive)) return OK;
  return jinja_text_change(state->memory, out->text, JINJA_LOWER, out);
}

/* === One item ================================================================================================ */

FILTER(first) {
  jinja_list items = {0};
  (void)a;
  if (value.kind == JINJA_ITERATOR) { /* takes one only */
    bool has_one = value.list->at < value.list->count;
    *out = has_one ? value.list->items[value.list->at++] : jinja_value_undefined("No first item, sequence was empty.");
    return OK;
  }
  TRY(jinja_eval_items(state, value, &items));
  *out = items.count ? items.items[0] : jinja_value_undefined("No first item, sequence was empty.");
  return OK;
}

FILTER(last) {
  jinja_list items = {0};
  (void)a;
  if (value.kind == JINJA_ITERATOR) return FAIL(ERR_FORMAT, "chat template: 'generator' object is not reversible");
  TRY(jinja_eval_items(state, value, &items));
  *out = items.count ? items.items[items.count - 1] : jinja_value_undefined("No last item, sequence was empty.");
  return OK;
}

static status extreme(jinja_state *state, jinja_value value, const jinja_value *a, int sign, jinja_value *out) {
  jinja_list items = {0};
  jinja_value best = {0}, key = {0};
  TRY(jinja_eval_items(state, value, &items));
  *out = jinja_value_undefined("No aggregated item, sequence was empty.");
  for (size_t i = 0; i < items.count; i++) {
    int order = 0;
    TRY(key_of(state, items.items[i], a[1], a[0], &key));
    if (i) TRY(jinja_value_order(state->memory, key, best, &order));
    if (i && order * sign <= 0) continue;
    best = key;
    *out = items.items[i];
  }
  return OK;
}
FILTER(smallest) { return extreme(state, value, a, -1, out); }
FILTER(largest) { return extreme(state, value, a, 1, out); }

FILTER(sum) { /* attribute, start */
  jinja_list items = {0};
  TRY(jinja_eval_items(state, value, &items));
  *out = a[1].kind == JINJA_ABSENT ? jinja_value_integer(0) : a[1];
  for (size_t i = 0; i < items.count; i++) {
    jinja_value item;
    TRY(follow(state, items.items[i], a[0], &item));
    TRY(jinja_operate_binary(state, JINJA_ADD, *out, item, out));
  }
  return OK;
}

FILTER(join) { /* d, attribute */
  jinja_list items = {0};
  strbuf joined = {0};
  status result = jinja_eval_items(state, value, &items);
  for (size_t i = 0; i < items.count && result == OK; i++) {
    jinja_value item;
    if (i && a[0].kind != JINJA_ABSENT) result = jinja_write_text(state->memory, a[0], &joined);
    if (result == OK) result = follow(state, items.items[i], a[1], &item);
    if (result == OK) result = jinja_write_text(state->memory, item, &joined);
  }
  if (result == OK) result = jinja_value_take(state->memory, &joined, out);
  strbuf_close(&joined);
  return result;
}

/* === Lists =================================================================================================== */

FILTER(list) {
  jinja_list items = {0};
  (void)a;
  TRY(jinja_eval_items(state, value, &items));
  return give(state, items, JINJA_LIST, out);
}

FILTER(items_of) {
  jinja_list items = {0};
  jinja_arguments none = {.count = 0};
  jinja_value method;
  (void)a;
  if (value.kind != JINJA_UNDEFINED && value.kind != JINJA_DICT && !(value.marks & JINJA_CODED))
    return FAIL(ERR_FORMAT, "chat template: Can only get item pairs from a mapping.");
  if (value.kind == JINJA_DICT) {
    TRY(jinja_eval_attribute(state, value, (jinja_text){"items", 5}, &method));
    TRY(jinja_eval_call(state, method, &none, &value));
  }
  TRY(jinja_eval_items(state, value, &items));
  return give(state, items, JINJA_ITERATOR, out);
}

FILTER(reverse) {
  jinja_list items = {0};
  strbuf text = {0};
  (void)a;
  TRY(jinja_eval_items(state, value, &items));
  if (value.kind == JINJA_TEXT) {
    for (size_t i = items.count; i-- > 0;) strbuf_add(&text, items.items[i].text.bytes, items.items[i].text.count);
    return jinja_value_take(state->memory, &text, out);
  }
  TRY(jinja_value_list(state->memory, JINJA_ITERATOR, items.count, out));
  for (size_t i = 0; i < items.count; i++) out->list->items[i] = items.items[items.count - 1 - i];
  return OK;
}

FILTER(unique) { /* case_sensitive, attribute */
  jinja_list items = {0};
  jinja_value seen;
  TRY(jinja_eval_items(state, value, &items));
  TRY(jinja_value_list(state->memory, JINJA_ITERATOR, items.count, out));
  TRY(jinja_value_dict(state->memory, JINJA_DICT, 0, &seen));
  out->list->count = 0;
  for (size_t i = 0; i < items.count; i++) {
    jinja_value key;
    size_t before = seen.dict->count;
    TRY(key_of(state, items.items[i], a[1], a[0], &key));
    TRY(jinja_value_put(state->memory, seen.dict, key, jinja_value_bool(true)));
    if (seen.dict->count > before) out->list->items[out->list->count++] = items.items[i];
  }
  return OK;
}

typedef struct sorted { jinja_value key, item; } sorted;

/* A stable merge sort of all[from, to), as Python's is; reversed, equal items keep their order, too. */
static status sort_range(jinja_state *state, sorted *all, sorted *spare, size_t from, size_t to, bool is_reversed) {
  size_t middle = from + (to - from) / 2, left = from, right = middle;
  if (to - from < 2) return OK;
  TRY(sort_range(state, all, spare, from, middle, is_reversed));
  TRY(sort_range(state, all, spare, middle, to, is_reversed));
  for (size_t i = from; i < to; i++) {
    int order = left == middle ? 1 : right == to ? -1 : 0;
    if (order == 0) {
      TRY(jinja_value_order(state->memory, all[left].key, all[right].key, &order));
      if (is_reversed) order = -order;
      order = order <= 0 ? -1 : 1;
    }
    spare[i] = order < 0 ? all[left++] : all[right++];
  }
  memcpy(all + from, spare + from, (to - from) * sizeof *all);
  return OK;
}

static status sort_items(jinja_state *state, jinja_list items, jinja_value path, jinja_value case_sensitive, bool is_reversed,
                         jinja_value *out) {
  sorted *all = NULL, *spare = NULL;
  TRY(jinja_memory_take(state->memory, items.count * sizeof *all, &all));
  TRY(jinja_memory_take(state->memory, items.count * sizeof *spare, &spare));
  for (size_t i = 0; i < items.count; i++) {
    all[i].item = items.items[i];
    TRY(key_of(state, items.items[i], path, case_sensitive, &all[i].key));
  }
  TRY(sort_range(state, all, spare, 0, items.count, is_reversed));
  TRY(jinja_value_list(state->memory, JINJA_LIST, items.count, out));
  for (size_t i = 0; i < items.count; i++) out->list->items[i] = all[i].item;
  return OK;
}

FILTER(sort) { /* reverse, case_sensitive, attribute */
  jinja_list items = {0};
  if (a[2].kind == JINJA_TEXT && jinja_text_find(a[2].text, (jinja_text){",", 1}, 0) >= 0)
    return FAIL(ERR_UNSUPPORTED, "chat template: sort by several attributes is not implemented");
  TRY(jinja_eval_items(state, value, &items));
  return sort_items(state, items, a[2], a[1], jinja_value_is_true(a[0]), out);
}

FILTER(dictsort) { /* case_sensitive, by, reverse */
  jinja_value pairs;
  jinja_list items = {0};
  bool by_value = a[1].kind == JINJA_TEXT && jinja_value_is(a[1].text, "value");
  if (value.kind != JINJA_DICT && !(value.marks & JINJA_CODED)) return FAIL(ERR_FORMAT, "chat template: dictsort: expected a dict");
  TRY(items_of(state, value, a, &pairs));
  TRY(jinja_eval_items(state, pairs, &items));
  return sort_items(state, items, jinja_value_integer(by_value), a[0], jinja_value_is_true(a[2]), out);
}

/* === Filters and tests by name =============================================================================== */

static bool is_named(const jinja_arguments *arguments, size_t i, const char *words) {
  return arguments->names[i] && jinja_value_is(arguments->names[i]->text, words);
}

/* Applies the filter or test of arguments[from] with the arguments after it. */
static status apply(jinja_state *state, const jinja_callable *callable, jinja_value item, const jinja_arguments *arguments, size_t from,
                    jinja_value *out) {
  jinja_arguments rest = {.count = 0};
  jinja_value ordered[JINJA_ARGUMENTS_MAX];
  for (size_t i = from + 1; i < arguments->count; i++) {
    rest.names[rest.count] = arguments->names[i];
    rest.items[rest.count++] = arguments->items[i];
  }
  if (++state->depth > JINJA_CALLS_MAX) return FAIL(ERR_LIMIT, "chat template: nested too deeply");
  if (callable->open) TRY(callable->open(state, item, &rest, out));
  else {
    TRY(jinja_eval_order(callable->name, callable->parameters, &rest, ordered));
    TRY(callable->filter(state, item, ordered, out));
  }
  state->depth--;
  return OK;
}

static status find_callable(const jinja_arguments *arguments, size_t at, const jinja_callable *(*find)(jinja_text),
                            const jinja_callable **out) {
  jinja_value name = arguments->items[at];
  *out = name.kind == JINJA_TEXT ? find(name.text) : NULL;
  if (*out) return OK;
  return FAIL(ERR_UNSUPPORTED, "chat template: no filter or test of this name is implemented: \"%.*s\"",
              name.kind == JINJA_TEXT ? (int)(name.text.count < 40 ? name.text.count : 40) : 0,
              name.kind == JINJA_TEXT ? name.text.bytes : "");
}

static status map(jinja_state *state, jinja_value value, const jinja_arguments *arguments, jinja_value *out) {
  jinja_list items = {0};
  const jinja_callable *callable = NULL;
  jinja_value path = {.kind = JINJA_ABSENT}, otherwise = {.kind = JINJA_ABSENT};
  for (size_t i = 0; i < arguments->count; i++) {
    if (!arguments->names[0]) break;
    if (is_named(arguments, i, "attribute")) path = arguments->items[i];
    else if (is_named(arguments, i, "default")) otherwise = arguments->items[i];
    else return FAIL(ERR_FORMAT, "chat template: map got an unexpected argument");
  }
  if (arguments->count == 0 || (arguments->names[0] && path.kind == JINJA_ABSENT))
    return FAIL(ERR_FORMAT, "chat template: map requires a filter argument");
  if (!arguments->names[0]) TRY(find_callable(arguments, 0, jinja_filters_find, &callable));
  if (jinja_value_is_true(value)) TRY(jinja_eval_items(state, value, &items));
  TRY(jinja_value_list(state->memory, JINJA_ITERATOR, items.count, out));
  for (size_t i = 0; i < items.count; i++) {
    jinja_value *made = &out->list->items[i];
    if (callable) TRY(apply(state, callable, items.items[i], arguments, 0, made));
    else TRY(follow(state, items.items[i], path, made));
    if (!callable && made->kind == JINJA_UNDEFINED && is_given(otherwise)) *made = otherwise;
  }
  return OK;
}

static status choose(jinja_state *state, jinja_value value, const jinja_arguments *arguments, bool by_attribute, bool keeps,
                     jinja_value *out) {
  jinja_list items = {0};
  const jinja_callable *callable = NULL;
  size_t at = by_attribute;
  if (arguments->count < at) return FAIL(ERR_FORMAT, "chat template: Missing parameter for attribute name");
  if (arguments->count > at) TRY(find_callable(arguments, at, jinja_tests_find, &callable));
  if (jinja_value_is_true(value)) TRY(jinja_eval_items(state, value, &items));
  TRY(jinja_value_list(state->memory, JINJA_ITERATOR, items.count, out));
  out->list->count = 0;
  for (size_t i = 0; i < items.count; i++) {
    jinja_value judged = items.items[i];
    if (by_attribute) TRY(follow(state, judged, arguments->items[0], &judged));
    if (callable) TRY(apply(state, callable, judged, arguments, at, &judged));
    if (jinja_value_is_true(judged) == keeps) out->list->items[out->list->count++] = items.items[i];
  }
  return OK;
}

#define CHOICE(name, by_attribute, keeps)                                                                              \
  static status name(jinja_state *state, jinja_value value, const jinja_arguments *arguments, jinja_value *out) { \
    return choose(state, value, arguments, by_attribute, keeps, out);                                                 \
  }
CHOICE(select_items, false, true)
CHOICE(reject_items, false, false)
CHOICE(select_by, true, true)
CHOICE(reject_by, true, false)

const jinja_callable *jinja_collect_find(jinja_text name) {
  static const jinja_callable all[] = {
    {"first", "", first, NULL}, {"last", "", last, NULL}, {"min", "case_sensitive,attribute", smallest, NULL},
    {"max", "case_sensitive,attribute", largest, NULL}, {"sum", "attribute,start", sum, NULL}, {"join", "d,attribute", join, NULL},
    {"list", "", list, NULL}, {"items", "", items_of, NULL}, {"reverse", "", reverse, NULL},
    {"unique", "case_sensitive,attribute", unique, NULL}, {"sort", "reverse,case_sensitive,attribute", sort, NULL},
    {"dictsort", "case_sensitive,by,reverse", dictsort, NULL}, {"map", "*", NULL, map}, {"select", "*", NULL, select_items},
    {"reject", "*", NULL, reject_items}, {"selectattr", "*", NULL, select_by}, {"rejectattr", "*", NULL, reject_by}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    if (jinja_value_is(name, all[i].name)) return &all[i];
  return NULL;
}
