/* test_score_report.c - sums, the best of several, output lines and the figures of the summary, from invented requests. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/jsonl/score_report.h"

static const uint8_t NUMERICS_ID[16] = {0xc0, [15] = 0x0f};
#define NUMERICS_TEXT "c000000000000000000000000000000f"

static score_part text_part(const char *text) { return (score_part){.text = (char *)(uintptr_t)text, .bytes = strlen(text)}; }

/* The line of the item and its requests, as a JSON object. */
static json_t *line_of(const score_item *item, const score_result *results, const verbatim_request *requests, uint32_t count, char **raw) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&text, &bytes);
  assert_non_null(file);
  assert_int_equal(score_report_json(file, NUMERICS_ID, item, results, requests, count), OK);
  fclose(file);
  assert_true(bytes > 2 && text[bytes - 1] == '\n' && strchr(text, '\n') == text + bytes - 1);
  json_error_t error;
  json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  if (!object) fail_msg("%s: %s", error.text, text);
  if (raw) *raw = text;
  else free(text);
  return object;
}

/* Binary64, one token after the other: these numbers give other bits in another order or in fp32. */
static void sums(void **state) {
  (void)state;
  verbatim_token first[] = {{.logprob = -1e8f}, {.logprob = -4e-9f}, {.logprob = -4e-9f}}, second[] = {{.logprob = -1, .rank = 3}};
  verbatim_request requests[] = {{.scores = first, .score_count = 3, .finish = VERBATIM_LENGTH},
                                 {.scores = second, .score_count = 1, .finish = VERBATIM_LENGTH}};
  score_result r = score_report_result(requests, 2);
  double small = (double)-4e-9f, expected = ((-1e8 + small) + small) + -1;
  assert_memory_equal(&r.logprob, &expected, sizeof expected);
  assert_true(expected != (-1e8 + (small + small)) + -1); /* another order gives another number */
  assert_true(r.token_count == 4 && !r.is_greedy && !r.failed);
  assert_true(score_report_result(requests, 1).is_greedy);
  requests[1].finish = VERBATIM_NONFINITE;
  assert_ptr_equal(score_report_result(requests, 2).failed, &requests[1]);
  requests[0].finish = VERBATIM_DEADLINE;
  assert_ptr_equal(score_report_result(requests, 2).failed, &requests[0]);
}

static void best(void **state) {
  (void)state;
  score_part parts[] = {text_part(" abcd"), text_part(" a"), text_part(" b")};
  score_item item = {.id = "x", .context = text_part("c"), .parts = parts, .part_count = 3, .is_list = true, .answer = -1};
  score_result results[] = {{-4, 2, false, NULL}, {-2, 1, false, NULL}, {-2, 1, true, NULL}};
  assert_int_equal(score_report_best(&item, results), 1);      /* the first of equals */
  assert_int_equal(score_report_best_norm(&item, results), 0); /* -1 per byte; the space does not count */
  results[2].failed = &(verbatim_request){0};
  assert_int_equal(score_report_best(&item, results), -1);
  assert_int_equal(score_report_best_norm(&item, results), -1);
}

static void lines(void **state) {
  (void)state;
  verbatim_token tokens[2][2] = {{{.id = 5, .logprob = -0.1f, .rank = 0}, {.id = 6, .logprob = -1.17549435e-38f, .rank = 2}},
                                 {{.id = 7, .logprob = -INFINITY, .rank = 9}, {0}}};
  verbatim_alternative top[] = {{5, -0.1f}, {9, -2.5f}, {8, -0.25f}, {6, -3.0f}};
  verbatim_request requests[] = {{.scores = tokens[0], .score_count = 2, .top_logprobs = 2, .alternatives = top, .finish = VERBATIM_LENGTH},
                                 {.scores = tokens[1], .score_count = 1, .finish = VERBATIM_LENGTH}};
  score_part parts[] = {text_part(" ab"), text_part("c")};
  score_item item = {.id = "\"x\"", .task = "t", .echo = "{\"zzz\":0.12345678901234566,\"numerics_id\":1,\"logprob\":3,\"tokens\":[]}",
                     .context = text_part("c"), .parts = parts, .part_count = 1, .answer = -1};
  score_result results[] = {score_report_result(&requests[0], 1), score_report_result(&requests[1], 1)};
  char *raw = NULL;
  json_t *o = line_of(&item, results, requests, 1, &raw);
  assert_string_equal(json_string_value(json_object_get(o, "id")), "\"x\"");
  assert_string_equal(json_string_value(json_object_get(o, "task")), "t");
  assert_string_equal(json_string_value(json_object_get(o, "numerics_id")), NUMERICS_TEXT);
  assert_true(json_real_value(json_object_get(o, "zzz")) == 0.12345678901234566);
  assert_true(json_number_value(json_object_get(o, "logprob")) == results[0].logprob); /* to the bit */
  assert_int_equal(json_integer_value(json_object_get(o, "token_count")), 2);
  assert_int_equal(json_integer_value(json_object_get(o, "bytes")), 2);
  assert_true(json_is_false(json_object_get(o, "is_greedy")));
  const json_t *logprobs = json_object_get(o, "logprobs"), *alternatives = json_object_get(o, "alternatives");
  for (size_t i = 0; i < 2; i++) {
    assert_true((float)json_number_value(json_array_get(logprobs, i)) == tokens[0][i].logprob);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "tokens"), i)), tokens[0][i].id);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "ranks"), i)), (int)tokens[0][i].rank);
    for (size_t k = 0; k < 2; k++) {
      const json_t *entry = json_array_get(json_array_get(alternatives, i), k);
      assert_int_equal(json_integer_value(json_object_get(entry, "id")), top[2 * i + k].id);
      assert_true((float)json_number_value(json_object_get(entry, "logprob")) == top[2 * i + k].logprob);
    }
  }
  free(raw);
  json_decref(o);
  item.part_count = 2;
  item.is_list = true;
  item.answer = 1;
  o = line_of(&item, results, requests, 2, NULL);
  const json_t *choices = json_object_get(o, "choices"), *second = json_array_get(choices, 1);
  assert_int_equal(json_array_size(choices), 2);
  assert_true(json_is_null(json_object_get(second, "logprob")) && json_is_null(json_array_get(json_object_get(second, "logprobs"), 0)));
  assert_null(json_object_get(second, "alternatives"));
  assert_int_equal(json_integer_value(json_object_get(o, "best")), 0);
  assert_true(json_is_false(json_object_get(o, "acc")) && json_is_false(json_object_get(o, "acc_norm")));
  json_decref(o);
  score_item whole = {.id = "w", .parts = parts, .part_count = 1, .answer = -1}; /* one text, two windows */
  results[0] = score_report_result(requests, 2);
  o = line_of(&whole, results, requests, 2, NULL);
  assert_int_equal(json_integer_value(json_object_get(o, "windows")), 2);
  assert_int_equal(json_integer_value(json_object_get(o, "bytes")), 3);
  assert_int_equal(json_integer_value(json_object_get(o, "words")), 2);
  assert_int_equal(json_array_size(json_object_get(o, "tokens")), 3);
  assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "tokens"), 2)), 7);
  json_decref(o);
}

/* A request that was not scored to its end: the line has its ending and the position where NaN or Inf began, and no best. */
static void failures(void **state) {
  (void)state;
  verbatim_token tokens[2] = {{.id = 5, .logprob = -1}, {.id = 7, .logprob = -2}};
  verbatim_request requests[] = {{.scores = &tokens[0], .score_count = 1, .finish = VERBATIM_LENGTH},
                                 {.scores = &tokens[1], .score_count = 1, .finish = VERBATIM_NONFINITE, .fault_op = "layer 1 \"o_proj\"",
                                  .fault_layer = 1, .fault_position = 7}};
  score_part parts[] = {text_part(" ab"), text_part("c")};
  score_item item = {.id = "x", .context = text_part("c"), .parts = parts, .part_count = 2, .is_list = true, .answer = -1};
  score_result results[] = {score_report_result(&requests[0], 1), score_report_result(&requests[1], 1)};
  json_t *o = line_of(&item, results, requests, 2, NULL);
  const json_t *second = json_array_get(json_object_get(o, "choices"), 1), *fault = json_object_get(second, "fault");
  assert_null(json_object_get(o, "best"));
  assert_string_equal(json_string_value(json_object_get(second, "finish")), "nonfinite");
  assert_string_equal(json_string_value(json_object_get(fault, "op")), "layer 1 \"o_proj\"");
  assert_int_equal(json_integer_value(json_object_get(fault, "layer")), 1);
  assert_int_equal(json_integer_value(json_object_get(fault, "position")), 7);
  json_decref(o);
  requests[1].finish = VERBATIM_DEADLINE;
  o = line_of(&item, results, requests, 2, NULL);
  second = json_array_get(json_object_get(o, "choices"), 1);
  assert_string_equal(json_string_value(json_object_get(second, "finish")), "deadline");
  assert_null(json_object_get(second, "fault"));
  json_decref(o);
}

static double figure(const json_t *object, const char *task, const char *name) {
  const json_t *value = json_object_get(json_object_get(object, task), name);
  if (!value) fail_msg("%s: no %s", task, name);
  return json_number_value(value);
}

static void near(double found, double expected, double bound) {
  if (!(fabs(found - expected) <= bound)) fail_msg("expected %.17g, found %.17g", expected, found);
}

/* Against the textbook formulas, on values that are few enough to compute by hand. */
static void summary(void **state) {
  (void)state;
  score_summary all = {0};
  score_part texts[] = {text_part("ab"), text_part("c")}, ids[] = {{.ids = (int32_t[]){1, 2}, .id_count = 2}};
  score_item choice = {.id = "c", .task = "m", .context = text_part("c"), .parts = texts, .part_count = 2, .is_list = true};
  score_result first[] = {{-1, 1, true, NULL}, {-3, 1, false, NULL}}, second[] = {{-3, 1, true, NULL}, {-2, 1, false, NULL}};
  for (int i = 0; i < 3; i++) assert_int_equal(score_report_add(&all, &choice, i < 2 ? first : second), OK);
  second[0].failed = &(verbatim_request){0};
  assert_int_equal(score_report_add(&all, &choice, second), OK);
  score_item pair = {.id = "p", .context = text_part("c"), .parts = texts, .part_count = 1, .answer = -1};
  score_result pair_results[] = {{-1, 2, true, NULL}, {-4, 3, false, NULL}};
  for (int i = 0; i < 2; i++) assert_int_equal(score_report_add(&all, &pair, &pair_results[i]), OK);
  score_part long_text = text_part("one two three");
  score_item whole = {.id = "w", .task = "w", .parts = &long_text, .part_count = 1, .answer = -1};
  score_result whole_result = {-6, 4, false, NULL};
  for (int i = 0; i < 2; i++) assert_int_equal(score_report_add(&all, &whole, &whole_result), OK);
  score_item whole_ids = {.id = "i", .task = "i", .parts = ids, .part_count = 1, .answer = -1};
  assert_int_equal(score_report_add(&all, &whole_ids, &whole_result), OK);
  json_t *o = score_report_object(&all);
  assert_non_null(o);
  assert_int_equal(json_object_size(o), 4);
  assert_true(figure(o, "m", "items") == 4 && figure(o, "m", "failed") == 1);
  near(figure(o, "m", "acc"), 2.0 / 3, 1e-15);
  near(figure(o, "m", "acc_stderr"), sqrt((2.0 / 3) * (1.0 / 3) / 2), 1e-15);
  near(figure(o, "m", "acc_norm"), 1, 1e-15); /* -1/2 > -3/1, and -3/2 > -2/1 */
  near(figure(o, "all", "logprob"), -2.5, 1e-15);
  near(figure(o, "all", "logprob_stderr"), 1.5, 1e-15);
  near(figure(o, "all", "greedy"), 0.5, 1e-15);
  near(figure(o, "all", "perplexity"), exp(1), 1e-15);
  near(figure(o, "w", "token_perplexity"), exp(12.0 / 8), 1e-14);
  near(figure(o, "w", "word_perplexity"), exp(12.0 / 6), 1e-14);
  near(figure(o, "w", "byte_perplexity"), exp(12.0 / 26), 1e-14);
  near(figure(o, "w", "bits_per_byte"), 12.0 / 26 / log(2), 1e-14);
  assert_null(json_object_get(json_object_get(o, "i"), "byte_perplexity"));
  assert_true(figure(o, "i", "text_tokens") == 4);
  json_decref(o);
  score_report_close(&all);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums), cmocka_unit_test(best), cmocka_unit_test(lines), cmocka_unit_test(failures),
                                     cmocka_unit_test(summary)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
