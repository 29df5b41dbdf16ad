/* test_items.c - prompts from arguments and JSONL lines: what is read, what is echoed, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/items.h"

static const item_params DEFAULTS = {.max_tokens = 9, .top_p = 1.0, .seed = 3};

static status add(items *list, const char *line) {
  size_t bytes = strlen(line);
  char *copy = malloc(bytes ? bytes : 1); /* exactly as long, for the sanitizers */
  assert_non_null(copy);
  memcpy(copy, line, bytes);
  fail_clear();
  status result = items_add_json(list, copy, bytes, 4, &DEFAULTS);
  free(copy);
  return result;
}

static void sound(void **state) {
  (void)state;
  items list = {0};
  static const char line[] =
    "{\"prompt\":\"h\\u0000i\",\"id\":17,\"task\":\"t\",\"answer\":\"x\",\"max_tokens\":5,\"temperature\":0.5,\"top_k\":4,\"top_p\":1,"
    "\"seed\":\"18446744073709551615\",\"stop_ids\":[1,2],\"ignore_eos\":true,\"zzz\":[1],\"aaa\":null}";
  assert_int_equal(add(&list, line), OK);
  assert_int_equal(add(&list, "{\"prompt_ids\":[5,6]}"), OK);
  const item *a = &list.list[0], *b = &list.list[1];
  assert_int_equal(a->prompt_bytes, 3);
  assert_memory_equal(a->prompt, "h\0i", 3);
  assert_string_equal(a->id, "17");
  assert_string_equal(a->task, "t");
  assert_string_equal(a->answer, "x");
  assert_int_equal(a->params.max_tokens, 5);
  assert_true(a->params.temperature == 0.5f && a->params.top_k == 4 && a->params.top_p == 1.0 && a->params.seed == UINT64_MAX);
  assert_int_equal(a->params.stop_count, 2);
  assert_true(a->params.ignore_eos);
  assert_string_equal(a->echo, "{\"zzz\":[1],\"aaa\":null}"); /* in the order given */
  assert_null(b->prompt);
  assert_int_equal(b->id_count, 2);
  assert_string_equal(b->id, "1");
  assert_null(b->echo);
  assert_int_equal(b->params.max_tokens, 9);
  assert_true(b->params.seed == 3);
  items_close(&list);
}

static void refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
    {"", "line 4"}, {"{", "not JSON"}, {"null", "not JSON"}, {"3", "not JSON"}, {"[1]", "object"}, {"{}", "one of"},
    {"{\"prompt\":[]}", "text"},
    {"{\"prompt\":\"a\",\"n\":2}", "\"n\" is not supported"}, {"{\"prompt\":\"a\",\"stop\":\"x\"}", "not supported"},
    {"{\"prompt\":\"a\",\"max_tokens\":-1}", "integer"}, {"{\"prompt\":\"a\",\"max_tokens\":4294967296}", "integer"},
    {"{\"prompt\":\"a\",\"top_k\":true}", "integer"}, {"{\"prompt\":\"a\",\"top_p\":\"1\"}", "number"},
    {"{\"prompt\":\"a\",\"seed\":\"-1\"}", "integer"}, {"{\"prompt\":\"a\",\"seed\":\"1x\"}", "integer"},
    {"{\"prompt\":\"a\",\"seed\":\"18446744073709551616\"}", "integer"}, {"{\"prompt\":\"a\",\"seed\":1.0}", "integer"},
    {"{\"prompt\":\"a\",\"stop_ids\":5}", "list"}, {"{\"prompt\":\"a\",\"stop_ids\":[2147483648]}", "token ids"},
    {"{\"prompt\":\"a\",\"ignore_eos\":1}", "true or false"}, {"{\"prompt_ids\":[1.5]}", "token ids"}, {"{\"prompt_ids\":{}}", "list"},
    {"{\"prompt\":\"a\",\"id\":1.5}", "integer or a text"}, {"{\"prompt\":\"a\",\"id\":null}", "integer or a text"},
    {"{\"prompt\":\"a\",\"answer\":1}", "text"}, {"{\"prompt\":\"a\",\"prompt\":\"a\"}", "not JSON"},
    {"{\"prompt\":\"a\"} x", "not JSON"}, {"{\"prompt\":\"\xff\"}", "not JSON"},
  };
  items list = {0};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++)
    if (add(&list, cases[i][0]) == OK || !strstr(fail_text(), cases[i][1]))
      fail_msg("%s: expected \"%s\" in \"%s\"", cases[i][0], cases[i][1], fail_text());
  assert_int_equal(list.count, 0);
  items_close(&list);
}

static void ids(void **state) {
  (void)state;
  items list = {0};
  assert_int_equal(items_add_ids(&list, " 1, 22 333,", &DEFAULTS), OK);
  assert_int_equal(list.list[0].id_count, 3);
  assert_int_equal(list.list[0].ids[2], 333);
  static const char *const bad[] = {"1 x", "-1", "1.5", "2147483648", "1;2"};
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) assert_int_equal(items_add_ids(&list, bad[i], &DEFAULTS), ERR_USAGE);
  assert_int_equal(list.count, 1);
  items_close(&list);
}

static void many(void **state) {
  (void)state;
  items list = {0};
  for (int i = 0; i < 1000; i++) assert_int_equal(items_add_text(&list, "abc", 3, &DEFAULTS), OK);
  assert_string_equal(list.list[999].id, "999");
  items_close(&list);
}

/* Every cut and every flipped bit of a line: read or refused, never followed outside. */
static void damage(void **state) {
  (void)state;
  char line[] = "{\"prompt\":\"hi\",\"id\":\"a\",\"max_tokens\":5,\"seed\":12,\"stop_ids\":[1,2],\"x\":{\"y\":[1]}}";
  items list = {0};
  size_t bytes = strlen(line);
  for (size_t cut = 0; cut < bytes; cut++) {
    fail_clear();
    assert_int_not_equal(items_add_json(&list, line, cut, 1, &DEFAULTS), OK);
  }
  for (size_t bit = 0; bit < 8 * bytes; bit++) {
    line[bit / 8] = (char)(line[bit / 8] ^ (1 << bit % 8));
    fail_clear();
    (void)items_add_json(&list, line, bytes, 1, &DEFAULTS);
    line[bit / 8] = (char)(line[bit / 8] ^ (1 << bit % 8));
  }
  assert_true(list.count > 10);
  items_close(&list);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sound), cmocka_unit_test(refused), cmocka_unit_test(ids), cmocka_unit_test(many),
                                     cmocka_unit_test(damage)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
