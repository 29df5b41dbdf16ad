/* test_flat_yaml.c - the reader of flat mappings: what it returns and what it refuses; no text makes it crash. test_deploy_config.c tests
 * how the planner uses it. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/limits.h"
#include "engine/base/spelling.h"
#include "planner/flat_yaml.h"

static status read_text(const char *text, flat_yaml *out) {
  fail_clear();
  return flat_yaml_read("file", text, strlen(text), out);
}

static void values_and_lists_come_in_order(void **state) {
  (void)state;
  flat_yaml file = {0};
  assert_int_equal(read_text("b_c: 1 # one\na: [x, 'y z', \"\"]\nempty: \"\"\nlist:\n  - p\n  - q\nletters: "
                             "\"\\u00e9\\U0001F600\"\nnone: []\nplain: mod\xc3\xa8le \xe6\xa8\xa1\n", &file), OK);
  assert_int_equal(file.count, 7);
  assert_string_equal(flat_yaml_find(&file, "plain")->values[0], "mod\xc3\xa8le \xe6\xa8\xa1");
  assert_string_equal(file.rows[0].key, "b-c");
  assert_string_equal(file.rows[0].values[0], "1");
  assert_false(file.rows[0].is_list);
  const flat_yaml_row *a = flat_yaml_find(&file, "a");
  assert_non_null(a);
  assert_true(a->is_list && a->count == 3);
  assert_string_equal(a->values[1], "y z");
  assert_string_equal(a->values[2], "");
  assert_string_equal(flat_yaml_find(&file, "empty")->values[0], "");
  assert_string_equal(flat_yaml_find(&file, "list")->values[1], "q");
  assert_string_equal(flat_yaml_find(&file, "letters")->values[0], "\xc3\xa9\xf0\x9f\x98\x80");
  assert_int_equal(flat_yaml_find(&file, "none")->count, 0);
  assert_null(flat_yaml_find(&file, "b_c"));
  flat_yaml_close(&file);
  assert_null(file.rows);
}

static void what_is_not_flat_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
    status code;
  } CASES[] = {
      {"a: {b: {c: d}}", "a.b: ", ERR_FORMAT},
      {"a: {b: c}\na.b: d", "twice", ERR_FORMAT},
      {"a: {b_c: c, b-c: d}", "twice", ERR_FORMAT},
      {"a123456789012345678901234567890123456789: {b123456789012345678901234567890: c}", "too long", ERR_FORMAT},
      {"? a\n: 1", "begins a line with \"? \"", ERR_FORMAT},
      {"a: 1\n ?\tb", "begins a line with \"? \"", ERR_FORMAT},
      {"a: 1\n?", "begins a line with \"? \"", ERR_FORMAT},
      /* libfyaml 0.7.12 ends the process on this text. */
      {"? m\tmax-n\tumlen:\t\t\t\t\t: 20 MB\ngpu-memory-util\tax_{eqs\n: 4\n?\n |\n  max_len\n: >-ory-u.", "line with", ERR_FORMAT},
      {"a: [[1]]", "a: ", ERR_FORMAT},
      {"a: [1, {b: 2}]", "a: ", ERR_FORMAT},
      {"a:", "a: ", ERR_FORMAT},
      {"[a]", "key: value", ERR_FORMAT},
      {"a: &x [1]", "anchor", ERR_FORMAT},
      {"a: [&x 1]", "anchor", ERR_FORMAT},
      {"a: 1\na: 2", "twice", ERR_FORMAT},
      {"a-b: 1\na_b: 2", "twice", ERR_FORMAT},
      {"a: !!str 1", "tag", ERR_FORMAT},
      {"a: !!seq [1]", "tag", ERR_FORMAT},
      {"[a]: 1", "plain keys", ERR_FORMAT},
      {"a: \"\\n\"", "unprintable", ERR_FORMAT},
      {"\"\\u00e9\": 1", "a key", ERR_FORMAT},
      {"a: 1\n--- \nb: 1", "one document", ERR_FORMAT},
      {"a: |\n  x\n", "unprintable", ERR_FORMAT},
      {"a: \"\\u009b1m\"", "unprintable", ERR_FORMAT},
      {"a: \xc3(", "not UTF-8", ERR_FORMAT},
      {"\xc3\xa9: 1", "a key", ERR_FORMAT},
      {"a: \xc2\x9b" "1m", "unprintable", ERR_FORMAT},
      {"a: 'x", "file: line", ERR_FORMAT},
  };
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    flat_yaml file = {0};
    status result = read_text(CASES[i].text, &file);
    if (result != CASES[i].code || !strstr(fail_text(), CASES[i].words)) fail_msg("%s: code %d, \"%s\"", CASES[i].text, result,
                                                                                  fail_text());
    assert_null(file.rows);
  }
}

static void limits_are_stated(void **state) {
  (void)state;
  static char text[64 * FLAT_YAML_LIST_MAX];
  flat_yaml file = {0};
  size_t used = 0;
  for (uint32_t i = 0; i < FLAT_YAML_KEYS_MAX; i++) used += (size_t)sprintf(text + used, "k%u: 1\n", i);
  assert_int_equal(read_text(text, &file), OK);
  assert_int_equal(file.count, FLAT_YAML_KEYS_MAX);
  flat_yaml_close(&file);
  strcpy(text + used, "last: 1\n");
  assert_int_equal(read_text(text, &file), ERR_LIMIT);
  for (uint32_t count = FLAT_YAML_LIST_MAX; count <= FLAT_YAML_LIST_MAX + 1; count++) {
    used = (size_t)sprintf(text, "a: [0");
    for (uint32_t i = 1; i < count; i++) used += (size_t)sprintf(text + used, ", %u", i);
    strcpy(text + used, "]\n");
    assert_int_equal(read_text(text, &file), count > FLAT_YAML_LIST_MAX ? ERR_LIMIT : OK);
    flat_yaml_close(&file);
  }
  for (uint32_t bytes = FLAT_YAML_VALUE_BYTES - 1; bytes <= FLAT_YAML_VALUE_BYTES; bytes++) {
    used = (size_t)sprintf(text, "a: ");
    memset(text + used, 'x', bytes);
    text[used + bytes] = 0;
    assert_int_equal(read_text(text, &file), bytes < FLAT_YAML_VALUE_BYTES ? OK : ERR_FORMAT);
    flat_yaml_close(&file);
  }
}

static void distances(void **state) {
  (void)state;
  assert_int_equal(spelling_distance("port", "port"), 0);
  assert_int_equal(spelling_distance("prot", "port"), 2);
  assert_int_equal(spelling_distance("", "port"), 4);
  assert_int_equal(spelling_distance("hosts", "host"), 1);
}

static void truncation_and_bit_flips_never_crash(void **state) {
  (void)state;
  static const char TEXT[] = "a: 64\nb: [1, 2, 4]\n'c d': \"x\\u00e9\"\ne:\n- f\n- \"\"\n";
  char text[sizeof TEXT];
  for (size_t bytes = 0; bytes < sizeof TEXT; bytes++) {
    flat_yaml file = {0};
    fail_clear();
    (void)flat_yaml_read("file", TEXT, bytes, &file);
    flat_yaml_close(&file);
  }
  uint32_t refused = 0;
  for (size_t i = 0; i + 1 < sizeof TEXT; i++)
    for (int bit = 0; bit < 8; bit++) {
      flat_yaml file = {0};
      memcpy(text, TEXT, sizeof TEXT);
      text[i] = (char)(text[i] ^ (1 << bit));
      fail_clear();
      refused += flat_yaml_read("file", text, sizeof TEXT - 1, &file) != OK;
      flat_yaml_close(&file);
    }
  assert_true(refused > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_and_lists_come_in_order), cmocka_unit_test(what_is_not_flat_is_refused),
      cmocka_unit_test(limits_are_stated),              cmocka_unit_test(distances),
      cmocka_unit_test(truncation_and_bit_flips_never_crash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
