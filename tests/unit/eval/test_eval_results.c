/* test_eval_results.c - result lines: written from scored requests and read back into the values that scores are computed from. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"
#include "engine/eval/results.h"

static const eval_task TASKS[] = {{.kind = EVAL_GENERATE}, {.kind = EVAL_CHOICE}, {.kind = EVAL_PERPLEXITY}};

/* A task of one item whose requests were "scored": logprobs of the choices' single tokens. */
static bool without_text; /* of the lines below */

static const char *line_choices = "\"a\",\" bcd\",\"ef\"", *line_norm = "";

static json_t *choice_line(const float *logprobs, uint32_t count, enum verbatim_finish finish) {
  char yaml[128], line[128];
  snprintf(yaml, sizeof yaml, "name: t\nkind: choice\nitems: i\nsubsets: s\n%s", line_norm);
  snprintf(line, sizeof line, "{\"id\":\"x\",\"prompt\":\"p\",\"s\":\"u\",\"choices\":[%s],\"answer\":1}", line_choices);
  eval_task task;
  eval_items made_items = {0};
  verbatim_request requests[3] = {{0}};
  verbatim_token tokens[3] = {{0}};
  json_t *made = NULL;
  assert_int_equal(eval_task_parse(yaml, strlen(yaml), &task), OK);
  assert_int_equal(eval_items_make(&task, (eval_source){line, strlen(line)}, (eval_source){0}, &made_items), OK);
  for (uint32_t i = 0; i < count; i++) {
    tokens[i].logprob = logprobs[i];
    requests[i] = (verbatim_request){.score = true, .scores = &tokens[i], .score_count = 1, .finish = VERBATIM_LENGTH};
  }
  requests[2].finish = finish;
  const eval_request request = {.requests = requests, .request_count = count};
  const eval_results_item from = {.task = &task, .item = &made_items.list[0], .request = &request,
                                  .without_text = without_text};
  if (eval_results_make(&from, &made) != OK) fail_msg("%s", fail_text());
  eval_items_close(&made_items);
  eval_task_close(&task);
  return made;
}

/* Two bytes of one character: per byte -1 / 2 is above -0.75, per character it is not. */
static void choices_are_normalised_as_asked(void **state) {
  (void)state;
  line_choices = "\" \xc3\xa4\",\"b\",\"c\"";
  for (uint32_t i = 0; i < 3; i++) {
    line_norm = (const char *const[]){"", "norm: bytes\n", "norm: characters\n"}[i];
    json_t *line = choice_line((const float[]){-1, -0.75f, -4}, 3, VERBATIM_LENGTH);
    assert_int_equal(json_integer_value(json_object_get(line, "best_norm")), i == 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(line, "choices"), 0), "bytes")), 2);
    json_decref(line);
  }
  line_choices = "\"a\",\" bcd\",\"ef\"";
  line_norm = "";
}

static void choices(void **state) {
  (void)state;
  json_t *line = choice_line((const float[]){-1, -1.5f, -4}, 3, VERBATIM_LENGTH), *again;
  char *text = NULL;
  size_t bytes = 0;
  eval_sample sample;
  eval_score score = {.task = &TASKS[EVAL_CHOICE]};
  assert_int_equal(eval_results_text(line, &text, &bytes), OK);
  assert_true(strncmp(text, "{\"task\":\"t\",\"index\":0,\"id\":\"x\",\"kind\":\"choice\",\"subset\":\"u\",\"prompt_digest\":\"", 70) == 0);
  assert_non_null(strstr(text, "{\"text\":\" bcd\",\"logprob\":-1.5,\"token_count\":1,\"bytes\":3,\"is_greedy\":true}"));
  assert_non_null(strstr(text, "\"best\":0,\"best_norm\":1,\"answer\":1,\"acc\":false,\"acc_norm\":true,")); /* -1.5 / 3 is above -1 */
  assert_non_null(again = json_loads(text, 0, NULL));
  assert_true(json_equal(line, again) && text[bytes - 1] == '\n' && strlen(text) == bytes);
  assert_int_equal(eval_results_sample(again, &score, &sample), OK);
  assert_true(!sample.is_failed && sample.over[0] == 0 && sample.over[1] == 1 && sample.under[0] == 1 && sample.subset == 0);
  assert_string_equal(score.subsets.list[0], "u");
  json_t *other = choice_line((const float[]){-2, -1.5f, -4}, 3, VERBATIM_LENGTH);
  assert_true(eval_results_flipped(line, other, EVAL_CHOICE) && !eval_results_flipped(line, again, EVAL_CHOICE));
  assert_string_equal(eval_results_difference(line, other), "choices");
  assert_null(eval_results_difference(line, again));
  json_object_set_new(again, "z", json_null());
  assert_string_equal(eval_results_difference(line, again), "z");
  json_decref(line);
  json_decref(again);
  json_decref(other);
  eval_metric_drop(&score.subsets);
  free(text);
}

static void failures(void **state) {
  (void)state;
  json_t *line = choice_line((const float[]){-1, -1, -1}, 3, VERBATIM_NONFINITE);
  eval_sample sample;
  eval_score score = {.task = &TASKS[EVAL_CHOICE]};
  assert_string_equal(json_string_value(json_object_get(line, "failed")), "nonfinite");
  assert_true(json_is_null(json_object_get(line, "best")) && json_is_false(json_object_get(line, "acc")) && !json_object_get(line,
      "margin"));
  assert_int_equal(eval_results_sample(line, &score, &sample), OK);
  assert_true(sample.is_failed && !sample.is_left_out && sample.over[0] == 0 && sample.under[0] == 1);
  eval_metric_drop(&score.subsets);
  json_decref(line);
}

/* What a line says of an item's texts: the end of a long prompt from a whole character on, or nothing at all. */
static void texts(void **state) {
  (void)state;
  json_t *line = choice_line((const float[]){-1, -1.5f, -4}, 3, VERBATIM_LENGTH);
  assert_string_equal(json_string_value(json_object_get(line, "prompt")), "p");
  assert_int_equal(json_integer_value(json_object_get(line, "prompt_bytes")), 1);
  without_text = true;
  json_t *bare = choice_line((const float[]){-1, -1.5f, -4}, 3, VERBATIM_LENGTH);
  without_text = false;
  assert_true(!json_object_get(bare, "prompt") && !json_object_get(bare, "prompt_bytes"));
  assert_null(json_object_get(json_array_get(json_object_get(bare, "choices"), 0), "text"));
  assert_true(json_equal(json_object_get(bare, "best"), json_object_get(line, "best")));
  assert_true(json_equal(json_object_get(bare, "prompt_digest"), json_object_get(line, "prompt_digest")));
  json_decref(line);
  json_decref(bare);
  eval_task task = {.kind = EVAL_GENERATE, .name = "t"};
  for (size_t more = 0; more < 3; more++) { /* an e with an accent, 2 bytes, across the bound or not */
    char prompt[EVAL_RESULTS_PROMPT_BYTES_MAX + 4];
    size_t count = EVAL_RESULTS_PROMPT_BYTES_MAX + more;
    memset(prompt, 'x', count);
    memcpy(prompt, "\xc3\xa9", 2);
    eval_item one = {.id = (char[]){"i"}, .prompt = {prompt, count, count + 1}};
    const eval_request skipped = {.is_skipped = true};
    const eval_results_item from = {.task = &task, .item = &one, .request = &skipped};
    assert_int_equal(eval_results_make(&from, &line), OK);
    assert_int_equal(json_string_length(json_object_get(line, "prompt")), more == 1 ? count - 2 : count - more);
    assert_int_equal(json_integer_value(json_object_get(line, "prompt_bytes")), count);
    eval_score score = {.task = &task};
    eval_sample sample;
    assert_int_equal(eval_results_sample(line, &score, &sample), OK);
    assert_true(sample.is_skipped && sample.is_left_out && !sample.is_judged && !sample.is_failed);
    json_decref(line);
  }
}

static void samples(void **state) {
  (void)state;
  static const struct { const char *line; eval_kind kind; const char *words; double over, under; } cases[] = {
    {"{\"correct\":true}", EVAL_GENERATE, NULL, 1, 1}, {"{\"correct\":false,\"share\":0.25}", EVAL_GENERATE, NULL, 0.25, 1},
    {"{\"correct\":1}", EVAL_GENERATE, "correct", 0, 0}, {"{\"correct\":true,\"share\":1}", EVAL_GENERATE, "share", 0, 0},
    {"{\"acc\":true}", EVAL_CHOICE, "acc_norm", 0, 0}, {"{\"acc\":true,\"acc_norm\":false}", EVAL_CHOICE, NULL, 1, 1},
    {"{\"correct\":true}", EVAL_GENERATE, NULL, 1, 1},
    {"{\"logprob\":-3.5,\"token_count\":2,\"words\":1,\"bytes\":9}", EVAL_PERPLEXITY, NULL, 3.5, 2},
    {"{\"logprob\":-3.5,\"token_count\":0,\"words\":1,\"bytes\":9}", EVAL_PERPLEXITY, "token_count", 0, 0},
    {"{\"correct\":true,\"share\":1.5}", EVAL_GENERATE, "share", 0, 0}, {"{\"correct\":true,\"share\":-0.5}", EVAL_GENERATE, "share", 0, 0},
    {"{\"correct\":true,\"failed\":\"nonfinitf\"}", EVAL_GENERATE, "failed", 0, 0},
    {"{\"correct\":true,\"margin\":{\"logprob\":1,\"probability\":0.5,\"ulps\":2,\"at\":0}}", EVAL_GENERATE, NULL, 1, 1},
    {"{\"correct\":true,\"margin\":{\"logprob\":1,\"probability\":4.5,\"ulps\":2,\"at\":0}}", EVAL_GENERATE, "margin", 0, 0},
    {"{\"correct\":true,\"margin\":{\"logprob\":1,\"probability\":0.5,\"ulpS\":2,\"at\":0}}", EVAL_GENERATE, "margin", 0, 0},
    {"{\"logprob\":3.5,\"token_count\":2,\"words\":1,\"bytes\":9}", EVAL_PERPLEXITY, "logprob", 0, 0},
    {"{\"logprob\":-3.5,\"token_count\":2,\"words\":1,\"bytes\":9000000000000000000}", EVAL_PERPLEXITY, "bytes", 0, 0},
    {"{\"skipped\":\"too_long\"}", EVAL_GENERATE, NULL, 0, 1}, {"{\"skipped\":true}", EVAL_GENERATE, "skipped", 0, 0},
    {"{\"logprob\":\"x\",\"token_count\":2,\"words\":1,\"bytes\":9}", EVAL_PERPLEXITY, "logprob", 0, 0}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    json_t *line = json_loads(cases[i].line, 0, NULL);
    eval_sample sample = {0};
    eval_score score = {.task = &TASKS[cases[i].kind]};
    fail_clear();
    status result = eval_results_sample(line, &score, &sample);
    if (cases[i].words) assert_true(result == ERR_FORMAT && strstr(fail_text(), cases[i].words));
    else assert_true(result == OK && sample.over[0] == cases[i].over && sample.under[0] == cases[i].under);
    if (!cases[i].words) assert_true(sample.is_judged == (cases[i].kind != EVAL_PERPLEXITY && !sample.is_skipped));
    if (!cases[i].words) assert_true(sample.is_right == (sample.over[0] == 1)); /* the values that flip risk counts */
    json_decref(line);
    eval_metric_drop(&score.subsets);
  }
}

/* Answers that were cut, and thoughts without an end, in a line and in its samples. */
static void ends(void **state) {
  (void)state;
  static const struct { const char *line; uint32_t cut, unended, answers; } cases[] = {
    {"{\"correct\":true,\"finish\":\"stop\"}", 0, 0, 1}, {"{\"correct\":true,\"finish\":\"length\",\"unended\":true}", 1, 1, 1},
    {"{\"correct\":true,\"finish\":\"length\",\"share\":0.5,\"samples\":[{\"finish\":\"length\"},{\"finish\":\"stop\"},"
     "{\"finish\":\"length\",\"unended\":true}]}", 2, 1, 3}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    json_t *line = json_loads(cases[i].line, 0, NULL);
    eval_score score = {.task = &TASKS[EVAL_GENERATE]};
    eval_sample sample;
    assert_int_equal(eval_results_sample(line, &score, &sample), OK);
    assert_true(sample.cut == cases[i].cut && sample.unended == cases[i].unended && sample.answers == cases[i].answers);
    json_decref(line);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(choices), cmocka_unit_test(choices_are_normalised_as_asked),
                                     cmocka_unit_test(failures), cmocka_unit_test(texts), cmocka_unit_test(ends),
                                       cmocka_unit_test(samples)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
