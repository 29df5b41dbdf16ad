/* test_eval_items.c - the items of a task: prompts with their examples, answers, choices, and lines that are refused by number. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"
#include "engine/eval/items.h"

static const char LINES[] = "{\"id\":\"a\",\"prompt\":\"1+1=\",\"answer\":\"2\",\"t\":\"x\"}\r\n\n{\"id\":7,\"prompt\":\"2+2=\",\"answer"
    "\":4,\"t\":\"y\"}\n"
                            "{\"prompt\":\"3+3=\",\"answer\":[\"6\",\"six\"],\"t\":\"x\"}";

static status make(const char *task_lines, const char *lines, const char *shots, eval_task *task, eval_items *out) {
  char yaml[2048];
  snprintf(yaml, sizeof yaml, "name: a\nitems: i\n%s", task_lines);
  fail_clear();
  if (eval_task_parse(yaml, strlen(yaml), task) != OK) fail_msg("%s: %s", task_lines, fail_text());
  char *copy = malloc(strlen(lines) + 1);
  assert_non_null(copy);
  memcpy(copy, lines, strlen(lines) + 1);
  status result = eval_items_make(task, (eval_source){copy, strlen(lines)}, (eval_source){shots, shots ? strlen(shots) : 0}, out);
  free(copy);
  return result;
}

static void expect_prompts(const char *task_lines, const char *shots, uint32_t count, const char *const *prompts) {
  eval_task task;
  eval_items items = {0};
  if (make(task_lines, LINES, shots, &task, &items) != OK) fail_msg("%s: %s", task_lines, fail_text());
  assert_int_equal(items.count, count);
  for (uint32_t i = 0; i < count; i++) assert_string_equal(items.list[i].prompt.bytes, prompts[i]);
  eval_items_close(&items);
  eval_task_close(&task);
}

static void prompts(void **state) {
  (void)state;
  expect_prompts("kind: generate\n", NULL, 3, (const char *const[]){"1+1=", "2+2=", "3+3="});
  expect_prompts("kind: generate\nprompt: 'Q {{t}}{{ prompt }} }}{'\nlimit: 2\n", NULL, 2, (const char *const[]){"Q x1+1= }}{",
      "Q y2+2= }}{"});
  expect_prompts("kind: generate\nwhere: {t: x}\n", NULL, 2, (const char *const[]){"1+1=", "3+3="});
  expect_prompts("kind: generate\nwhere: {answer: 4}\n", NULL, 1, (const char *const[]){"2+2="});
  expect_prompts("kind: perplexity\ntext: '{{prompt}}{{t}}'\n", NULL, 3, (const char *const[]){"1+1=x", "2+2=y", "3+3=x"});
}

static void examples(void **state) {
  (void)state;
  /* other items of the same file, never the item itself, in file order */
  expect_prompts("kind: generate\nfew_shot: {count: 2, separator: ' '}\n", NULL, 3,
                 (const char *const[]){"2+2=4 3+3=6 1+1=", "1+1=2 3+3=6 2+2=", "1+1=2 2+2=4 3+3="});
  expect_prompts("kind: generate\nlimit: 1\nfew_shot: {count: 1, separator: ';', template: '{{t}}:{{prompt}}:{{answer}}'}\n", NULL, 1,
                 (const char *const[]){"y:2+2=:4;1+1="});
  /* the seed decides the order: splitmix64 from 3 reverses it */
  expect_prompts("kind: generate\nfew_shot: {count: 2, separator: ' ', seed: 3}\n", NULL, 3,
                 (const char *const[]){"3+3=6 2+2=4 1+1=", "3+3=6 1+1=2 2+2=", "2+2=4 1+1=2 3+3="});
  /* a seed whose last draw also swaps */
  expect_prompts("kind: generate\nfew_shot: {count: 2, separator: ' ', seed: 0}\n", NULL, 3,
                 (const char *const[]){"2+2=4 3+3=6 1+1=", "1+1=2 3+3=6 2+2=", "2+2=4 1+1=2 3+3="});
  /* of another file: its first items, including an equal one */
  expect_prompts("kind: generate\nfew_shot: {count: 1, source: s, separator: ' '}\n", "{\"prompt\":\"1+1=\",\"answer\":\"2\"}\n", 3,
                 (const char *const[]){"1+1=2 1+1=", "1+1=2 2+2=", "1+1=2 3+3="});
}

static void choices(void **state) {
  (void)state;
  eval_task task;
  eval_items items = {0};
  static const char lines[] = "{\"prompt\":\"q\",\"c\":[\"a\",\"b\",\"b\"],\"answer\":\"b\"}\n{\"prompt\":\"r\",\"c\":[\"x\",\"y\"],\"an"
      "swer\":0}\n";
  assert_int_equal(make("kind: choice\nchoices: c\ncluster: prompt\nfew_shot: {count: 1, separator: ' '}\n", lines, NULL, &task, &items),
                   OK);
  assert_true(items.list[0].answer_index == 1 && items.list[1].answer_index == 0 && json_array_size(items.list[0].choices) == 3);
  assert_string_equal(items.list[0].id, "0");
  assert_string_equal(items.list[1].cluster, "r");
  assert_string_equal(items.list[0].prompt.bytes, "rx q");
  assert_string_equal(items.list[1].prompt.bytes, "qb r");
  eval_items_close(&items);
  eval_task_close(&task);
  assert_int_equal(make("kind: choice\nchoices: ['{{prompt}}1', '{{prompt}}2']\nanswer: '{{prompt}}2'\n", lines, NULL, &task, &items), OK);
  assert_true(items.list[0].answer_index == 1 && items.list[1].answer_index == 1);
  assert_string_equal(json_string_value(json_array_get(items.list[1].choices, 0)), "r1");
  eval_items_close(&items);
  eval_task_close(&task);
}

static void refused(void **state) {
  (void)state;
  static const struct { const char *task, *lines, *words; } cases[] = {
    {"kind: generate\n", "", "no item"}, {"kind: generate\nwhere: {t: z}\n", LINES, "\"where\" leaves"},
    {"kind: generate\n", "{", "line 1: not JSON"},
    {"kind: generate\n", "{\"prompt\":\"a\"}", "line 1: answer: the item has no field"},
    {"kind: generate\n", "{\"answer\":\"a\"}", "no field \"prompt\""},
    {"kind: generate\n", "{\"prompt\":1.5,\"answer\":\"a\"}", "a text or a whole number"},
    {"kind: generate\n", "{\"prompt\":\"\",\"answer\":{}}", "answer: expected"},
    {"kind: generate\n", "{\"prompt\":\"\",\"answer\":1.5}", "match: number"},
    {"kind: generate\nprompt: '{{a'\n", LINES, "without a closing \"}}\""},
    {"kind: generate\nprompt: '{{}}'\n", LINES, "expected {{field}}"}, {"kind: generate\nsubsets: u\n", LINES, "no field \"u\""},
    {"kind: generate\ncluster: u\n", LINES, "no field \"u\""},
    {"kind: generate\ncluster: c\n", "{\"prompt\":\"\",\"answer\":\"\",\"c\":\"\"}", "cluster: expected a name"},
    {"kind: generate\n", "{\"id\":\"a\",\"prompt\":\"\",\"answer\":\"\"}\n{\"id\":\"a\",\"prompt\":\"\",\"answer\":\"\"}",
    "line 2: the id \"a\" occurs twice"},
    {"kind: generate\nfew_shot: {count: 3}\n", LINES, "beside the item, found 2"}, {"kind: choice\n", LINES, "choices: expected a list"},
    {"kind: choice\nchoices: [a, b]\n", LINES, "line 1: answer: expected the index"},
    {"kind: choice\nchoices: [a, '']\n", LINES, "not empty"},
    {"kind: choice\nchoices: [a, b]\n", "{\"prompt\":\"\",\"answer\":2}", "0 to 1, found 2"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    eval_task task;
    eval_items items = {0};
    status result = make(cases[i].task, cases[i].lines, NULL, &task, &items);
    if (result == OK || !strstr(fail_text(), cases[i].words)) fail_msg("case %zu: \"%s\"", i, fail_text());
    assert_true(!items.list && items.count == 0);
    eval_task_close(&task);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(prompts), cmocka_unit_test(examples), cmocka_unit_test(choices),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
