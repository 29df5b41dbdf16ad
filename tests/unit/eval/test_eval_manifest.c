/* test_eval_manifest.c - manifests are written and read back, and every change of their content is noticed. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"
#include "engine/eval/manifest.h"

static const char TASK[] = "name: a\nkind: generate\nitems: i.jsonl\n", ITEMS[] = "{\"prompt\":\"\",\"answer\":\"\\u0000\"}\n";
static const uint8_t IDS[4][DIGEST_BYTES] = {{1}, {2}, {3}, {0xfe, 0xdc}};

static json_t *setup_of(bool embedded) {
  eval_task task;
  json_t *setup = NULL, *perturbed = json_array();
  assert_int_equal(eval_task_parse(TASK, strlen(TASK), &task), OK);
  const eval_manifest_model m = {IDS[0], IDS[1], IDS[2], IDS[3], "plain", "00000000000000000000000000000003", 64, false};
  const eval_manifest_task one = {.task = &task, .count = 1,
                                  .file = {"t.yaml", TASK, sizeof TASK - 1, digest_of(TASK, sizeof TASK - 1)},
                                  .items = {"i.jsonl", embedded ? ITEMS : NULL, sizeof ITEMS - 1, digest_of(ITEMS, sizeof ITEMS - 1)}};
  assert_int_equal(eval_manifest_setup(&m, &one, 1, perturbed, &setup), OK);
  json_decref(perturbed);
  eval_task_close(&task);
  return setup;
}

static char *text_of(bool ended) {
  json_t *setup = setup_of(true), *run = json_pack("{s:s}", "device", "x"), *manifest = NULL;
  json_t *outcome = ended ? json_pack("{s:i, s:{s:[], s:[]}, s:s, s:s}", "items", 1, "scores", "tasks", "groups", "results_digest",
                                      "00000000000000000000000000000001", "receipt_digest", "00000000000000000000000000000002") : NULL;
  assert_int_equal(eval_manifest_make(setup, outcome, run, &manifest), OK);
  char *text = json_dumps(manifest, JSON_INDENT(2));
  json_decref(setup);
  json_decref(run);
  json_decref(outcome);
  json_decref(manifest);
  return text;
}

static void read_again(void **state) {
  (void)state;
  for (int ended = 0; ended < 2; ended++) {
    char *text = text_of(ended);
    json_t *manifest = NULL;
    if (eval_manifest_parse(text, strlen(text), &manifest) != OK) fail_msg("%s", fail_text());
    assert_int_equal(eval_manifest_task_count(manifest), 1);
    eval_manifest_file file = eval_manifest_file_of(manifest, 0, "items"), none = eval_manifest_file_of(manifest, 0, "shots");
    assert_true(file.bytes == sizeof ITEMS - 1 && memcmp(file.text, ITEMS, file.bytes) == 0 && !none.name);
    assert_string_equal(file.name, "i.jsonl");
    json_decref(manifest);
    free(text);
  }
}

/* Every changed character of a finished manifest is refused, unless it is in a field that no digest covers. */
static void changes_are_seen(void **state) {
  (void)state;
  char *text = text_of(true);
  json_t *first = NULL;
  size_t bytes = strlen(text), accepted = 0;
  assert_int_equal(eval_manifest_parse(text, bytes, &first), OK);
  for (size_t i = 0; i < bytes; i++) {
    char kept = text[i];
    json_t *manifest = NULL;
    text[i] = kept == '1' ? '2' : '1';
    fail_clear();
    if (eval_manifest_parse(text, bytes, &manifest) == OK) {
      accepted++;
      assert_true(json_equal(json_object_get(manifest, "setup"), json_object_get(first, "setup")));
      assert_true(json_equal(json_object_get(manifest, "outcome"), json_object_get(first, "outcome")));
    } else assert_true(fail_text()[0] != 0);
    json_decref(manifest);
    text[i] = kept;
  }
  assert_true(accepted > 0 && accepted < 20); /* "x", and blanks before it */
  json_decref(first);
  free(text);
}

static void cuts_are_refused(void **state) {
  (void)state;
  char *text = text_of(true);
  for (size_t bytes = 0; bytes < strlen(text); bytes++) {
    json_t *manifest = NULL;
    char *copy = malloc(bytes + 1);
    assert_non_null(copy);
    memcpy(copy, text, bytes);
    assert_int_not_equal(eval_manifest_parse(copy, bytes, &manifest), OK);
    free(copy);
  }
  free(text);
}

static void the_run_is_not_covered(void **state) {
  (void)state;
  json_t *setup = setup_of(true), *large = setup_of(false), *outcome = json_object(), *a = NULL, *b = NULL, *c = NULL;
  json_t *runs[2] = {json_pack("{s:s}", "device", "x"), json_pack("{s:s}", "device", "y")};
  assert_int_equal(eval_manifest_make(setup, outcome, runs[0], &a), OK);
  assert_int_equal(eval_manifest_make(setup, outcome, runs[1], &b), OK);
  assert_int_equal(eval_manifest_make(large, outcome, runs[0], &c), OK);
  assert_true(json_equal(json_object_get(a, "manifest_digest"), json_object_get(b, "manifest_digest")));
  assert_false(json_equal(json_object_get(a, "manifest_digest"), json_object_get(c, "manifest_digest")));
  json_t *const all[] = {setup, large, outcome, runs[0], runs[1], a, b, c};
  for (size_t i = 0; i < ARRAY_LEN(all); i++) json_decref(all[i]);
}

static void templates_have_their_form(void **state) {
  (void)state;
  static const char *const bad[] = {"\"plain\"", "{\"name\":\"plain\"}", "{\"name\":\"plain\",\"digest\":\"0\"}",
                                    "{\"digest\":\"00000000000000000000000000000003\"}"};
  char *text = text_of(false);
  json_t *manifest = json_loads(text, JSON_ALLOW_NUL, NULL), *read = NULL;
  free(text);
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
    json_object_set_new(json_object_get(manifest, "setup"), "chat_template", json_loads(bad[i], JSON_DECODE_ANY, NULL));
    text = json_dumps(manifest, 0);
    fail_clear();
    assert_int_equal(eval_manifest_parse(text, strlen(text), &read), ERR_FORMAT);
    assert_non_null(strstr(fail_text(), "chat_template"));
    free(text);
  }
  json_decref(manifest);
}

/* A key of someone else's manifest cannot send control characters to the terminal. */
static void keys_are_shown_plainly(void **state) {
  (void)state;
  char text[EVAL_MANIFEST_DIFFERENCE_BYTES];
  json_t *a = json_pack("{s:{s:i}}", "x", "\033[31m\177", 1), *b = json_pack("{s:{}}", "x");
  assert_true(eval_manifest_difference(a, b, text));
  assert_string_equal(text, "x.?[31m?: 1, nothing");
  assert_true(eval_manifest_difference(b, a, text));
  assert_string_equal(text, "x.?[31m?: nothing, 1");
  json_decref(a);
  json_decref(b);
}

static void differences(void **state) {
  (void)state;
  static const struct { const char *a, *b, *text; } cases[] = {
    {"{\"a\":1}", "{\"a\":1}", NULL}, {"{\"a\":{\"b\":[1,2]}}", "{\"a\":{\"b\":[1,3]}}", "a.b[1]: 2, 3"},
    {"[1]", "[1,2]", "[1]: nothing, 2"},
    {"{\"a\":1}", "{}", "a: 1, nothing"}, {"{}", "{\"a\":\"x\"}", "a: nothing, \"x\""}, {"{\"a\":[]}", "{\"a\":{}}", "a: [], {}"},
    {"{\"a\":\"\\u0007\"}", "{\"a\":null}", "a: \"\\u0007\", null"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char text[EVAL_MANIFEST_DIFFERENCE_BYTES] = "";
    json_t *a = json_loads(cases[i].a, 0, NULL), *b = json_loads(cases[i].b, 0, NULL);
    bool found = eval_manifest_difference(a, b, text);
    assert_true(found == (cases[i].text != NULL));
    if (found) assert_string_equal(text, cases[i].text);
    json_decref(a);
    json_decref(b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(read_again), cmocka_unit_test(changes_are_seen), cmocka_unit_test(cuts_are_refused),
                                     cmocka_unit_test(the_run_is_not_covered), cmocka_unit_test(differences),
                                     cmocka_unit_test(keys_are_shown_plainly), cmocka_unit_test(templates_have_their_form)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
