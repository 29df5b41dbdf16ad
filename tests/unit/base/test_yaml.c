/* test_yaml.c - YAML to JSON: how scalars are converted, which inputs are refused and with which message. The callers' own checks are
 * tested in test_flat_yaml.c and test_eval_task.c. */
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>
#include "engine/base/yaml.h"

static const yaml_options TYPED = {.bytes_max = 64};
static const yaml_options TEXT = {.name = "file", .bytes_max = 64, .is_text = true};

static status parse(const yaml_options *options, const char *text, json_t **out) {
  fail_clear();
  return yaml_parse(options, text, strlen(text), out);
}

static void expect(const yaml_options *options, const char *text, const char *json) {
  json_t *value = NULL;
  if (parse(options, text, &value) != OK) fail_msg("%s: %s", text, fail_text());
  char *dumped = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
  assert_string_equal(dumped, json);
  free(dumped);
  json_decref(value);
}

static void typed_scalars(void **state) {
  (void)state;
  static const struct { const char *text, *json; } cases[] = {
    {"3", "3"}, {"-3", "-3"}, {"03", "\"03\""}, {"0.5", "0.5"}, {".5", "\".5\""}, {"1e3", "1000.0"}, {"true", "true"}, {"True", "\"True\""},
    {"null", "null"}, {"~", "null"}, {"''", "\"\""}, {"'3'", "\"3\""}, {"yes", "\"yes\""}, {"0x10", "\"0x10\""}, {"1_000", "\"1_000\""},
    {"[a, {b: [1]}]", "[\"a\",{\"b\":[1]}]"}, {"\"\\u00e9\"", "\"\xc3\xa9\""}, {"\xc3\xa9", "\"\xc3\xa9\""}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) expect(&TYPED, cases[i].text, cases[i].json);
}

static void text_scalars(void **state) {
  (void)state;
  static const struct { const char *text, *json; } cases[] = {
    {"1.50", "\"1.50\""}, {"true", "\"true\""}, {"~", "\"~\""}, {"a:", "{\"a\":null}"}, {"a: ''", "{\"a\":\"\"}"},
    {"b: 1\na: [2, x]", "{\"b\":\"1\",\"a\":[\"2\",\"x\"]}"}, {"\"\\u00e9\"", "\"\xc3\xa9\""}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) expect(&TEXT, cases[i].text, cases[i].json);
}

static void no_document_is_null(void **state) {
  (void)state;
  static const char *const cases[] = {"", "\n\n", "# a comment\n"};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    json_t *value = NULL;
    assert_int_equal(parse(&TYPED, cases[i], &value), OK);
    assert_null(value);
  }
}

static void refused(void **state) {
  (void)state;
  static const struct {
    const yaml_options *options;
    const char *text, *message;
    status code;
  } cases[] = {
    {&TYPED, "a: &x 1", "anchors, aliases and tags are not allowed", ERR_FORMAT},
    {&TEXT, "a: &x 1", "file: a: anchors, aliases and tags are not allowed", ERR_FORMAT},
    {&TEXT, "a: 1\na: 2", "file: key \"a\" is given twice", ERR_FORMAT},
    {&TYPED, "[a]: 1", "expected plain keys, without anchor, alias or tag", ERR_FORMAT},
    {&TYPED, "%YAML 1.2\n---\na: 1", "byte 0 begins a YAML directive, which is not allowed", ERR_FORMAT},
    {&TYPED, "\xff", "byte 0 is not UTF-8", ERR_FORMAT},
    {&TYPED, "\x01", "byte 0 is 0x01, expected text without NUL or other control bytes", ERR_FORMAT},
    {&TEXT, "a: \xc3", "file: byte 3 is not UTF-8", ERR_FORMAT},
    {&TEXT, "a: 1\n---\nb: 1", "file: expected one document", ERR_FORMAT},
    {&TEXT, "a: 'x", "file: line 1, column", ERR_FORMAT},
    {&TYPED, "[[[[[[[[[1]]]]]]]]]", "more than 8 levels", ERR_LIMIT},
    {&TYPED, "a: 0123456789012345678901234567890123456789012345678901234567890123", "67 bytes, at most 64", ERR_LIMIT},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    json_t *value = NULL;
    status result = parse(cases[i].options, cases[i].text, &value);
    if (result != cases[i].code || !strstr(fail_text(), cases[i].message)) fail_msg("%s: %d, \"%s\"", cases[i].text, result, fail_text());
    assert_null(value);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(typed_scalars), cmocka_unit_test(text_scalars), cmocka_unit_test(no_document_is_null),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
