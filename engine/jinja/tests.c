/* jinja/tests.c - see jinja/tests.h. */
#include "jinja/tests.h"
#include <string.h>
#include "jinja/filters.h"
#include "jinja/operate.h"

#define TEST(name, condition)                                                                                  \
  static status name(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) { \
    (void)state, (void)arguments;                                                                              \
    *out = jinja_value_bool(condition);                                                                        \
    return OK;                                                                                                 \
  }

TEST(is_defined, value.kind != JINJA_UNDEFINED)
TEST(is_undefined, value.kind == JINJA_UNDEFINED)
TEST(is_none, value.kind == JINJA_NONE)
TEST(is_boolean, value.kind == JINJA_BOOL)
TEST(is_true, value.kind == JINJA_BOOL && value.truth)
TEST(is_false, value.kind == JINJA_BOOL && !value.truth)
TEST(is_integer, value.kind == JINJA_INTEGER)
TEST(is_float, value.kind == JINJA_REAL)
TEST(is_number, jinja_value_is_number(value))
TEST(is_string, value.kind == JINJA_TEXT)
TEST(is_callable, value.kind >= JINJA_LOOP)
TEST(is_iterable, value.kind == JINJA_UNDEFINED || value.kind == JINJA_TEXT || jinja_value_is_listed(value) || value.kind == JINJA_DICT ||
                      value.kind == JINJA_LOOP)
TEST(is_sequence, value.kind == JINJA_UNDEFINED || (value.kind >= JINJA_TEXT && value.kind <= JINJA_RANGE) || value.kind == JINJA_DICT)

/* A text of JSON that is asked whether it is a mapping is meant to be one. */
static status is_mapping(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) {
  (void)arguments;
  if (value.marks & JINJA_CODED) {
    state->memory->wants_objects = true;
    return FAIL(ERR_FORMAT, "chat template: a text of JSON is used as an object");
  }
  *out = jinja_value_bool(value.kind == JINJA_DICT);
  return OK;
}

static status is_cased(jinja_value value, char low, char high, jinja_value *out) {
  bool has_letter = false, is_all = true;
  if (value.kind != JINJA_TEXT) return FAIL(ERR_UNSUPPORTED, "chat template: \"is lower\" of what is no text is not implemented");
  for (size_t i = 0; i < value.text.count; i++) {
    char c = value.text.bytes[i];
    if ((uint8_t)c >= 0x80) return FAIL(ERR_UNSUPPORTED, "chat template: \"is lower\" of a text that is not ASCII is not implemented");
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    has_letter |= is_letter;
    is_all &= !is_letter || (c >= low && c <= high);
  }
  *out = jinja_value_bool(has_letter && is_all);
  return OK;
}
static status is_lower(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) {
  (void)state, (void)arguments;
  return is_cased(value, 'a', 'z', out);
}
static status is_upper(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) {
  (void)state, (void)arguments;
  return is_cased(value, 'A', 'Z', out);
}

static status rest(jinja_state *state, jinja_value value, jinja_value divisor, int64_t expected, jinja_value *out) {
  jinja_value left, zero = jinja_value_integer(expected);
  bool is_equal = false;
  TRY(jinja_operate_binary(state, JINJA_REMAINDER, value, divisor, &left));
  TRY(jinja_value_equal(state->memory, left, zero, &is_equal));
  *out = jinja_value_bool(is_equal);
  return OK;
}
static status is_odd(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) {
  (void)arguments;
  return rest(state, value, jinja_value_integer(2), 1, out);
}
static status is_even(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) {
  (void)arguments;
  return rest(state, value, jinja_value_integer(2), 0, out);
}
static status is_divisible(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) {
  return rest(state, value, arguments[0], 0, out);
}

#define COMPARISON(name, op)                                                                                   \
  static status name(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) { \
    bool is_true = false;                                                                                      \
    if (arguments[0].kind == JINJA_ABSENT) return FAIL(ERR_FORMAT, "chat template: a test without what it compares with"); \
    TRY(jinja_operate_compare(state, op, value, arguments[0], &is_true));                                      \
    *out = jinja_value_bool(is_true);                                                                          \
    return OK;                                                                                                 \
  }

COMPARISON(is_eq, JINJA_EQ)
COMPARISON(is_ne, JINJA_NE)
COMPARISON(is_lt, JINJA_LT)
COMPARISON(is_le, JINJA_LE)
COMPARISON(is_gt, JINJA_GT)
COMPARISON(is_ge, JINJA_GE)
COMPARISON(is_in, JINJA_IN)

/* "is sameas true": only what Python keeps once has an identity that a template can rely on. */
static status is_same(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) {
  (void)state;
  if (arguments[0].kind != JINJA_BOOL && arguments[0].kind != JINJA_NONE)
    return FAIL(ERR_UNSUPPORTED, "chat template: \"is sameas\" is implemented for true, false and none");
  *out = jinja_value_bool(value.kind == arguments[0].kind && (value.kind == JINJA_NONE || value.truth == arguments[0].truth));
  return OK;
}

static status is_filter(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out) {
  (void)state, (void)arguments;
  if (value.kind != JINJA_TEXT || !jinja_filters_find(value.text))
    return FAIL(ERR_UNSUPPORTED, "chat template: \"is filter\" of a name that is not implemented here");
  *out = jinja_value_bool(true);
  return OK;
}

const jinja_callable *jinja_tests_find(jinja_text name) {
  static const jinja_callable all[] = {
    {"defined", "", is_defined, NULL}, {"undefined", "", is_undefined, NULL}, {"none", "", is_none, NULL},
    {"boolean", "", is_boolean, NULL},
    {"true", "", is_true, NULL}, {"false", "", is_false, NULL}, {"integer", "", is_integer, NULL}, {"float", "", is_float, NULL},
    {"number", "", is_number, NULL}, {"string", "", is_string, NULL}, {"callable", "", is_callable, NULL},
    {"mapping", "", is_mapping, NULL},
    {"iterable", "", is_iterable, NULL}, {"sequence", "", is_sequence, NULL}, {"lower", "", is_lower, NULL}, {"upper", "", is_upper, NULL},
    {"odd", "", is_odd, NULL}, {"even", "", is_even, NULL}, {"divisibleby", "num", is_divisible, NULL}, {"sameas", "other", is_same, NULL},
    {"eq", "other", is_eq, NULL}, {"equalto", "other", is_eq, NULL}, {"==", "other", is_eq, NULL}, {"ne", "other", is_ne, NULL},
    {"!=", "other", is_ne, NULL}, {"lt", "other", is_lt, NULL}, {"lessthan", "other", is_lt, NULL}, {"<", "other", is_lt, NULL},
    {"le", "other", is_le, NULL}, {"<=", "other", is_le, NULL}, {"gt", "other", is_gt, NULL}, {"greaterthan", "other", is_gt, NULL},
    {">", "other", is_gt, NULL}, {"ge", "other", is_ge, NULL}, {">=", "other", is_ge, NULL}, {"in", "seq", is_in, NULL},
    {"filter", "", is_filter, NULL}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    if (jinja_value_is(name, all[i].name)) return &all[i];
  return NULL;
}
