/* test_strbuf.c - the growing text buffer: appended text comes out in order, and JSON strings in each style of escapes. */
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>
#include "engine/base/strbuf.h"

static void text_grows_and_is_taken(void **state) {
  (void)state;
  strbuf buffer = {0};
  char *bytes = NULL;
  size_t count = 0;
  for (int i = 0; i < 1000; i++) strbuf_addf(&buffer, "%03d", i);
  strbuf_adds(&buffer, "end");
  strbuf_add(&buffer, "\0x", 2);
  char *end = strbuf_reserve(&buffer, 1);
  assert_non_null(end);
  *end = '!';
  buffer.count++;
  assert_int_equal(strbuf_take(&buffer, &bytes, &count), OK);
  assert_int_equal(count, 3006);
  assert_memory_equal(bytes, "000001002", 9);
  assert_memory_equal(bytes + 2997, "999end\0x!\0", 10);
  assert_null(buffer.bytes);
  free(bytes);
}

static void no_memory_is_remembered(void **state) {
  (void)state;
  strbuf buffer = {0};
  char *bytes = NULL;
  size_t count = 0;
  strbuf_adds(&buffer, "a");
  assert_null(strbuf_reserve(&buffer, SIZE_MAX / 2));
  strbuf_adds(&buffer, "b");
  assert_true(buffer.failed && buffer.count == 1);
  fail_clear();
  assert_int_equal(strbuf_take(&buffer, &bytes, &count), ERR_LIMIT);
  assert_null(bytes);
  assert_null(buffer.bytes);
}

static void strings_by_style(void **state) {
  (void)state;
  static const struct { const char *text, *styles[3]; /* styles: hex, short, Python's */ } cases[] = {
    {"", {"\"\"", "\"\"", "\"\""}},
    {"a\"\\\n\x1f\x7f", {"\"a\\u0022\\u005c\\u000a\\u001f\\u007f\"", "\"a\\\"\\\\\\n\\u001f\\u007f\"", "\"a\\\"\\\\\\n\\u001f\x7f\""}},
    {"\b\t\f\r/", {"\"\\u0008\\u0009\\u000c\\u000d/\"", "\"\\b\\t\\f\\r/\"", "\"\\b\\t\\f\\r/\""}},
    {"\xc3\xa9\xf0\x9f\x98\x80", {"\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\xc3\xa9\xf0\x9f\x98\x80\""}},
    {"\xc3\xa9\xe2\x82z", {"\"\\u00c3\\u00a9\\u00e2\\u0082z\"", "\"\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz\"", NULL}},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++)
    for (int style = 0; style < 3; style++) {
      strbuf buffer = {0};
      char *bytes = NULL;
      size_t count = 0;
      if (!cases[i].styles[style]) continue;
      strbuf_json(&buffer, cases[i].text, strlen(cases[i].text), (strbuf_json_style)style);
      assert_int_equal(strbuf_take(&buffer, &bytes, &count), OK);
      assert_string_equal(bytes, cases[i].styles[style]);
      free(bytes);
    }
  strbuf nul = {0};
  strbuf_json(&nul, "a\0b", 3, STRBUF_JSON_SHORT);
  assert_int_equal(nul.count, 10);
  assert_memory_equal(nul.bytes, "\"a\\u0000b\"", 10);
  strbuf_close(&nul);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(text_grows_and_is_taken), cmocka_unit_test(no_memory_is_remembered),
                                     cmocka_unit_test(strings_by_style)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
