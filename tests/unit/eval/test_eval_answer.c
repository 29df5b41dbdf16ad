/* test_eval_answer.c - which part of a text is extracted, and when it counts as the answer. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"
#include "engine/eval/answer.h"

/* Judges the text by a task with these lines; *extracted: the extracted part, as JSON. */
static bool judge(const char *lines, const char *text, const char *answer, char extracted[128]) {
  char yaml[1024];
  eval_task task;
  eval_answer *self = NULL;
  eval_answer_verdict found = {.extracted = NULL};
  json_t *expected = json_loads(answer, JSON_DECODE_ANY, NULL);
  snprintf(yaml, sizeof yaml, "name: a\nkind: generate\nitems: i\n%s", lines);
  if (eval_task_parse(yaml, strlen(yaml), &task) != OK || eval_answer_open(&self, &task) != OK) fail_msg("%s: %s", lines, fail_text());
  assert_non_null(expected);
  if (eval_answer_judge(self, text, strlen(text), expected, &found) != OK) fail_msg("%s: %s", lines, fail_text());
  char *dumped = json_dumps(found.extracted, JSON_ENCODE_ANY);
  snprintf(extracted, 128, "%s", dumped);
  free(dumped);
  json_decref(found.extracted);
  json_decref(expected);
  eval_answer_close(self);
  eval_task_close(&task);
  assert_true(!found.is_unended || (json_is_null(found.extracted) && !found.is_correct));
  return found.is_correct;
}

static void judged(void **state) {
  (void)state;
  static const struct { const char *lines, *text, *answer, *extracted; bool correct; } cases[] = {
    {"", " 42\n", "\"42\"", "\" 42\\n\"", true}, {"", "42", "42", "\"42\"", true}, {"", "4 2", "\"42\"", "\"4 2\"", false},
    {"", "b", "[\"a\", \"b\"]", "\"b\"", true}, {"", "c", "[\"a\", \"b\"]", "\"c\"", false}, {"", "", "\"\"", "\"\"", true},
    {"normalize: []\n", "42 ", "\"42\"", "\"42 \"", false}, {"normalize: [lower]\n", "aBC", "\"Abc\"", "\"aBC\"", true},
    {"", "aBC", "\"Abc\"", "\"aBC\"", false}, {"normalize: [strip, collapse]\n", " a \n\t b ", "\"a b\"", "\" a \\n\\t b \"", true},
    {"normalize: [collapse]\n", "a  b", "\"a   b\"", "\"a  b\"", true},
    {"normalize: [lower]\n", "\xc3\x84", "\"\xc3\xa4\"", "\"\xc3\x84\"", false},
    {"think_end: '</t>'\n", "7</t> 42", "\"42\"", "\" 42\"", true}, {"think_end: '</t>'\n", "42", "\"42\"", "null", false},
    {"think_end: '</t>'\n", "1</t>2</t>42", "\"42\"", "\"42\"", true}, {"think_end: '</t>'\n", "42</t>", "\"42\"", "\"\"", false},
    {"think_end: aa\n", "42aaa7", "7", "\"7\"", true}, {"think_end: 'a rather long end'\n", "long end", "7", "null", false},
    {"think_end: '</t>'\nmatch: number\n", "it is 42</t>so 7 it is", "7", "\"7\"", true},
    {"think_end: '</t>'\nmatch: number\n", "it is 42</t>none", "42", "null", false},
    {"extract: 'is (\\d+)'\nthink_end: '</t>'\n", "is 7</t>is 8", "\"8\"", "\"8\"", true},
    {"extract: 'is (\\d+)'\n", "it is 7, is 8", "\"7\"", "\"7\"", true}, {"extract: 'is (\\d+)'\n", "no", "\"\"", "null", false},
    {"extract: '\\d+'\n", "ab12", "\"12\"", "\"12\"", true}, {"extract: 'a(x)?b'\n", "ab", "\"\"", "null", false},
    {"extract: '^(a+)+$'\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "\"a\"", "null", false}, /* stopped by the bound on steps */
    {"match: number\n", "so 1,234.50 it is", "1234.5", "\"1,234.50\"", true}, {"match: number\n", "10 or -3.", "-3", "\"-3\"", true},
    {"match: number\n", "none", "3", "null", false}, {"match: number\ntolerance: 0.1\n", "3.14", "\"3.2\"", "\"3.14\"", true},
    {"match: number\ntolerance: 0.01\n", "3.14", "\"3.2\"", "\"3.14\"", false}, {"match: number\n", "3", "\"three\"", "\"3\"", false},
    {"match: number\nextract: '= (.*)'\n", "3 = 2e1", "20", "\"2e1\"", true},
    {"match: number\nextract: '= (.*)'\n", "3 = 0x14", "20", "\"0x14\"", false},
    {"extract: '\\d+'\nextract_match: last\n", "1 22 333", "\"333\"", "\"333\"", true},
    {"extract: '\\d+'\nextract_match: first\n", "1 22 333", "\"1\"", "\"1\"", true},
    {"extract: '(\\d*)'\nextract_match: last\n", "a12", "\"\"", "\"\"", true}, /* as findall: 12 is followed by an empty match */
    {"extract: '(?s)^(?:x|b*)'\nextract_match: last\n", "bbb", "\"bbb\"", "\"bbb\"", true},
    {"extract: '\\d+'\nextract_match: last\n", "none", "\"\"", "null", false},
    {"extract: '(?|(a+)|(b+))'\nextract_match: last\n", "aab", "\"b\"", "\"b\"", true},
    {"extract: '= (.*)'\nextract_strip: true\nnormalize: []\n", "=  7\xc2\xa0", "\"7\"", "\"7\"", true},
    {"extract: '= (.*)'\nnormalize: []\n", "=  7", "\"7\"", "\" 7\"", false},
    {"extract_strip: true\nnormalize: []\n", " 7 ", "\" 7 \"", "\"7\"", false}, /* the right answer keeps its blanks */
    {"normalize: [punctuation, lower]\n", "It's (a) dog.", "\"its a dog\"", "\"It's (a) dog.\"", true},
    {"normalize: [punctuation]\n", "a\xe2\x80\x94" "b", "\"ab\"", "\"a\xe2\x80\x94" "b\"", false}, /* ASCII alone */
    {"remove: [',', '\\$', '(?s).*#### ', '\\.$']\n", "$1,234.", "\"so\\n#### 1234\"", "\"$1,234.\"", true},
    {"remove: [',']\n", "1.234", "\"1234\"", "\"1.234\"", false},
    {"remove: ['(a+)+$']\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "\"b\"",
     "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\"", false}}; /* stopped */
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char extracted[128];
    bool correct = judge(cases[i].lines, cases[i].text, cases[i].answer, extracted);
    if (correct != cases[i].correct || strcmp(extracted, cases[i].extracted) != 0)
      fail_msg("case %zu, \"%s\": %d, %s", i, cases[i].text, correct, extracted);
  }
}

static void numbers(void **state) {
  (void)state;
  static const struct { const char *text; double value; bool good; } cases[] = {
    {"3", 3, true}, {" -3.5 ", -3.5, true}, {"+.5", 0.5, true}, {"1,234", 1234, true}, {"12e-1", 1.2, true}, {"5.", 5, true},
    {"", 0, false},
    {".", 0, false}, {"-", 0, false}, {"1,", 0, false}, {",1", 0, false}, {"1,,2", 0, false}, {"1e", 0, false}, {"1e+", 0, false},
    {"0x1", 0, false}, {"nan", 0, false}, {"inf", 0, false}, {"1e999", 0, false}, {"1 2", 0, false}, {"1.2.3", 0, false},
    {"1.2,3", 0, false}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    double value = -77;
    bool good = eval_answer_number(cases[i].text, strlen(cases[i].text), &value);
    if (good != cases[i].good || value != (good ? cases[i].value : -77)) fail_msg("\"%s\": %d, %g", cases[i].text, good, value);
  }
}

/* The shipped example of answers after a thought, with what models write. */
static void the_example(void **state) {
  (void)state;
  static const struct { const char *text; double answer; bool correct; } cases[] = {
    {"<think>12 - 5 is 7. The answer is 6?</think>\n\nThe answer is 7.", 7, true}, {"The answer is 7.", 7, false},
    {"<think></think>The answer is: $1,800.00.", 1800, true}, {"<think>a</think> The answer is 13.5", 13.5, true},
    {"<think>a</think>The answer is unknown", 7, false}, {"<think>The answer is 7", 7, false}};
  FILE *file = fopen("tests/examples/complete/sums.yaml", "rb");
  char yaml[2048];
  assert_non_null(file);
  size_t bytes = fread(yaml, 1, sizeof yaml, file);
  fclose(file);
  eval_task task;
  eval_answer *judge = NULL;
  if (eval_task_parse(yaml, bytes, &task) != OK || eval_answer_open(&judge, &task) != OK) fail_msg("%s", fail_text());
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    eval_answer_verdict verdict;
    json_t *answer = json_real(cases[i].answer);
    assert_int_equal(eval_answer_judge(judge, cases[i].text, strlen(cases[i].text), answer, &verdict), OK);
    if (verdict.is_correct != cases[i].correct) fail_msg("case %zu", i);
    assert_true(verdict.is_unended == !strstr(cases[i].text, "</think>"));
    json_decref(verdict.extracted);
    json_decref(answer);
  }
  eval_answer_close(judge);
  eval_task_close(&task);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(judged), cmocka_unit_test(the_example), cmocka_unit_test(numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
