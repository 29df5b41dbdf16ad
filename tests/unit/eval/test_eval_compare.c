/* test_eval_compare.c - two evaluations of the same items: figures against those of a Python program that sums over pairs of items, who
 * flipped, and what is refused. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"
#include "engine/eval/compare.h"

static void near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-12 * (1 + fabs(expected)))) fail_msg("%.17g, expected %.17g", found, expected);
}

static json_t *object(const char *text) {
  json_t *built = json_loads(text, JSON_ALLOW_NUL, NULL);
  if (!built) fail_msg("not JSON: %s", text);
  return built;
}

/* A manifest of one task, as far as a comparison reads it; cluster: a field, or NULL. */
static json_t *manifest_of(const char *kind, const char *cluster, const char *prompt) {
  return json_pack("{s:s, s:{s:s, s:[{s:s, s:s, s:s?, s:{s:s}, s:n, s:{s:s, s:{s:i}}}]}}", "manifest_digest", prompt, "setup",
                   "weights_digest", "w", "tasks", "name", "t", "kind", kind, "cluster", cluster, "items", "digest", "d", "shots",
                   "parameters", "prompt", prompt, "generation", "max_tokens", 4);
}

typedef struct runs { /* A and B */
  json_t *manifests[2], *results[2], *made;
  eval_compare_terms terms;
} runs;

static status compare(runs *r) {
  const eval_compare_side sides[2] = {{r->manifests[0], r->results[0]}, {r->manifests[1], r->results[1]}};
  fail_clear();
  return eval_compare_make(sides, &r->terms, &r->made);
}

static void close_runs(runs *r) {
  for (size_t k = 0; k < 2; k++) json_decref(r->manifests[k]), json_decref(r->results[k]);
  json_decref(r->made);
}

/* Lines of "t": right or wrong, with the id as answer, in clusters of two if they have any. */
static json_t *answers(const char *right, bool clustered) {
  json_t *list = json_array();
  for (int i = 0; right[i]; i++) {
    char id[2] = {(char)('a' + i), 0}, cluster[2] = {(char)('0' + i / 2), 0};
    json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:b}", "task", "t", "id", id, "extracted", right[i] == '1' ? id : "no", "answer", id,
                             "correct",
                             right[i] == '1');
    if (clustered) json_object_set_new(line, "cluster", json_string(cluster));
    json_array_append_new(list, line);
  }
  return list;
}

static const json_t *row_of(const runs *r) { return json_array_get(json_object_get(r->made, "tasks"), 0); }

static double figure(const runs *r, size_t metric, const char *key) {
  const json_t *value = json_object_get(json_array_get(json_object_get(row_of(r), "metrics"), metric), key);
  if (!json_is_number(value)) fail_msg("%s is no number", key);
  return json_number_value(value);
}

static void shares(void **state) {
  (void)state;
  for (int clustered = 0; clustered < 2; clustered++) {
    runs r = {.manifests = {manifest_of("generate", clustered ? "c" : NULL, "p"), manifest_of("generate", clustered ? "c" : NULL, "p")},
              .results = {answers("11001101", clustered), answers("10111101", clustered)}};
    if (compare(&r) != OK) fail_msg("%s", fail_text());
    assert_int_equal(json_integer_value(json_object_get(row_of(&r), "items")), 8);
    assert_true(figure(&r, 0, "a") == 0.625 && figure(&r, 0, "b") == 0.75 && figure(&r, 0, "difference") == 0.125);
    near(figure(&r, 0, "stderr"), clustered ? 0.2839650695319509 : 0.22658174179374144);
    near(figure(&r, 0, "low"), clustered ? -0.4526009813905059 : -0.33385652261319315);
    near(figure(&r, 0, "high"), clustered ? 0.6321131765124571 : 0.5338565226131932);
    const json_t *test = json_object_get(json_array_get(json_object_get(row_of(&r), "metrics"), 0), "mcnemar");
    if (clustered) assert_true(json_is_null(test) && json_integer_value(json_object_get(row_of(&r), "clusters")) == 4);
    else assert_true(json_number_value(json_object_get(test, "p")) == 1 && json_integer_value(json_object_get(test, "only_b")) == 2);
    const json_t *flips = json_object_get(row_of(&r), "flips"), *first = json_array_get(flips, 0);
    assert_int_equal(json_array_size(flips), 3);
    assert_string_equal(json_string_value(json_object_get(first, "id")), "b");
    assert_string_equal(json_string_value(json_object_get(first, "right")), "a");
    assert_string_equal(json_string_value(json_object_get(first, "b")), "no");
    assert_true(json_is_false(json_object_get(first, "close")));
    close_runs(&r);
  }
}

/* Nobody flips: still no certainty. */
static void equal_runs(void **state) {
  (void)state;
  runs r = {.manifests = {manifest_of("generate", NULL, "p"), manifest_of("generate", NULL, "p")},
            .results = {answers("1101", false), answers("1101", false)}};
  if (compare(&r) != OK) fail_msg("%s", fail_text());
  assert_true(figure(&r, 0, "difference") == 0 && figure(&r, 0, "stderr") == 0 && figure(&r, 0, "low") < -0.2 && figure(&r, 0,
                                                                                                                        "high") > 0.2);
  assert_int_equal(json_array_size(json_object_get(row_of(&r), "flips")), 0);
  close_runs(&r);
}

static void perplexities(void **state) {
  (void)state;
  static const double over[2][4] = {{3.5, 2.25, 7, 1.125}, {3, 2.5, 6, 2}};
  static const int under[4] = {2, 3, 4, 1};
  for (int clustered = 0; clustered < 2; clustered++) {
    runs r = {.results = {json_array(), json_array()}};
    for (int k = 0; k < 2; k++) {
      r.manifests[k] = manifest_of("perplexity", clustered ? "c" : NULL, "p");
      for (int i = 0; i < 4; i++) {
        char id[2] = {(char)('a' + i), 0}, cluster[2] = {(char)(i < 2 ? 'x' : 'w' + i), 0};
        json_t *line = json_pack("{s:s, s:s, s:f, s:i, s:i, s:i}", "task", "t", "id", id, "logprob", -over[k][i], "token_count", under[i],
                                 "words", 1, "bytes", 2);
        if (clustered) json_object_set_new(line, "cluster", json_string(cluster));
        json_array_append_new(r.results[k], line);
      }
    }
    if (compare(&r) != OK) fail_msg("%s", fail_text());
    near(figure(&r, 0, "a"), 4.004825463819325);
    near(figure(&r, 0, "b"), 3.8574255306969745);
    near(figure(&r, 0, "stderr"), clustered ? 0.5925409083863119 : 0.6401461396909512);
    near(figure(&r, 0, "high") - figure(&r, 0, "difference"), 1.9599639845400543 * figure(&r, 0, "stderr"));
    close_runs(&r);
  }
}

/* Items of one side are named and in no figure; margins show which flips were close. */
static void choices_and_strangers(void **state) {
  (void)state;
  runs r = {.manifests = {manifest_of("choice", NULL, "p"), manifest_of("choice", NULL, "p")}};
  r.results[0] = object("[{\"task\":\"t\",\"id\":\"x\",\"choices\":[{\"text\":\"aye\"},{\"text\":\"no\"}],\"best\":0,\"answer\":0,"
                        "\"acc\":true,\"acc_norm\":true,\"margin\":{\"logprob\":1,\"probability\":0.5,\"ulps\":1.5,\"at\":1}},"
                        "{\"task\":\"t\",\"id\":\"y\",\"best\":0,\"answer\":0,\"acc\":true,\"acc_norm\":true},"
                        "{\"task\":\"u\",\"id\":\"x\"}]");
  r.results[1] = object("[{\"task\":\"t\",\"id\":\"z\",\"best\":0,\"answer\":0,\"acc\":true,\"acc_norm\":true},"
                        "{\"task\":\"t\",\"id\":\"x\",\"choices\":[{\"text\":\"aye\"},{\"text\":\"no\"}],\"best\":1,\"answer\":0,"
                        "\"acc\":false,\"acc_norm\":true}]");
  if (compare(&r) != OK) fail_msg("%s", fail_text());
  const json_t *flip = json_array_get(json_object_get(row_of(&r), "flips"), 0);
  json_t *expected = object("{\"id\":\"x\",\"right\":\"a\",\"a\":\"aye\",\"b\":\"no\",\"expected\":\"aye\","
                            "\"ulps\":[1.5,null],\"close\":true}");
  assert_true(json_equal(flip, expected));
  assert_string_equal(json_string_value(json_array_get(json_object_get(row_of(&r), "only_a"), 0)), "y");
  assert_string_equal(json_string_value(json_array_get(json_object_get(row_of(&r), "only_b"), 0)), "z");
  assert_int_equal(json_integer_value(json_object_get(row_of(&r), "items")), 1);
  json_decref(expected);
  close_runs(&r);
}

static void refused(void **state) {
  (void)state;
  for (int i = 0; i < 8; i++) {
    static const char *const words[] = {"prompt: \"p\", \"q\"; hint: --differ prompt", "items: \"d\", \"e\"", "of another kind",
                                        "no task in common", "no item is in both", "item \"b\" has another right answer", "\"correct\"",
                                          "\"b\" of \"t\" occurs twice"};
    runs r = {.manifests = {manifest_of("generate", NULL, "p"), manifest_of(i == 2 ? "choice" : "generate", NULL, i == 0 ? "q" : "p")},
              .results = {answers("1101", false), answers("1101", false)}};
    json_t *task = json_array_get(json_object_get(json_object_get(r.manifests[1], "setup"), "tasks"), 0);
    json_t *line = json_array_get(r.results[1], 1);
    if (i == 1) json_object_set_new(json_object_get(task, "items"), "digest", json_string("e"));
    if (i == 3) json_object_set_new(task, "name", json_string("v"));
    if (i == 4) json_array_clear(r.results[1]);
    if (i == 5) json_object_set_new(line, "answer", json_string("other"));
    if (i == 6) json_object_set_new(line, "correct", json_string("x"));
    if (i == 7) json_array_append(r.results[1], line);
    status result = compare(&r);
    if (result != (i >= 6 ? ERR_FORMAT : ERR_MISMATCH) || !strstr(fail_text(), words[i])) fail_msg("case %d: \"%s\"", i, fail_text());
    static const char *const differ[] = {"prompt", "items", NULL, NULL, NULL, "answer", NULL, NULL};
    if (differ[i]) { /* the control: what is meant to differ is compared */
      r.terms = (eval_compare_terms){.differ = {"nothing", differ[i]}, .count = 2};
      if (compare(&r) != OK) fail_msg("case %d: %s", i, fail_text());
    }
    close_runs(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shares), cmocka_unit_test(equal_runs), cmocka_unit_test(perplexities),
                                     cmocka_unit_test(choices_and_strangers), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
