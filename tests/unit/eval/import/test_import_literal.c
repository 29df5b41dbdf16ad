/* test_import_literal.c - Python literals, their refusals, and random draws, compared with what Python 3.11 gives. */
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>
#include "engine/eval/import/literal.h"
#include "engine/eval/import/pattern.h"
#include "engine/eval/import/shots.h"

static void literals(void **state) {
  (void)state;
  static const struct { const char *text, *json; status result; } cases[] = {
    {"['a', \"b'\", 'it\\'s']", "[\"a\",\"b'\",\"it's\"]", OK}, {"('a', 1, True, None, [-2.5])", "[\"a\",1,true,null,[-2.5]]", OK},
    {"[]", "[]", OK}, {"['a' 'b',]", "[\"ab\"]", OK}, {"('a')", "\"a\"", OK}, {"('a',)", "[\"a\"]", OK},
    {"['\\x41\\u00e9\\n\\\\ \\d']", "[\"A\xc3\xa9\\n\\\\ \\\\d\"]", OK}, {"['\\U0001f600']", "[\"\xf0\x9f\x98\x80\"]", OK}, {"7", "7", OK},
    {"[a]", NULL, ERR_FORMAT}, {"['a'", NULL, ERR_FORMAT}, {"['a' 1]", NULL, ERR_FORMAT}, {"[,]", NULL, ERR_FORMAT}, {"", NULL, ERR_FORMAT},
    {"['a\nb']", NULL, ERR_FORMAT}, {"[1][0]", NULL, ERR_FORMAT}, {"['\\x4']", NULL, ERR_FORMAT}, {"['\\ud800']", NULL, ERR_UNSUPPORTED},
    {"{'a': 1}", NULL, ERR_UNSUPPORTED}, {"[r'a']", NULL, ERR_UNSUPPORTED}, {"['''a''']", NULL, ERR_UNSUPPORTED},
    {"[007]", NULL, ERR_UNSUPPORTED}, {"['\\07']", NULL, ERR_UNSUPPORTED}, {"[1] + [2]", NULL, ERR_UNSUPPORTED},
    {"[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]", NULL, ERR_LIMIT}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    json_t *found = NULL, *expected = cases[i].json ? json_loads(cases[i].json, JSON_DECODE_ANY, NULL) : NULL;
    fail_clear();
    status result = eval_import_literal_parse(cases[i].text, strlen(cases[i].text), &found);
    if (result != cases[i].result || (expected && !json_equal(found, expected))) fail_msg("%s: %d, %s", cases[i].text, result, fail_text());
    assert_true((result == OK) == (found != NULL));
    json_decref(found);
    json_decref(expected);
  }
}

static void patterns(void **state) {
  (void)state;
  static const struct { const char *python, *ours; bool with_groups; } cases[] = {
    {"a(b)c", "a(b)c", true}, {"(\\d+)", "(*UCP)(\\d+)", true}, {"(-?[$0-9.,]{2,})|(-?[0-9]+)", "(?|(-?[$0-9.,]{2,})|(-?[0-9]+))", true},
    {"(a)(b)", NULL, true}, {"(a)(b)", "(a)(b)", false}, {"(?:a|(b))", "(?:a|(b))", true}, {"(a)|b", "(a)|b", true},
    {"((a)|(b))", NULL, true}, {"(a)|(b)|c", NULL, true}, {"(a)|\\1(b)", NULL, true}, {"[)(|](a)", "[)(|](a)", true},
    {"[]a](b)", "[]a](b)", true}, {"a\\Z", NULL, false}, {"\\Qa", NULL, false}, {"(?P<n>a)", "(?P<n>a)", true}, {"(", NULL, false},
    {"(?|a)", NULL, false}, {"(*UTF)a", NULL, false}, {"a{,2}", NULL, false}, {"[[:digit:]]", NULL, false}, {"\\", NULL, false}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char *ours = NULL;
    fail_clear();
    status result = eval_import_pattern(cases[i].python, cases[i].with_groups, &ours);
    if ((result == OK) != (cases[i].ours != NULL) || (ours && strcmp(ours, cases[i].ours) != 0))
      fail_msg("%s: %s", cases[i].python, ours ? ours : fail_text());
    free(ours);
  }
}

/* random.Random(1234).sample(range(population), count), one after the other from one generator. */
static void draws(void **state) {
  (void)state;
  static const uint32_t small[] = {7, 1, 0, 9, 4}, large[] = {36622, 704185, 726754, 88015, 103202}, six[] = {45, 30, 2, 3, 44, 82};
  eval_import_random random;
  uint32_t chosen[8];
  eval_import_shots_seed(&random, 1234);
  assert_int_equal(eval_import_shots_draw(&random, 10, 5, chosen), OK);
  assert_memory_equal(chosen, small, sizeof small);
  assert_int_equal(eval_import_shots_draw(&random, 1000000, 5, chosen), OK);
  assert_memory_equal(chosen, large, sizeof large);
  assert_int_equal(eval_import_shots_draw(&random, 86, 6, chosen), OK);
  assert_memory_equal(chosen, six, sizeof six);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(literals), cmocka_unit_test(patterns), cmocka_unit_test(draws)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
