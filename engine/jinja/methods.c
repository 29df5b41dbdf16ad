/* jinja/methods.c - see jinja/methods.h. */
#include "jinja/methods.h"
#include <stdlib.h>
#include <string.h>
#include "jinja/text.h"
#include "jinja/write.h"

typedef struct jinja_method {
  const char *name, *parameters; /* NULL: it would change the value, and so is undefined in the sandbox */
  status (*call)(jinja_state *state, jinja_value self, const jinja_value *arguments, jinja_value *out); /* NULL: not implemented */
} jinja_method;

static bool is_given(jinja_value value) { return value.kind != JINJA_ABSENT && value.kind != JINJA_NONE; }

static status need_text(jinja_value value, const char *what, jinja_text *out) {
  if (value.kind != JINJA_TEXT) return FAIL(ERR_FORMAT, "chat template: %s: expected a str, found '%s'", what, jinja_value_type(value));
  *out = value.text;
  return OK;
}

static status need_count(jinja_value value, const char *what, int64_t otherwise, int64_t *out) {
  *out = otherwise;
  if (value.kind == JINJA_ABSENT) return OK;
  if (value.kind != JINJA_INTEGER && value.kind != JINJA_BOOL)
    return FAIL(ERR_FORMAT, "chat template: %s: expected an int, found '%s'", what, jinja_value_type(value));
  *out = value.kind == JINJA_BOOL ? value.truth : value.integer;
  return OK;
}

/* === Texts =================================================================================================== */

static status strip(jinja_value self, const jinja_value *arguments, bool start, bool end, jinja_value *out) {
  jinja_text set = {0};
  bool is_set = is_given(arguments[0]);
  if (is_set) TRY(need_text(arguments[0], "strip", &set));
  jinja_text kept = jinja_text_strip(self.text, is_set ? &set : NULL, start, end);
  *out = jinja_value_text(kept.bytes, kept.count);
  return OK;
}

static status text_strip(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  TRY(jinja_memory_step(state->memory, self.text.count));
  return strip(self, a, true, true, out);
}
static status text_lstrip(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  TRY(jinja_memory_step(state->memory, self.text.count));
  return strip(self, a, true, false, out);
}
static status text_rstrip(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  TRY(jinja_memory_step(state->memory, self.text.count));
  return strip(self, a, false, true, out);
}

static status split(jinja_state *state, jinja_value self, const jinja_value *a, bool from_end, jinja_value *out) {
  jinja_text separator = {0};
  int64_t most = -1;
  if (is_given(a[0])) TRY(need_text(a[0], "split", &separator));
  TRY(need_count(a[1], "split", -1, &most));
  return jinja_text_split(state->memory, self.text, is_given(a[0]) ? &separator : NULL, most, from_end && most >= 0, out);
}
static status text_split(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  return split(state, self, a, false, out);
}
static status text_rsplit(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  return split(state, self, a, true, out);
}

static status text_splitlines(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  return jinja_text_lines(state->memory, self.text, jinja_value_is_true(a[0]), out);
}

/* text.startswith(x) or of any text in a tuple. */
static status touches(jinja_value self, jinja_value what, bool (*test)(jinja_text, jinja_text), jinja_value *out) {
  jinja_text piece = {0};
  bool is_true = false;
  if (what.kind == JINJA_TUPLE) {
    for (size_t i = 0; i < what.list->count && !is_true; i++) {
      TRY(need_text(what.list->items[i], "startswith, endswith", &piece));
      is_true = test(self.text, piece);
    }
  } else {
    TRY(need_text(what, "startswith, endswith", &piece));
    is_true = test(self.text, piece);
  }
  *out = jinja_value_bool(is_true);
  return OK;
}
static status text_startswith(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)state;
  return touches(self, a[0], jinja_text_starts, out);
}
static status text_endswith(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)state;
  return touches(self, a[0], jinja_text_ends, out);
}

static status remove_end(jinja_value self, jinja_value what, bool is_start, jinja_value *out) {
  jinja_text piece = {0};
  TRY(need_text(what, "removeprefix, removesuffix", &piece));
  bool is_there = is_start ? jinja_text_starts(self.text, piece) : jinja_text_ends(self.text, piece);
  size_t removed = is_there ? piece.count : 0;
  *out = jinja_value_text(self.text.bytes + (is_start ? removed : 0), self.text.count - removed);
  return OK;
}
static status text_removeprefix(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)state;
  return remove_end(self, a[0], true, out);
}
static status text_removesuffix(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)state;
  return remove_end(self, a[0], false, out);
}

static status text_lower(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)a;
  return jinja_text_change(state->memory, self.text, JINJA_LOWER, out);
}
static status text_upper(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)a;
  return jinja_text_change(state->memory, self.text, JINJA_UPPER, out);
}
static status text_title(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)a;
  return jinja_text_change(state->memory, self.text, JINJA_TITLE, out);
}
static status text_capitalize(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)a;
  return jinja_text_change(state->memory, self.text, JINJA_CAPITAL, out);
}

static status text_replace(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  jinja_text old = {0}, new = {0};
  int64_t most = -1;
  TRY(need_text(a[0], "replace", &old));
  TRY(need_text(a[1], "replace", &new));
  TRY(need_count(a[2], "replace", -1, &most));
  return jinja_text_replace(state->memory, self.text, old, new, most, out);
}

static status find(jinja_state *state, jinja_value self, jinja_value what, bool is_last, bool must_be, jinja_value *out) {
  jinja_text piece = {0};
  TRY(need_text(what, "find", &piece));
  TRY(jinja_memory_step(state->memory, self.text.count));
  ptrdiff_t at = is_last ? jinja_text_find_last(self.text, piece) : jinja_text_find(self.text, piece, 0);
  if (at < 0 && must_be) return FAIL(ERR_FORMAT, "chat template: substring not found");
  if (at > 0) at = (ptrdiff_t)jinja_text_length((jinja_text){self.text.bytes, (size_t)at});
  *out = jinja_value_integer(at);
  return OK;
}
static status text_find(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  return find(state, self, a[0], false, false, out);
}
static status text_rfind(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  return find(state, self, a[0], true, false, out);
}
static status text_index(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  return find(state, self, a[0], false, true, out);
}

static status text_count(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  jinja_text piece = {0};
  int64_t count = 0;
  TRY(need_text(a[0], "count", &piece));
  TRY(jinja_memory_step(state->memory, self.text.count));
  if (piece.count == 0) count = (int64_t)jinja_text_length(self.text) + 1;
  for (ptrdiff_t at = 0; piece.count && (at = jinja_text_find(self.text, piece, (size_t)at)) >= 0; at += (ptrdiff_t)piece.count) count++;
  *out = jinja_value_integer(count);
  return OK;
}

static status text_join(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  jinja_list items = {0};
  strbuf joined = {0};
  TRY(jinja_eval_items(state, a[0], &items));
  for (size_t i = 0; i < items.count; i++) {
    status result = items.items[i].kind == JINJA_TEXT && i ? jinja_write_text(state->memory, self, &joined) : OK;
    if (items.items[i].kind != JINJA_TEXT)
      result = FAIL(ERR_FORMAT, "chat template: join: item %zu is no str but '%s'", i, jinja_value_type(items.items[i]));
    if (result == OK) result = jinja_write_text(state->memory, items.items[i], &joined);
    if (result != OK) strbuf_close(&joined);
    TRY(result);
  }
  return jinja_value_take(state->memory, &joined, out);
}

/* Whether all bytes are in the class; an answer for letters beyond ASCII needs tables that differ between versions. */
static status are_all(jinja_value self, const char *ranges, jinja_value *out) {
  bool is_true = self.text.count > 0;
  for (size_t i = 0; i < self.text.count; i++) {
    uint8_t c = (uint8_t)self.text.bytes[i];
    bool is_in = false;
    if (c >= 0x80) return FAIL(ERR_UNSUPPORTED, "chat template: isdigit and the like of a text that is not ASCII are not implemented");
    for (const char *r = ranges; *r && !is_in; r += 2) is_in = c >= (uint8_t)r[0] && c <= (uint8_t)r[1];
    is_true &= is_in;
  }
  *out = jinja_value_bool(is_true);
  return OK;
}
static status text_isdigit(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)state, (void)a;
  return are_all(self, "09", out);
}
static status text_isalpha(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)state, (void)a;
  return are_all(self, "azAZ", out);
}
static status text_isalnum(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)state, (void)a;
  return are_all(self, "azAZ09", out);
}
static status text_isspace(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)state, (void)a;
  *out = jinja_value_bool(self.text.count && jinja_text_strip(self.text, NULL, true, false).count == 0);
  return OK;
}

static const jinja_method of_texts[] = {
  {"strip", "chars", text_strip}, {"lstrip", "chars", text_lstrip}, {"rstrip", "chars", text_rstrip},
  {"split", "sep,maxsplit", text_split}, {"rsplit", "sep,maxsplit", text_rsplit}, {"splitlines", "keepends", text_splitlines},
  {"startswith", "prefix", text_startswith}, {"endswith", "suffix", text_endswith}, {"removeprefix", "prefix", text_removeprefix},
  {"removesuffix", "suffix", text_removesuffix}, {"lower", "", text_lower}, {"upper", "", text_upper}, {"title", "", text_title},
  {"capitalize", "", text_capitalize}, {"replace", "old,new,count", text_replace}, {"find", "sub", text_find}, {"rfind", "sub", text_rfind},
  {"index", "sub", text_index}, {"count", "sub", text_count}, {"join", "iterable", text_join}, {"isdigit", "", text_isdigit},
  {"isnumeric", "", text_isdigit}, {"isdecimal", "", text_isdigit}, {"isalpha", "", text_isalpha}, {"isalnum", "", text_isalnum},
  {"isspace", "", text_isspace}, {"casefold", "", NULL}, {"center", "", NULL}, {"encode", "", NULL}, {"expandtabs", "", NULL},
  {"format", "", NULL}, {"format_map", "", NULL}, {"isascii", "", NULL}, {"isidentifier", "", NULL}, {"islower", "", NULL},
  {"isprintable", "", NULL}, {"istitle", "", NULL}, {"isupper", "", NULL}, {"ljust", "", NULL}, {"maketrans", "", NULL},
  {"partition", "", NULL}, {"rindex", "", NULL}, {"rjust", "", NULL}, {"rpartition", "", NULL}, {"swapcase", "", NULL},
  {"translate", "", NULL}, {"zfill", "", NULL},
};

/* === Dicts and lists ========================================================================================= */

static status dict_get(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  jinja_value found = {.kind = JINJA_ABSENT};
  for (size_t i = 0; i < self.dict->count; i++) {
    bool is_equal = false;
    TRY(jinja_value_equal(state->memory, self.dict->entries[i].key, a[0], &is_equal));
    if (!is_equal) continue;
    self.dict->entries[i].was_read = true;
    found = self.dict->entries[i].value;
  }
  *out = found.kind != JINJA_ABSENT ? found : a[1].kind != JINJA_ABSENT ? a[1] : (jinja_value){.kind = JINJA_NONE};
  return OK;
}

static status view(jinja_state *state, jinja_value self, bool keys, bool values, jinja_value *out) {
  TRY(jinja_value_list(state->memory, JINJA_VIEW, self.dict->count, out));
  for (size_t i = 0; i < self.dict->count; i++) {
    jinja_entry *entry = &self.dict->entries[i];
    entry->was_read |= values;
    out->list->items[i] = keys ? entry->key : entry->value;
    if (!keys || !values) continue;
    TRY(jinja_value_list(state->memory, JINJA_TUPLE, 2, &out->list->items[i]));
    out->list->items[i].list->items[0] = entry->key;
    out->list->items[i].list->items[1] = entry->value;
  }
  return OK;
}
static status dict_items(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)a;
  return view(state, self, true, true, out);
}
static status dict_keys(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)a;
  return view(state, self, true, false, out);
}
static status dict_values(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  (void)a;
  return view(state, self, false, true, out);
}

static const jinja_method of_dicts[] = {
  {"get", "key,default", dict_get}, {"items", "", dict_items}, {"keys", "", dict_keys}, {"values", "", dict_values}, {"clear", NULL, NULL},
  {"copy", "", NULL}, {"fromkeys", "", NULL}, {"pop", NULL, NULL}, {"popitem", NULL, NULL},
  {"setdefault", NULL, NULL}, {"update", NULL, NULL},
};

static status list_count(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  int64_t count = 0;
  for (size_t i = 0; i < self.list->count; i++) {
    bool is_equal = false;
    TRY(jinja_value_equal(state->memory, self.list->items[i], a[0], &is_equal));
    count += is_equal;
  }
  *out = jinja_value_integer(count);
  return OK;
}

static status list_index(jinja_state *state, jinja_value self, const jinja_value *a, jinja_value *out) {
  for (size_t i = 0; i < self.list->count; i++) {
    bool is_equal = false;
    TRY(jinja_value_equal(state->memory, self.list->items[i], a[0], &is_equal));
    if (!is_equal) continue;
    *out = jinja_value_integer((int64_t)i);
    return OK;
  }
  return FAIL(ERR_FORMAT, "chat template: index: the value is not in the list");
}

static const jinja_method of_lists[] = { /* the first two also of tuples */
  {"count", "value", list_count}, {"index", "value", list_index}, {"append", NULL, NULL}, {"clear", NULL, NULL}, {"copy", "", NULL},
  {"extend", NULL, NULL}, {"insert", NULL, NULL}, {"pop", NULL, NULL}, {"remove", NULL, NULL},
  {"reverse", NULL, NULL}, {"sort", NULL, NULL},
};

/* === Binding ================================================================================================= */

status jinja_methods_bind(jinja_state *state, jinja_value self, jinja_text name, jinja_value *out, bool *is_found) {
  const jinja_method *all = self.kind == JINJA_TEXT ? of_texts : self.kind == JINJA_DICT ? of_dicts : of_lists;
  size_t count = self.kind == JINJA_TEXT ? ARRAY_LEN(of_texts) : self.kind == JINJA_DICT ? ARRAY_LEN(of_dicts) : 0;
  if (self.kind == JINJA_LIST) count = ARRAY_LEN(of_lists);
  if (self.kind == JINJA_TUPLE) count = 2;
  *is_found = false;
  for (size_t i = 0; i < count; i++) {
    jinja_bound *bound = NULL;
    if (!jinja_value_is(name, all[i].name)) continue;
    *is_found = true;
    *out = jinja_value_undefined("a method that changes a list or dict is unsafe");
    if (!all[i].parameters) break;
    TRY(jinja_memory_take(state->memory, sizeof *bound, &bound));
    *bound = (jinja_bound){&all[i], self};
    *out = (jinja_value){.kind = JINJA_METHOD, .bound = bound};
    break;
  }
  return OK;
}

status jinja_methods_call(jinja_state *state, const jinja_bound *bound, const jinja_arguments *arguments, jinja_value *out) {
  jinja_value ordered[JINJA_ARGUMENTS_MAX];
  const jinja_method *method = bound->method;
  if (!method->call)
    return FAIL(ERR_UNSUPPORTED, "chat template: %s.%s() is not implemented", jinja_value_type(bound->self), method->name);
  if (bound->self.marks & JINJA_SAFE)
    return FAIL(ERR_UNSUPPORTED, "chat template: %s() of a text from the filter safe is not implemented", method->name);
  TRY(jinja_eval_order(method->name, method->parameters, arguments, ordered));
  return method->call(state, bound->self, ordered, out);
}
