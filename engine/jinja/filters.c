/* jinja/filters.c - see jinja/filters.h. Filters of one value; collect.c has those of many. */
#include "jinja/filters.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "jinja/collect.h"
#include "jinja/text.h"
#include "jinja/write.h"

#define FILTER(name) static status name(jinja_state *state, jinja_value value, const jinja_value *a, jinja_value *out)

static bool is_given(jinja_value value) { return value.kind != JINJA_ABSENT && value.kind != JINJA_NONE; }

/* str(value), as most filters of texts begin. */
static status to_text(jinja_state *state, jinja_value value, jinja_text *out) {
  strbuf text = {0};
  jinja_value made = value;
  if (value.kind != JINJA_TEXT) {
    status result = jinja_write_text(state->memory, value, &text);
    if (result == OK) result = jinja_value_take(state->memory, &text, &made);
    strbuf_close(&text);
    TRY(result);
  }
  *out = made.text;
  return OK;
}

/* === Texts =================================================================================================== */

FILTER(trim) {
  jinja_text text = {0}, set = {0};
  TRY(to_text(state, value, &text));
  TRY(jinja_memory_step(state->memory, text.count));
  if (is_given(a[0])) TRY(to_text(state, a[0], &set));
  text = jinja_text_strip(text, is_given(a[0]) ? &set : NULL, true, true);
  *out = jinja_value_text(text.bytes, text.count);
  return OK;
}

FILTER(string) {
  jinja_text text = {0};
  (void)a;
  TRY(to_text(state, value, &text));
  *out = jinja_value_text(text.bytes, text.count);
  out->marks = value.marks & JINJA_SAFE;
  return OK;
}

FILTER(safe) {
  TRY(string(state, value, a, out));
  out->marks = JINJA_SAFE;
  return OK;
}

static status change(jinja_state *state, jinja_value value, jinja_case to, jinja_value *out) {
  jinja_text text = {0};
  TRY(to_text(state, value, &text));
  return jinja_text_change(state->memory, text, to, out);
}
FILTER(lower) {
  (void)a;
  return change(state, value, JINJA_LOWER, out);
}
FILTER(upper) {
  (void)a;
  return change(state, value, JINJA_UPPER, out);
}
FILTER(capitalize) {
  (void)a;
  return change(state, value, JINJA_CAPITAL, out);
}
FILTER(title) {
  (void)a;
  return change(state, value, JINJA_WORDS, out);
}

FILTER(replace) {
  jinja_text text = {0}, old = {0}, new = {0};
  TRY(to_text(state, value, &text));
  TRY(to_text(state, a[0], &old));
  TRY(to_text(state, a[1], &new));
  if (a[0].kind == JINJA_ABSENT || a[1].kind == JINJA_ABSENT) return FAIL(ERR_FORMAT, "chat template: replace takes two arguments");
  if (is_given(a[2]) && a[2].kind != JINJA_INTEGER) return FAIL(ERR_FORMAT, "chat template: replace: expected an int");
  return jinja_text_replace(state->memory, text, old, new, is_given(a[2]) ? a[2].integer : -1, out);
}

static status put_indention(jinja_value width, strbuf *out) {
  if (width.kind == JINJA_TEXT) {
    if (width.text.count) strbuf_add(out, width.text.bytes, width.text.count);
    return OK;
  }
  int64_t spaces = width.kind == JINJA_ABSENT ? 4 : width.integer;
  if (width.kind != JINJA_ABSENT && width.kind != JINJA_INTEGER) return FAIL(ERR_FORMAT, "chat template: indent: expected a width");
  if (spaces > 4096) return FAIL(ERR_LIMIT, "chat template: indent by more than 4096 spaces");
  for (int64_t i = 0; i < spaces; i++) strbuf_add(out, " ", 1);
  return OK;
}

FILTER(indent) {
  strbuf text = {0}, indention = {0}, made = {0};
  jinja_value lines;
  if (value.kind != JINJA_TEXT) return FAIL(ERR_FORMAT, "chat template: indent: expected a str, found '%s'", jinja_value_type(value));
  status result = put_indention(a[0], &indention);
  if (result == OK) {
    if (value.text.count) strbuf_add(&text, value.text.bytes, value.text.count);
    strbuf_add(&text, "\n", 1); /* jinja2's way to keep the last line */
    result = text.failed || indention.failed ? FAIL(ERR_LIMIT, "chat template: no memory")
                                             : jinja_text_lines(state->memory, (jinja_text){text.bytes, text.count}, false, &lines);
  }
  for (size_t i = 0; result == OK && i < lines.list->count && made.count <= JINJA_TEXT_BYTES_MAX; i++) {
    jinja_text line = lines.list->items[i].text;
    bool is_indented = i == 0 ? jinja_value_is_true(a[1]) : line.count || jinja_value_is_true(a[2]);
    if (i) strbuf_add(&made, "\n", 1);
    if (is_indented && indention.count) strbuf_add(&made, indention.bytes, indention.count);
    if (line.count) strbuf_add(&made, line.bytes, line.count);
  }
  if (result == OK) result = jinja_value_take(state->memory, &made, out);
  strbuf_close(&text);
  strbuf_close(&indention);
  strbuf_close(&made);
  return result;
}

/* === JSON ==================================================================================================== */

static status read_separators(jinja_value given, jinja_json *form) {
  bool is_pair = given.kind == JINJA_TUPLE || given.kind == JINJA_LIST;
  if (!is_pair || given.list->count != 2 || given.list->items[0].kind != JINJA_TEXT || given.list->items[1].kind != JINJA_TEXT)
    return FAIL(ERR_FORMAT, "chat template: tojson: expected two separators");
  form->item = given.list->items[0].text;
  form->key = given.list->items[1].text;
  return OK;
}

FILTER(tojson) { /* ensure_ascii, indent, separators, sort_keys */
  static const char spaces[] = "                                                                ";
  jinja_json form = {.item = {", ", 2}, .key = {": ", 2}, .is_ascii = jinja_value_is_true(a[0]), .is_sorted = jinja_value_is_true(a[3])};
  jinja_text indention = {spaces, 0};
  if (is_given(a[1])) {
    int64_t width = a[1].kind == JINJA_INTEGER ? a[1].integer : 0;
    if (a[1].kind == JINJA_TEXT) indention = a[1].text;
    else if (a[1].kind != JINJA_INTEGER || width > (int64_t)sizeof spaces - 1)
      return FAIL(ERR_UNSUPPORTED, "chat template: tojson: expected an indent of at most %zu spaces, or a text", sizeof spaces - 1);
    else indention.count = width > 0 ? (size_t)width : 0;
    form.indent = &indention;
    form.item.count = 1;
  }
  if (is_given(a[2])) TRY(read_separators(a[2], &form));
  strbuf text = {0};
  status result = jinja_write_json(state->memory, value, &form, &text);
  if (result == OK) result = jinja_value_take(state->memory, &text, out);
  strbuf_close(&text);
  return result;
}

/* === Numbers and the rest ==================================================================================== */

FILTER(length) {
  (void)a;
  if (value.marks & JINJA_QUIET) value = jinja_value_words("");
  switch ((jinja_kind)value.kind) {
    case JINJA_UNDEFINED: *out = jinja_value_integer(0); break;
    case JINJA_TEXT:
      TRY(jinja_memory_step(state->memory, value.text.count));
      *out = jinja_value_integer((int64_t)jinja_text_length(value.text));
      break;
    case JINJA_LIST: case JINJA_TUPLE: case JINJA_RANGE: case JINJA_VIEW: *out = jinja_value_integer((int64_t)value.list->count); break;
    case JINJA_DICT: *out = jinja_value_integer((int64_t)value.dict->count); break;
    default: return FAIL(ERR_FORMAT, "chat template: object of type '%s' has no len()", jinja_value_type(value));
  }
  return OK;
}

FILTER(otherwise) { /* default_value, boolean */
  (void)state;
  bool is_missing = value.kind == JINJA_UNDEFINED || (jinja_value_is_true(a[1]) && !jinja_value_is_true(value));
  *out = !is_missing ? value : a[0].kind == JINJA_ABSENT ? jinja_value_words("") : a[0];
  return OK;
}

/* A number in a text, with white space around it and "_" between digits left to Python. 0: not one. */
static bool read_number(jinja_text text, bool is_whole, jinja_value *out) {
  char digits[64], *end = NULL;
  text = jinja_text_strip(text, NULL, true, true);
  if (text.count == 0 || text.count >= sizeof digits) return false;
  memcpy(digits, text.bytes, text.count);
  digits[text.count] = 0;
  if (strspn(digits, is_whole ? "+-0123456789" : "+-.0123456789eE") != text.count) return false;
  if (is_whole && text.count > 18) return false;
  *out = is_whole ? jinja_value_integer(strtoll(digits, &end, 10)) : (jinja_value){.kind = JINJA_REAL, .real = strtod(digits, &end)};
  return end == digits + text.count;
}

FILTER(to_int) { /* default, base */
  (void)state;
  jinja_value otherwise_value = a[0].kind == JINJA_ABSENT ? jinja_value_integer(0) : a[0], real = value;
  if (is_given(a[1]) && !(a[1].kind == JINJA_INTEGER && a[1].integer == 10))
    return FAIL(ERR_UNSUPPORTED, "chat template: int with a base is not implemented");
  *out = value;
  if (value.kind == JINJA_INTEGER) return OK;
  if (value.kind == JINJA_BOOL) *out = jinja_value_integer(value.truth);
  if (value.kind == JINJA_BOOL || (value.kind == JINJA_TEXT && read_number(value.text, true, out))) return OK;
  *out = otherwise_value;
  if (value.kind == JINJA_TEXT && !read_number(value.text, false, &real)) return OK;
  if (real.kind != JINJA_REAL) return OK;
  if (!(real.real > -9.2e18 && real.real < 9.2e18)) return FAIL(ERR_LIMIT, "chat template: an integer beyond 64 bits");
  *out = jinja_value_integer((int64_t)real.real);
  return OK;
}

FILTER(to_float) {
  (void)state;
  *out = a[0].kind == JINJA_ABSENT ? (jinja_value){.kind = JINJA_REAL, .real = 0.0} : a[0];
  if (jinja_value_is_number(value)) *out = (jinja_value){.kind = JINJA_REAL, .real = jinja_value_real(value)};
  else if (value.kind == JINJA_TEXT) read_number(value.text, false, out);
  return OK;
}

FILTER(absolute) {
  (void)state, (void)a;
  if (!jinja_value_is_number(value)) return FAIL(ERR_FORMAT, "chat template: bad operand type for abs(): '%s'", jinja_value_type(value));
  if (value.kind == JINJA_REAL) *out = (jinja_value){.kind = JINJA_REAL, .real = fabs(value.real)};
  else {
    int64_t whole = value.kind == JINJA_BOOL ? value.truth : value.integer;
    if (whole == INT64_MIN) return FAIL(ERR_LIMIT, "chat template: an integer beyond 64 bits");
    *out = jinja_value_integer(whole < 0 ? -whole : whole);
  }
  return OK;
}

FILTER(round_to) { /* precision, method: "common" is Python's round, which rounds the exact decimal value, halves to even */
  (void)state;
  int64_t digits = a[0].kind == JINJA_ABSENT ? 0 : a[0].integer;
  char text[400];
  bool is_common = a[1].kind == JINJA_ABSENT || (a[1].kind == JINJA_TEXT && jinja_value_is(a[1].text, "common"));
  bool is_floor = a[1].kind == JINJA_TEXT && jinja_value_is(a[1].text, "floor");
  if (!jinja_value_is_number(value))
    return FAIL(ERR_FORMAT, "chat template: round: expected a number, found '%s'", jinja_value_type(value));
  if ((a[0].kind != JINJA_ABSENT && a[0].kind != JINJA_INTEGER) || digits < 0 || digits > 15)
    return FAIL(ERR_UNSUPPORTED, "chat template: round: expected a precision of 0 to 15");
  if (!is_common && !is_floor && !(a[1].kind == JINJA_TEXT && jinja_value_is(a[1].text, "ceil")))
    return FAIL(ERR_FORMAT, "chat template: round: method must be common, ceil or floor");
  *out = value;
  if (value.kind != JINJA_REAL && is_common) return OK; /* round(int, n) is an int */
  double real = jinja_value_real(value), scale = 1;
  for (int64_t i = 0; i < digits; i++) scale *= 10;
  if (is_common) snprintf(text, sizeof text, "%.*f", (int)digits, real);
  real = is_common ? strtod(text, NULL) : (is_floor ? floor(real * scale) : ceil(real * scale)) / scale;
  *out = (jinja_value){.kind = JINJA_REAL, .real = real};
  return OK;
}

FILTER(attribute) {
  if (a[0].kind != JINJA_TEXT) return FAIL(ERR_FORMAT, "chat template: attr: expected a name");
  bool is_member = value.kind == JINJA_NAMESPACE || value.kind == JINJA_LOOP;
  if (is_member) return jinja_eval_attribute(state, value, a[0].text, out);
  return FAIL(ERR_UNSUPPORTED, "chat template: attr of a '%s' is not implemented", jinja_value_type(value));
}

const jinja_callable *jinja_filters_find(jinja_text name) {
  static const jinja_callable all[] = {
    {"trim", "chars", trim, NULL}, {"string", "", string, NULL}, {"safe", "", safe, NULL}, {"lower", "", lower, NULL},
    {"upper", "", upper, NULL}, {"capitalize", "", capitalize, NULL}, {"title", "", title, NULL},
    {"replace", "old,new,count", replace, NULL},
    {"indent", "width,first,blank", indent, NULL}, {"tojson", "ensure_ascii,indent,separators,sort_keys", tojson, NULL},
    {"length", "", length, NULL}, {"count", "", length, NULL}, {"default", "default_value,boolean", otherwise, NULL},
    {"d", "default_value,boolean", otherwise, NULL}, {"int", "default,base", to_int, NULL}, {"float", "default", to_float, NULL},
    {"abs", "", absolute, NULL}, {"round", "precision,method", round_to, NULL}, {"attr", "name", attribute, NULL}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    if (jinja_value_is(name, all[i].name)) return &all[i];
  return jinja_collect_find(name);
}
