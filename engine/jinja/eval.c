/* jinja/eval.c - see jinja/eval.h. */
#include "jinja/eval.h"
#include <string.h>
#include "jinja/filters.h"
#include "jinja/globals.h"
#include "jinja/methods.h"
#include "jinja/operate.h"
#include "jinja/run.h"
#include "jinja/text.h"
#include "jinja/write.h"

/* === Scopes ================================================================================================== */

status jinja_eval_scope(jinja_state *state, jinja_scope *parent) {
  jinja_scope *scope = NULL;
  TRY(jinja_memory_take(state->memory, sizeof *scope, &scope));
  scope->parent = parent;
  state->scope = scope;
  return OK;
}

static jinja_binding *find_binding(const jinja_scope *scope, const jinja_name *name) {
  jinja_binding *binding = scope->bindings;
  while (binding && binding->name != name) binding = binding->next;
  return binding;
}

status jinja_eval_bind(jinja_state *state, const jinja_name *name, jinja_value value) {
  jinja_binding *binding = find_binding(state->scope, name);
  if (!binding) {
    TRY(jinja_memory_take(state->memory, sizeof *binding, &binding));
    binding->name = name;
    binding->next = state->scope->bindings;
    state->scope->bindings = binding;
  }
  binding->value = value;
  return OK;
}

const jinja_name *jinja_eval_name(const jinja_tree *tree, const char *words) {
  const jinja_name *name = tree->names;
  while (name && !jinja_value_is(name->text, words)) name = name->next;
  return name;
}

static status read_variable(jinja_state *state, const jinja_name *name, jinja_value *out) {
  for (const jinja_scope *scope = state->scope; scope; scope = scope->parent) {
    const jinja_binding *binding = find_binding(scope, name);
    if (!binding) continue;
    *out = binding->value;
    return OK;
  }
  const jinja_function *function = jinja_globals_find(name->text);
  if (function) *out = (jinja_value){.kind = JINJA_FUNCTION, .function = function};
  else {
    char *missing = NULL;
    TRY(jinja_memory_take(state->memory, name->text.count + 1, &missing));
    memcpy(missing, name->text.bytes, name->text.count);
    *out = jinja_value_undefined(missing);
  }
  return OK;
}

/* === Items =================================================================================================== */

static status wants_object(jinja_state *state) {
  state->memory->wants_objects = true;
  return FAIL(ERR_FORMAT, "chat template: a text of JSON is used as an object");
}

status jinja_eval_items(jinja_state *state, jinja_value value, jinja_list *out) {
  jinja_value made;
  if (value.marks & JINJA_CODED) return wants_object(state);
  if (value.marks & JINJA_QUIET) value = jinja_value_undefined("");
  switch ((jinja_kind)value.kind) {
    case JINJA_UNDEFINED: *out = (jinja_list){0}; return OK;
    case JINJA_LIST: case JINJA_TUPLE: case JINJA_RANGE: case JINJA_VIEW: *out = *value.list; return OK;
    case JINJA_ITERATOR:
      *out = (jinja_list){.items = value.list->items + value.list->at, .count = value.list->count - value.list->at};
      value.list->at = value.list->count;
      return OK;
    case JINJA_DICT:
      TRY(jinja_value_list(state->memory, JINJA_LIST, value.dict->count, &made));
      for (size_t i = 0; i < value.dict->count; i++) made.list->items[i] = value.dict->entries[i].key;
      *out = *made.list;
      return OK;
    case JINJA_TEXT:
      TRY(jinja_value_list(state->memory, JINJA_LIST, jinja_text_length(value.text), &made));
      for (size_t i = 0, at = 0, step; at < value.text.count; i++, at += step) {
        step = jinja_text_step(value.text, at);
        made.list->items[i] = jinja_value_text(value.text.bytes + at, step);
      }
      *out = *made.list;
      return OK;
    default: return FAIL(ERR_FORMAT, "chat template: '%s' object is not iterable", jinja_value_type(value));
  }
}

static status undefined_member(jinja_state *state, jinja_value value, jinja_text name, jinja_value *out) {
  strbuf words = {0};
  jinja_value text;
  strbuf_addf(&words, "%s object has no attribute '", jinja_value_type(value));
  strbuf_add(&words, name.bytes, name.count < 64 ? name.count : 64);
  strbuf_add(&words, "'", 2); /* with the NUL */
  TRY(jinja_value_take(state->memory, &words, &text));
  *out = jinja_value_undefined(text.text.bytes);
  return OK;
}

static status not_defined(jinja_value value) {
  bool is_name = !strchr(value.missing, ' ');
  return FAIL(ERR_FORMAT, is_name ? "chat template: '%s' is undefined" : "chat template: %s", value.missing);
}

static bool read_entry(const jinja_dict *dict, jinja_text name, jinja_value *out) {
  jinja_entry *entry = jinja_value_find(dict, name);
  if (!entry) return false;
  entry->was_read = true;
  *out = entry->value;
  return true;
}

status jinja_eval_attribute(jinja_state *state, jinja_value value, jinja_text name, jinja_value *out) {
  bool is_found = false;
  if (value.kind == JINJA_UNDEFINED) return not_defined(value);
  if (value.marks & JINJA_QUIET) value = jinja_value_words("");
  TRY(jinja_memory_step(state->memory, 0));
  if (value.kind == JINJA_LOOP) return jinja_run_loop_member(state, value.loop, name, out);
  if (value.kind == JINJA_NAMESPACE && read_entry(value.dict, name, out)) return OK;
  TRY(jinja_methods_bind(state, value, name, out, &is_found));
  if (is_found) return OK;
  if (value.marks & JINJA_CODED) return wants_object(state);
  if (value.kind == JINJA_DICT && read_entry(value.dict, name, out)) return OK;
  return undefined_member(state, value, name, out);
}

static status read_listed(jinja_state *state, jinja_value value, jinja_value key, jinja_value *out) {
  int64_t index = key.kind == JINJA_BOOL ? key.truth : key.integer, count = 0;
  bool is_text = value.kind == JINJA_TEXT;
  if (is_text) TRY(jinja_memory_step(state->memory, value.text.count));
  count = is_text ? (int64_t)jinja_text_length(value.text) : (int64_t)value.list->count;
  if (index < 0) index += count;
  if (index < 0 || index >= count) {
    *out = jinja_value_undefined("an item beyond the list's end");
    return OK;
  }
  if (!is_text) {
    *out = value.list->items[index];
    return OK;
  }
  size_t at = jinja_text_offset(value.text, (size_t)index);
  *out = jinja_value_text(value.text.bytes + at, jinja_text_step(value.text, at));
  return OK;
}

status jinja_eval_item(jinja_state *state, jinja_value value, jinja_value key, jinja_value *out) {
  bool is_index = key.kind == JINJA_INTEGER || key.kind == JINJA_BOOL, is_found = false;
  if (value.kind == JINJA_UNDEFINED) return not_defined(value);
  if (value.marks & JINJA_CODED) return wants_object(state);
  TRY(jinja_memory_step(state->memory, 0));
  if (is_index && (value.kind == JINJA_TEXT || value.kind == JINJA_LIST || value.kind == JINJA_TUPLE || value.kind == JINJA_RANGE))
    return read_listed(state, value, key, out);
  if (value.kind == JINJA_DICT && key.kind == JINJA_TEXT && read_entry(value.dict, key.text, out)) return OK;
  for (size_t i = 0; value.kind == JINJA_DICT && key.kind != JINJA_TEXT && i < value.dict->count; i++) {
    TRY(jinja_value_equal(state->memory, value.dict->entries[i].key, key, &is_found));
    if (!is_found) continue;
    *out = value.dict->entries[i].value;
    return OK;
  }
  if (key.kind == JINJA_TEXT && value.kind != JINJA_DICT) return jinja_eval_attribute(state, value, key.text, out);
  if (key.kind == JINJA_TEXT) TRY(jinja_methods_bind(state, value, key.text, out, &is_found));
  if (is_found) return OK;
  jinja_text name = key.kind == JINJA_TEXT ? key.text : (jinja_text){"?", 1};
  return undefined_member(state, value, name, out);
}

/* === Slices ================================================================================================== */

static status read_bound(jinja_state *state, const jinja_node *node, int64_t otherwise, int64_t *out) {
  jinja_value value = {.kind = JINJA_NONE};
  if (node) TRY(jinja_eval(state, node, &value));
  if (value.kind == JINJA_NONE) *out = otherwise;
  else if (value.kind == JINJA_INTEGER || value.kind == JINJA_BOOL) *out = value.kind == JINJA_BOOL ? value.truth : value.integer;
  else return FAIL(ERR_FORMAT, "chat template: slice indices must be integers or None, found '%s'", jinja_value_type(value));
  return OK;
}

/* Python's slice.indices: bounds within [low, high]. */
static int64_t clamp(int64_t index, int64_t count, int64_t low, int64_t high) {
  if (index < 0) index = index < -count ? low : index + count;
  return index < low ? low : index > high ? high : index;
}

static status slice_text(jinja_state *state, jinja_text text, int64_t start, int64_t stop, int64_t step, size_t made, jinja_value *out) {
  if (made == 0) {
    *out = jinja_value_words("");
    return OK;
  }
  if (step == 1) {
    size_t from = jinja_text_offset(text, (size_t)start);
    jinja_text rest = {text.bytes + from, text.count - from};
    *out = jinja_value_text(rest.bytes, jinja_text_offset(rest, (size_t)(stop - start)));
    return OK;
  }
  jinja_list items = {0};
  strbuf picked = {0};
  TRY(jinja_eval_items(state, jinja_value_text(text.bytes, text.count), &items));
  for (size_t i = 0; i < made; i++, start += step) strbuf_add(&picked, items.items[start].text.bytes, items.items[start].text.count);
  return jinja_value_take(state->memory, &picked, out);
}

static status eval_slice(jinja_state *state, jinja_value value, const jinja_node *node, jinja_value *out) {
  int64_t start = 0, stop = 0, step = 0;
  if (value.kind == JINJA_UNDEFINED) return not_defined(value);
  if (value.marks & JINJA_CODED) return wants_object(state);
  bool is_text = value.kind == JINJA_TEXT, is_list = value.kind >= JINJA_LIST && value.kind <= JINJA_RANGE;
  if (is_text) TRY(jinja_memory_step(state->memory, value.text.count));
  int64_t count = is_text ? (int64_t)jinja_text_length(value.text) : is_list ? (int64_t)value.list->count : 0;
  TRY(read_bound(state, node->c, 1, &step));
  if (step == 0) return FAIL(ERR_FORMAT, "chat template: slice step cannot be zero");
  TRY(read_bound(state, node->a, step > 0 ? 0 : INT64_MAX, &start));
  TRY(read_bound(state, node->b, step > 0 ? INT64_MAX : INT64_MIN, &stop));
  if (!is_text && !is_list) return undefined_member(state, value, (jinja_text){"[:]", 3}, out);
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
  start = clamp(start, count, low, high);
  stop = clamp(stop, count, low, high);
  uint64_t span = step > 0 ? (stop > start ? (uint64_t)(stop - start) : 0) : (start > stop ? (uint64_t)(start - stop) : 0);
  uint64_t stride = step > 0 ? (uint64_t)step : (uint64_t)0 - (uint64_t)step;
  size_t made = span ? (size_t)((span - 1) / stride + 1) : 0;
  if (is_text) return slice_text(state, value.text, start, stop, step, made, out);
  TRY(jinja_value_list(state->memory, (jinja_kind)value.kind, made, out));
  for (size_t i = 0; i < made; i++) out->list->items[i] = value.list->items[start + (int64_t)i * step];
  return OK;
}

/* === Calls =================================================================================================== */

status jinja_eval_arguments(jinja_state *state, const jinja_node *list, jinja_arguments *out) {
  out->count = 0;
  for (; list; list = list->next) {
    bool is_keyword = list->kind == JINJA_KEYWORD;
    if (out->count == JINJA_ARGUMENTS_MAX) return FAIL(ERR_LIMIT, "chat template: more than %u arguments", JINJA_ARGUMENTS_MAX);
    TRY(jinja_eval(state, is_keyword ? list->a : list, &out->items[out->count]));
    out->names[out->count++] = is_keyword ? list->name : NULL;
  }
  return OK;
}

/* The place of a name in "a,b,c"; -1: not in it. Also counts the parameters. */
static int place_of(const char *parameters, const jinja_text *name, int *count) {
  int place = -1;
  *count = 0;
  for (const char *from = parameters; *from; from += *from == ',') {
    size_t bytes = strcspn(from, ",");
    if (name && name->count == bytes && memcmp(name->bytes, from, bytes) == 0) place = *count;
    ++*count;
    from += bytes;
  }
  return place;
}

status jinja_eval_order(const char *what, const char *parameters, const jinja_arguments *arguments, jinja_value *ordered) {
  int count = 0, position = 0;
  place_of(parameters, NULL, &count);
  for (int i = 0; i < count; i++) ordered[i] = (jinja_value){.kind = JINJA_ABSENT};
  for (size_t i = 0; i < arguments->count; i++) {
    const jinja_name *name = arguments->names[i];
    int place = name ? place_of(parameters, &name->text, &count) : position++;
    if (!name && place >= count) return FAIL(ERR_FORMAT, "chat template: %s takes at most %d arguments", what, count);
    if (place < 0 || ordered[place].kind != JINJA_ABSENT)
      return FAIL(ERR_FORMAT, "chat template: %s got an unexpected argument '%.*s'", what, name ? (int)name->text.count : 0,
                  name ? name->text.bytes : "");
    ordered[place] = arguments->items[i];
  }
  return OK;
}

status jinja_eval_call(jinja_state *state, jinja_value callee, const jinja_arguments *arguments, jinja_value *out) {
  jinja_value ordered[JINJA_ARGUMENTS_MAX];
  switch ((jinja_kind)callee.kind) {
    case JINJA_MACRO: return jinja_run_macro(state, callee.macro, arguments, out);
    case JINJA_METHOD: return jinja_methods_call(state, callee.bound, arguments, out);
    case JINJA_FUNCTION:
      if (callee.function->open) return callee.function->open(state, arguments, out);
      TRY(jinja_eval_order(callee.function->name, callee.function->parameters, arguments, ordered));
      return callee.function->call(state, ordered, out);
    case JINJA_UNDEFINED: return not_defined(callee);
    default: return FAIL(ERR_FORMAT, "chat template: '%s' object is not callable", jinja_value_type(callee));
  }
}

static status eval_call(jinja_state *state, const jinja_node *node, jinja_value *out) {
  jinja_value callee;
  jinja_arguments arguments;
  TRY(jinja_eval(state, node->a, &callee));
  TRY(jinja_eval_arguments(state, node->b, &arguments));
  return jinja_eval_call(state, callee, &arguments, out);
}

static status call_callable(jinja_state *state, const jinja_node *node, jinja_value value, jinja_value *out) {
  jinja_value ordered[JINJA_ARGUMENTS_MAX];
  jinja_arguments arguments;
  if (!node->callable)
    return FAIL(ERR_UNSUPPORTED, "chat template, line %u: this %s is not implemented: \"%.*s\"", node->line,
                node->kind == JINJA_FILTER ? "filter" : "test", (int)node->name->text.count, node->name->text.bytes);
  TRY(jinja_eval_arguments(state, node->b, &arguments));
  if (node->callable->open) return node->callable->open(state, value, &arguments, out);
  TRY(jinja_eval_order(node->callable->name, node->callable->parameters, &arguments, ordered));
  return node->callable->filter(state, value, ordered, out);
}

status jinja_eval_filter(jinja_state *state, const jinja_node *node, jinja_value value, jinja_value *out) {
  if (node->a) TRY(jinja_eval_filter(state, node->a, value, &value)); /* a chain that begins without an operand */
  return call_callable(state, node, value, out);
}

/* === Expressions ============================================================================================= */

static status make_list(jinja_state *state, const jinja_node *node, jinja_kind kind, jinja_value *out) {
  size_t count = 0;
  for (const jinja_node *item = node->a; item; item = item->next) count++;
  TRY(jinja_value_list(state->memory, kind, count, out));
  count = 0;
  for (const jinja_node *item = node->a; item; item = item->next) TRY(jinja_eval(state, item, &out->list->items[count++]));
  return OK;
}

static status make_dict(jinja_state *state, const jinja_node *node, jinja_value *out) {
  TRY(jinja_value_dict(state->memory, JINJA_DICT, 0, out));
  for (const jinja_node *key = node->a; key; key = key->next->next) {
    jinja_value name, value;
    TRY(jinja_eval(state, key, &name));
    TRY(jinja_eval(state, key->next, &value));
    TRY(jinja_value_put(state->memory, out->dict, name, value));
  }
  return OK;
}

static status eval_compare(jinja_state *state, const jinja_node *node, jinja_value *out) {
  jinja_value left, right;
  bool is_true = true;
  TRY(jinja_eval(state, node->a, &left));
  for (const jinja_node *operand = node->b; operand && is_true; operand = operand->next) {
    TRY(jinja_eval(state, operand->a, &right));
    TRY(jinja_operate_compare(state, operand->op, left, right, &is_true));
    left = right;
  }
  *out = jinja_value_bool(is_true);
  return OK;
}

static status eval_join(jinja_state *state, const jinja_node *node, jinja_value *out) {
  strbuf joined = {0};
  status result = OK;
  for (const jinja_node *item = node->a; item && result == OK; item = item->next) {
    jinja_value value;
    result = jinja_eval(state, item, &value);
    if (result == OK) result = jinja_write_text(state->memory, value, &joined);
  }
  if (result == OK) result = jinja_value_take(state->memory, &joined, out);
  strbuf_close(&joined);
  return result;
}

static status eval_two(jinja_state *state, const jinja_node *node, jinja_value *out) {
  jinja_value left, right;
  TRY(jinja_eval(state, node->a, &left));
  TRY(jinja_eval(state, node->b, &right));
  return jinja_operate_binary(state, node->kind, left, right, out);
}

/* Whether the filter or test is one of those to which StrictUndefined may be given. */
static bool takes_undefined(const jinja_node *node) {
  static const char *const names[] = {"defined", "undefined", "default", "d"};
  bool is_one = false;
  if (node->kind != JINJA_FILTER && node->kind != JINJA_TEST) return false;
  for (size_t i = 0; i < ARRAY_LEN(names); i++) is_one |= jinja_value_is(node->name->text, names[i]);
  return is_one;
}

static status eval_postfix(jinja_state *state, const jinja_node *node, jinja_value *out) {
  jinja_value value, key;
  state->may_miss = takes_undefined(node);
  TRY(jinja_eval(state, node->a, &value));
  if (node->kind == JINJA_ATTRIBUTE) return jinja_eval_attribute(state, value, node->name->text, out);
  if (node->kind == JINJA_FILTER || node->kind == JINJA_TEST) return call_callable(state, node, value, out);
  if (node->b->kind == JINJA_SLICE) return eval_slice(state, value, node->b, out);
  TRY(jinja_eval(state, node->b, &key));
  return jinja_eval_item(state, value, key, out);
}

static status eval_logic(jinja_state *state, const jinja_node *node, jinja_value *out) {
  jinja_value value;
  TRY(jinja_eval(state, node->a, &value));
  bool is_true = jinja_value_is_true(value);
  *out = value;
  if (node->kind == JINJA_NOT) *out = jinja_value_bool(!is_true);
  else if (node->kind == JINJA_AND) return is_true ? jinja_eval(state, node->b, out) : OK;
  else if (node->kind == JINJA_OR) return is_true ? OK : jinja_eval(state, node->b, out);
  else if (is_true) return jinja_eval(state, node->b, out);
  else if (node->c) return jinja_eval(state, node->c, out);
  else *out = jinja_value_undefined("the inline if-expression evaluated to false and no else section was defined");
  return OK;
}

static status eval_one(jinja_state *state, const jinja_node *node, jinja_value *out) {
  jinja_value value;
  switch (node->kind) {
    case JINJA_CONSTANT: *out = node->value; return OK;
    case JINJA_VARIABLE: return read_variable(state, node->name, out);
    case JINJA_MAKE_LIST: return make_list(state, node, JINJA_LIST, out);
    case JINJA_MAKE_TUPLE: return make_list(state, node, JINJA_TUPLE, out);
    case JINJA_MAKE_DICT: return make_dict(state, node, out);
    case JINJA_ATTRIBUTE: case JINJA_ITEM: case JINJA_FILTER: case JINJA_TEST: return eval_postfix(state, node, out);
    case JINJA_CALL: return eval_call(state, node, out);
    case JINJA_NOT: case JINJA_AND: case JINJA_OR: case JINJA_CHOICE: return eval_logic(state, node, out);
    case JINJA_COMPARE: return eval_compare(state, node, out);
    case JINJA_JOIN: return eval_join(state, node, out);
    case JINJA_NEGATE: case JINJA_POSITIVE:
      TRY(jinja_eval(state, node->a, &value));
      return jinja_operate_unary(node->kind, value, out);
    default: return eval_two(state, node, out);
  }
}

status jinja_eval(jinja_state *state, const jinja_node *node, jinja_value *out) {
  TRY(jinja_memory_step(state->memory, 0));
  if (++state->depth > JINJA_CALLS_MAX) return FAIL(ERR_LIMIT, "chat template, line %u: nested too deeply", node->line);
  bool may_miss = state->may_miss;
  state->may_miss = false;
  TRY(eval_one(state, node, out));
  state->depth--;
  if (node->kind == JINJA_CHOICE) may_miss = true; /* jinja2: an "if" without its "else" gives the lenient Undefined in any environment */
  return out->kind == JINJA_UNDEFINED && state->tree->is_plain && !may_miss ? not_defined(*out) : OK;
}
