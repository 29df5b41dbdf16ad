/* test_items.c - prompts from arguments and JSONL lines: which are accepted, which fields are echoed, which lines are refused. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/jsonl/items.h"

static const verbatim_text DEFAULT_STOP = {"end", 3};
static const char *const DEFAULT_AXIS = "batch";
static const item_params DEFAULTS = {.max_tokens = 9, .samples = 1, .top_p = 1.0, .repetition_penalty = 1, .seed = 3,
                                     .stop_texts = &DEFAULT_STOP, .stop_text_count = 1, .required = &DEFAULT_AXIS, .required_count = 1,
                                     .deadline_seconds = 7};

static status add(items *list, const char *line) {
  size_t bytes = strlen(line);
  char *copy = malloc(bytes ? bytes : 1); /* a buffer of exactly this length, for the sanitizers */
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

/* Every field of a request to the engine; fields that a line leaves out have their defaults. */
static void parameters(void **state) {
  (void)state;
  items list = {0};
  static const char line[] =
    "{\"prompt\":\"a\",\"n\":3,\"min_p\":0.05,\"repetition_penalty\":1.5,\"presence_penalty\":-2,\"frequency_penalty\":0.25,"
    "\"logprobs\":20,\"stop\":[\"x\\u0000y\",\"\\u20ac\"],\"logit_bias\":{\"17\":-100,\"0\":2.5},\"allowed_ids\":[17,4]}";
  assert_int_equal(add(&list, line), OK);
  assert_int_equal(add(&list, "{\"prompt\":\"a\",\"stop\":\"one\"}"), OK);
  assert_int_equal(add(&list, "{\"prompt\":\"a\"}"), OK);
  assert_int_equal(add(&list, "{\"prompt\":\"a\",\"stop\":[],\"logit_bias\":{}}"), OK);
  const item_params *a = &list.list[0].params, *b = &list.list[1].params, *c = &list.list[2].params, *d = &list.list[3].params;
  assert_true(a->samples == 3 && a->min_p == 0.05 && a->repetition_penalty == 1.5f && a->presence_penalty == -2.0f);
  assert_true(a->frequency_penalty == 0.25f && a->top_logprobs == 20 && a->top_p == 1.0 && a->max_tokens == 9);
  assert_int_equal(a->stop_text_count, 2);
  assert_int_equal(a->stop_texts[0].count, 3);
  assert_memory_equal(a->stop_texts[0].bytes, "x\0y", 3);
  assert_int_equal(a->stop_texts[1].count, 3);
  assert_memory_equal(a->stop_texts[1].bytes, "\xe2\x82\xac", 3);
  assert_int_equal(a->bias_count, 2);
  assert_true(a->biases[0].token == 17 && a->biases[0].bias == -100.0f && a->biases[1].token == 0 && a->biases[1].bias == 2.5f);
  assert_int_equal(a->allowed_count, 2);
  assert_true(a->allowed_ids[0] == 17 && a->allowed_ids[1] == 4);
  assert_int_equal(b->stop_text_count, 1);
  assert_memory_equal(b->stop_texts[0].bytes, "one", 3);
  assert_true(c->stop_texts == &DEFAULT_STOP && c->stop_text_count == 1 && c->samples == 1 && c->repetition_penalty == 1);
  assert_true(d->stop_text_count == 0 && d->bias_count == 0);
  items_close(&list);
}

/* The requirements of a request: a line's list replaces the default one, also when it is empty. */
static void conditions(void **state) {
  (void)state;
  items list = {0};
  assert_int_equal(add(&list, "{\"prompt\":\"a\",\"require\":[\"prefix_hit\",\"\",\"\\u20ac\"],\"deadline_seconds\":0.25}"), OK);
  assert_int_equal(add(&list, "{\"prompt\":\"a\",\"require\":[],\"deadline_seconds\":0}"), OK);
  assert_int_equal(add(&list, "{\"prompt\":\"a\"}"), OK);
  const item_params *a = &list.list[0].params, *b = &list.list[1].params, *c = &list.list[2].params;
  assert_int_equal(a->required_count, 3);
  assert_string_equal(a->required[0], "prefix_hit");
  assert_string_equal(a->required[1], "");
  assert_string_equal(a->required[2], "\xe2\x82\xac");
  assert_true(a->deadline_seconds == 0.25 && b->deadline_seconds == 0 && b->required_count == 0);
  assert_true(c->deadline_seconds == 7 && c->required == &DEFAULT_AXIS && c->required_count == 1);
  items_close(&list);
}

static void refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
    {"", "line 4"}, {"{", "not JSON"}, {"null", "not JSON"}, {"3", "not JSON"}, {"[1]", "object"}, {"{}", "one of"},
    {"{\"prompt\":[]}", "text"},
    {"{\"prompt\":\"a\",\"best_of\":2}", "\"best_of\" is not supported"}, {"{\"prompt\":\"a\",\"top_logprobs\":2}", "not supported"},
    {"{\"prompt\":\"a\",\"repeat_penalty\":1.1}", "not supported"}, {"{\"prompt\":\"a\",\"stop_sequences\":[\"x\"]}", "not supported"},
    {"{\"prompt\":\"a\",\"n\":0}", "1 to 128"}, {"{\"prompt\":\"a\",\"n\":129}", "1 to 128"}, {"{\"prompt\":\"a\",\"n\":null}", "integer"},
    {"{\"prompt\":\"a\",\"logprobs\":21}", "0 to 20"}, {"{\"prompt\":\"a\",\"logprobs\":true}", "integer"},
    {"{\"prompt\":\"a\",\"min_p\":\"1\"}", "number"}, {"{\"prompt\":\"a\",\"repetition_penalty\":null}", "number"},
    {"{\"prompt\":\"a\",\"stop\":\"\"}", "1 to 256"},
    {"{\"prompt\":\"a\",\"stop\":[\"x\",3]}", "1 to 256"},
    {"{\"prompt\":\"a\",\"stop\":null}", "text"},
    {"{\"prompt\":\"a\",\"stop\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "at most 16"},
    {"{\"prompt\":\"a\",\"require\":\"batch\"}", "list of names"}, {"{\"prompt\":\"a\",\"require\":[1]}", "names"},
    {"{\"prompt\":\"a\",\"require\":[\"a\\u0000\"]}", "without NUL"},
    {"{\"prompt\":\"a\",\"require\":[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3]}", "not too long"},
    {"{\"prompt\":\"a\",\"deadline_seconds\":-1}", "0 or more"}, {"{\"prompt\":\"a\",\"deadline_seconds\":\"1\"}", "number"},
    {"{\"prompt\":\"a\",\"deadline_seconds\":1e999}", "not JSON"}, {"{\"prompt\":\"a\",\"timeout\":1}", "not supported"},
    {"{\"prompt\":\"a\",\"logit_bias\":[]}", "object"}, {"{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}", "token ids"},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"-1\":1}}", "token ids"}, {"{\"prompt\":\"a\",\"logit_bias\":{\"1.5\":1}}", "token ids"},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"\":1}}", "token ids"}, {"{\"prompt\":\"a\",\"logit_bias\":{\"2147483648\":1}}", "token ids"},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"99999999999999999999\":1}}", "token ids"},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"1\":\"x\"}}", "number"},
    {"{\"prompt\":\"a\",\"allowed_ids\":[]}", "at least one"}, {"{\"prompt\":\"a\",\"allowed_ids\":7}", "list"},
    {"{\"prompt\":\"a\",\"allowed_ids\":[-7]}", "token ids"},
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

/* A line truncated at every byte and with every bit flipped: accepted or refused, never read outside its buffer. */
static void damage(void **state) {
  (void)state;
  char line[] =
    "{\"prompt\":\"hi\",\"id\":\"a\",\"max_tokens\":5,\"seed\":12,\"stop_ids\":[1,2],\"stop\":[\"a\"],\"logit_bias\":{\"7\":1},"
    "\"allowed_ids\":[7],\"require\":[\"a\",\"b\"],\"deadline_seconds\":2,\"x\":{\"y\":[1]}}";
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(sound), cmocka_unit_test(parameters), cmocka_unit_test(conditions),
                                     cmocka_unit_test(refused), cmocka_unit_test(ids), cmocka_unit_test(many), cmocka_unit_test(damage)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
