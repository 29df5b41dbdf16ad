/* test_eval_task.c - task files: which ones are accepted, with which defaults, and the messages for the others. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"
#include "engine/eval/task.h"

static status parse(const char *text, eval_task *out) {
  size_t bytes = strlen(text);
  char *copy = malloc(bytes ? bytes : 1); /* a buffer of exactly this length, for the sanitizers */
  assert_non_null(copy);
  memcpy(copy, text, bytes);
  fail_clear();
  status result = eval_task_parse(copy, bytes, out);
  free(copy);
  return result;
}

static void must(const char *text, eval_task *out) {
  if (parse(text, out) != OK) fail_msg("%s: %s", text, fail_text());
}

static void defaults(void **state) {
  (void)state;
  eval_task t;
  must("name: a\nkind: generate\nitems: i.jsonl\n", &t);
  assert_true(t.kind == EVAL_GENERATE && t.match == EVAL_MATCH_EXACT && t.strip && !t.lower && !t.collapse && t.tolerance == 0);
  assert_true(!t.shots && t.shot_count == 0 && t.limit == 0 && !t.group && !t.subsets && !t.extract && !t.has_shot_seed && !t.cluster);
  assert_string_equal(t.prompt, "{{prompt}}");
  assert_string_equal(t.answer_field, "answer");
  assert_int_equal(json_object_size(t.generation), 0);
  assert_true(!t.think_end && t.too_long == EVAL_TOO_LONG_REFUSE);
  eval_task_close(&t);
  must("{\"name\": \"a\", \"kind\": \"perplexity\", \"items\": \"i\"}", &t); /* JSON is YAML */
  assert_true(t.kind == EVAL_PERPLEXITY && t.window == EVAL_TASK_WINDOW && !t.prompt);
  assert_string_equal(t.text, "{{text}}");
  eval_task_close(&t);
}

static void everything(void **state) {
  (void)state;
  eval_task t;
  must("name: \"\\u4e2d\"\nkind: choice\nitems: i\ndescription: |\n  two\n  lines\ngroup: g\nsubsets: s\ncluster: k\n"
       "limit: 7\nwhere: {a: x, b: 3, c: "
      "true}\n"
       "prompt: 'Q: {{q}} {{ r }}'\nanswer: 'x{{a}}'\nchoices: ['{{a}}', b]\n"
       "few_shot: {count: 3, source: s.jsonl, separator: '##', seed: 0, template: '{{prompt}}={{answer}}'}\n", &t);
  assert_true(t.kind == EVAL_CHOICE && t.limit == 7 && t.shot_count == 3 && t.has_shot_seed && t.shot_seed == 0);
  assert_string_equal(t.description, "two\nlines\n");
  assert_string_equal(t.cluster, "k");
  assert_string_equal(t.shots, "s.jsonl");
  assert_null(t.answer_field);
  assert_true(json_array_size(t.choices) == 2 && json_object_size(t.where) == 3);
  eval_task_close(&t);
  must("name: a\nkind: generate\nitems: i\nmatch: number\ntolerance: 0.5\nextract: '(\\d+)'\nnormalize: [lower, collapse]\n"
       "generation: {max_tokens: 3, stop: ['\\n']}\nanswer: '{{ x }}'\nthink_end: </think>\ntoo_long: truncate-left\n", &t);
  assert_string_equal(t.think_end, "</think>");
  assert_int_equal(t.too_long, EVAL_TOO_LONG_TRUNCATE_LEFT);
  assert_true(t.match == EVAL_MATCH_NUMBER && t.tolerance == 0.5 && !t.strip && t.lower && t.collapse);
  assert_string_equal(t.answer_field, "x");
  eval_task_close(&t);
}

#define G "name: a\nkind: generate\nitems: i\n"
static void refused(void **state) {
  (void)state;
  static const struct { const char *text, *words; } cases[] = {
    {"", "found none"}, {"a", "key: value"}, {"[1]", "key: value"}, {"name: a", "kind: expected"}, {"name: a\nkind: x", "\"x\""},
    {"kind: generate\nitems: i", "name: expected"}, {"kind: generate\nname: a", "items: expected"},
    {G "nmae: b", "nearest known key is \"name\""}, {G "few_shot: {cuont: 1}", "few_shot: key \"cuont\""}, {G "name: b", "given twice"},
    {"name: 3\nkind: generate\nitems: i", "in quotes"}, {G "limit: -1", "whole number"}, {G "limit: 1.5", "whole number"},
    {G "limit: '3'", "whole number"},
    {G "tolerance: 1", "match: number"}, {G "tolerance: -1\nmatch: number", "0 or more"}, {G "match: near", "\"near\""},
    {G "normalize: [upper]", "\"upper\""}, {G "normalize: strip", "a list"}, {G "extract: '(a'", "at byte"},
    {G "choices: [a, b]", "does not apply"},
    {G "where: {a: [1]}", "where: a"}, {"name: a\nkind: choice\nitems: i\nchat: true", "chat"},
    {G "few_shot: {count: 1025}", "at most 1024"}, {G "text: a", "does not apply"},
    {G "prompt: &x a", "anchors"}, {G "prompt: !!str a", "tags"}, {G "prompt: *x", ""}, {"%YAML 1.2\n---\n" G, "directive"},
    {"? a\n: b\n" G, "begins a line with"}, {G "prompt: |\n  ?\n", "begins a line with"},
    {G "---\n" G, "one document"}, {G "prompt: \"a\\0b\"", "without NUL"},
    {"name: \"a\\tb\"\nkind: generate\nitems: i", "control characters"},
    {"name: a\nkind: choice\nitems: i\nchoices: [a]", "2 to 1024"}, {"name: a\nkind: perplexity\nitems: i\nwindow: 1", "window"},
    {G "generation: [1]", "keys and values"}, {G "where: {a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}}", "levels"},
    {G "limit: 1e999", "1e999"}, {G "too_long: cut", "too_long: expected refuse, skip or truncate-left, found \"cut\""},
    {G "too_long: truncate-left\nchat: true", "chat template"}, {G "think_end: ''", "think_end: expected"},
    {"name: a\nkind: perplexity\nitems: i\ntoo_long: skip", "does not apply"}, {G "cluster: 3", "in quotes"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    eval_task t, untouched;
    memset(&t, 0x5a, sizeof t);
    untouched = t;
    status result = parse(cases[i].text, &t);
    if (result == OK || !strstr(fail_text(), cases[i].words)) fail_msg("%s: \"%s\"", cases[i].text, fail_text());
    assert_memory_equal(&t, &untouched, sizeof t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(defaults), cmocka_unit_test(everything), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
