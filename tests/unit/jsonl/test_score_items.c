/* test_score_items.c - lines of items to score: which are accepted, which fields are echoed, which lines are refused. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/jsonl/score_items.h"

static const char *const DEFAULT_AXIS = "batch";
static const score_conditions DEFAULTS = {.required = &DEFAULT_AXIS, .required_count = 1, .deadline_seconds = 7};

static status add(score_items *list, const char *line, size_t bytes) {
  char *copy = malloc(bytes ? bytes : 1); /* a buffer of exactly this length, for the sanitizers */
  assert_non_null(copy);
  memcpy(copy, line, bytes);
  fail_clear();
  status result = score_items_add(list, copy, bytes, 4, &DEFAULTS);
  free(copy);
  return result;
}

static void sound(void **state) {
  (void)state;
  static const char *const lines[] = {
    "{\"context\":\"a\\u0000\",\"continuation\":\" b\",\"id\":17,\"task\":\"t\",\"zzz\":[1],\"label\":0.12345678901234566}",
    "{\"context\":\"a\",\"continuations\":[\"b\",\"cd\",\"\"],\"answer\":2}",
    "{\"continuation_ids\":[3],\"context_ids\":[1,2]}",
    "{\"context_ids\":[],\"continuations_ids\":[[3,4],[]],\"id\":\"x\"}",
    "{\"text\":\"a b\"}",
    "{\"ids\":[7,8,9]}"};
  score_items list = {0};
  for (size_t i = 0; i < ARRAY_LEN(lines); i++)
    if (add(&list, lines[i], strlen(lines[i])) != OK) fail_msg("%s: %s", lines[i], fail_text());
  const score_item *item = list.list;
  assert_int_equal(list.count, 6);
  assert_int_equal(item[0].context.bytes, 2);
  assert_memory_equal(item[0].context.text, "a\0", 3);
  assert_memory_equal(item[0].parts[0].text, " b", 3);
  assert_true(item[0].part_count == 1 && !item[0].is_list && item[0].answer == -1);
  assert_string_equal(item[0].id, "17");
  assert_string_equal(item[0].task, "t");
  assert_string_equal(item[0].echo, "{\"zzz\":[1],\"label\":0.12345678901234566}");
  assert_true(item[1].part_count == 3 && item[1].is_list && item[1].answer == 2);
  assert_string_equal(item[1].parts[1].text, "cd");
  assert_string_equal(item[1].id, "1");
  assert_null(item[1].task);
  assert_null(item[1].echo);
  assert_true(item[2].context.id_count == 2 && item[2].context.ids[1] == 2 && !item[2].context.text);
  assert_true(item[2].parts[0].id_count == 1 && item[2].parts[0].ids[0] == 3 && !item[2].is_list);
  assert_true(item[3].context.ids && item[3].context.id_count == 0 && item[3].parts[0].id_count == 2 && item[3].parts[1].id_count == 0);
  assert_true(!item[4].context.text && !item[4].context.ids && item[4].parts[0].bytes == 3);
  assert_true(!item[5].context.text && !item[5].context.ids && item[5].parts[0].ids[2] == 9);
  score_items_close(&list);
}

static void conditions(void **state) {
  (void)state;
  static const char *const lines[] = {"{\"text\":\"a\",\"require\":[\"scoring\",\"slot\"],\"deadline_seconds\":2.5}",
                                      "{\"text\":\"a\",\"require\":[],\"deadline_seconds\":0}", "{\"text\":\"a\"}"};
  score_items list = {0};
  for (size_t i = 0; i < ARRAY_LEN(lines); i++) assert_int_equal(add(&list, lines[i], strlen(lines[i])), OK);
  const score_conditions *a = &list.list[0].conditions, *b = &list.list[1].conditions, *c = &list.list[2].conditions;
  assert_true(a->required_count == 2 && a->deadline_seconds == 2.5 && !list.list[0].echo);
  assert_string_equal(a->required[0], "scoring");
  assert_string_equal(a->required[1], "slot");
  assert_true(b->required_count == 0 && b->deadline_seconds == 0);
  assert_true(c->required == &DEFAULT_AXIS && c->required_count == 1 && c->deadline_seconds == 7 && !list.list[2].required);
  score_items_close(&list);
}

static void refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
    {"", "line 4"}, {"{", "not JSON"}, {"[1]", "object"}, {"{}", "found 0"}, {"\xef\xbb\xbf{}", "byte order mark"},
    {"{\"context\":\"a\",\"context\":\"b\",\"continuation\":\"c\"}", "duplicate"},
    {"{\"context\":\"a\"}", "\"continuation\" and \"continuations\" beside"},
    {"{\"context_ids\":[1]}", "\"continuation_ids\" and \"continuations_ids\" beside"},
    {"{\"continuation\":\"a\"}", "found 0"}, {"{\"context\":\"a\",\"text\":\"b\"}", "found 2"},
    {"{\"context\":\"a\",\"context_ids\":[1],\"continuation\":\"b\"}", "found 2"},
    {"{\"context\":\"a\",\"continuation\":\"b\",\"continuations\":[\"c\"]}", "beside \"context\""},
    {"{\"context\":\"a\",\"continuation_ids\":[1]}", "beside \"context\""},
    {"{\"context_ids\":[1],\"continuation\":\"b\"}", "beside \"context_ids\""},
    {"{\"text\":\"a\",\"continuation\":\"b\"}", "before one is \"context\""},
    {"{\"ids\":[1],\"continuation_ids\":[1]}", "before one is \"context_ids\""},
    {"{\"context\":1,\"continuation\":\"b\"}", "\"context\": expected text"},
    {"{\"context\":null,\"continuation\":\"b\"}", "\"context\": expected text"},
    {"{\"context\":\"a\",\"continuation\":[\"b\"]}", "\"continuation\": expected text"},
    {"{\"context\":\"a\",\"continuations\":\"b\"}", "list of 1 to"}, {"{\"context\":\"a\",\"continuations\":[]}", "list of 1 to"},
    {"{\"context\":\"a\",\"continuations\":{\"b\":1}}", "list of 1 to"},
    {"{\"context\":\"a\",\"continuations\":[\"b\",2]}", "\"continuations\": expected text"},
    {"{\"context_ids\":[-1],\"continuation_ids\":[1]}", "integers of 0 or more"},
    {"{\"context_ids\":[1.5],\"continuation_ids\":[1]}", "integers of 0 or more"},
    {"{\"context_ids\":[2147483648],\"continuation_ids\":[1]}", "integers of 0 or more"},
    {"{\"context_ids\":[1],\"continuations_ids\":[1]}", "list of token ids"},
    {"{\"text\":[\"a\"]}", "\"text\": expected text"}, {"{\"ids\":\"1 2\"}", "list of token ids"},
    {"{\"context\":\"a\",\"continuation\":\"b\",\"answer\":0}", "expected a list of continuations"},
    {"{\"text\":\"a\",\"answer\":0}", "expected a list of continuations"},
    {"{\"context\":\"a\",\"continuations\":[\"b\",\"c\"],\"answer\":2}", "index of 0 to 1, found 2"},
    {"{\"context\":\"a\",\"continuations\":[\"b\"],\"answer\":\"b\"}", "integer"},
    {"{\"context\":\"a\",\"continuations\":[\"b\"],\"answer\":-1}", "integer"},
    {"{\"context\":\"a\",\"continuations\":[\"b\"],\"answer\":4294967295}", "index of a continuation"},
    {"{\"text\":\"a\",\"id\":[1]}", "\"id\": expected"}, {"{\"text\":\"a\",\"id\":\"a\\u0000\"}", "NUL"},
    {"{\"text\":\"a\",\"task\":3}", "\"task\": expected text"}, {"{\"text\":\"a\",\"require\":{}}", "list of names"},
    {"{\"text\":\"a\",\"require\":[null]}", "names"}, {"{\"text\":\"a\",\"deadline_seconds\":-0.5}", "0 or more"},
    {"{\"text\":\"a\",\"temperature\":0.5}", "\"temperature\" is not supported"}, {"{\"text\":\"a\",\"prompt\":\"b\"}", "not supported"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    score_items list = {0};
    assert_int_not_equal(add(&list, cases[i][0], strlen(cases[i][0])), OK);
    if (!strstr(fail_text(), cases[i][1]) || !strstr(fail_text(), "line 4"))
      fail_msg("%s: expected \"%s\" in \"%s\"", cases[i][0], cases[i][1], fail_text());
    assert_int_equal(list.count, 0);
    score_items_close(&list);
  }
}

/* Truncated at every byte, and with every byte replaced: the result is an item or an error. */
static void damage(void **state) {
  (void)state;
  static const char *const lines[] = {
    "{\"context\":\"a\\u00fc\",\"continuations\":[\"b\",\"c\"],\"answer\":1,\"id\":\"i\",\"task\":\"t\",\"x\":{\"y\":[1.5]}}",
    "{\"context_ids\":[1,2],\"continuations_ids\":[[3],[4,5]],\"require\":[\"a\",\"b\"],\"deadline_seconds\":1}"};
  uint32_t taken = 0;
  for (size_t n = 0; n < ARRAY_LEN(lines); n++) {
    char line[256];
    size_t bytes = strlen(lines[n]);
    for (size_t i = 0; i < bytes; i++) {
      score_items list = {0};
      assert_int_not_equal(add(&list, lines[n], i), OK);
      for (unsigned c = 0; c < 256; c++) {
        memcpy(line, lines[n], bytes);
        line[i] = (char)c;
        if (add(&list, line, bytes) == OK) taken++;
        else assert_true(fail_text()[0] != 0);
      }
      for (uint32_t k = 0; k < list.count; k++) assert_true(list.list[k].id && list.list[k].part_count >= 1);
      score_items_close(&list);
    }
  }
  assert_true(taken > 1000); /* changed letters inside texts and names */
}

static void sizes(void **state) {
  (void)state;
  score_items list = {0};
  size_t room = 4u * (SCORE_ITEMS_PARTS_MAX + 16);
  char *line = malloc(room);
  assert_non_null(line);
  for (uint32_t extra = 0; extra < 2; extra++) {
    size_t at = (size_t)sprintf(line, "{\"context\":\"\",\"continuations\":[");
    for (uint32_t i = 0; i < SCORE_ITEMS_PARTS_MAX + extra; i++) at += (size_t)sprintf(line + at, i ? ",\"\"" : "\"\"");
    at += (size_t)sprintf(line + at, "]}");
    assert_true(at < room);
    assert_int_equal(add(&list, line, at), extra ? ERR_FORMAT : OK);
  }
  assert_int_equal(list.count, 1);
  assert_int_equal(list.list[0].part_count, SCORE_ITEMS_PARTS_MAX);
  free(line);
  score_items_close(&list);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sound), cmocka_unit_test(conditions), cmocka_unit_test(refused),
                                     cmocka_unit_test(damage), cmocka_unit_test(sizes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
