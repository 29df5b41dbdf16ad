/* test_jinja.c - templates: results of jinja2 (tests/data/jinja.json, tools/jinja_vectors.py), limits, and what was read. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/jinja/jinja.h"
#include "engine/jinja/parse.h"

#define TODAY "2025-07-31 09:05:07"

/* Renders with the members of an object as variables. */
static status render_by(status (*open)(jinja_template **, const char *, size_t), const char *template, size_t template_bytes,
                        const json_t *object, const char *today, char **text, size_t *bytes) {
  jinja_template *self = NULL;
  jinja_memory memory = {0};
  jinja_variable variables[32];
  size_t count = 0;
  const char *key;
  const json_t *value;
  fail_clear();
  *text = NULL;
  status result = open(&self, template, template_bytes);
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    assert_true(count < ARRAY_LEN(variables));
    variables[count].name = key;
    assert_int_equal(jinja_value_of_json(&memory, value, &variables[count++].value), OK);
  }
  if (result == OK) result = jinja_render(self, &memory, variables, count, today, text, bytes);
  if (result != OK) assert_null(*text);
  jinja_memory_close(&memory);
  jinja_close(self);
  return result;
}

static status render(const char *template, size_t template_bytes, const json_t *object, const char *today, char **text, size_t *bytes) {
  return render_by(jinja_open, template, template_bytes, object, today, text, bytes);
}

static bool is_as_recorded(const json_t *one, const json_t *variables) {
  const json_t *template = json_object_get(one, "template"), *expected = json_object_get(one, "text");
  char *text = NULL;
  size_t bytes = 0;
  status result = render_by(json_object_get(one, "plain") ? jinja_open_plain : jinja_open, json_string_value(template),
                            json_string_length(template), variables, TODAY, &text, &bytes);
  bool is_good = false;
  if (json_is_true(json_object_get(one, "refused"))) is_good = result == ERR_UNSUPPORTED;
  else if (expected)
    is_good = result == OK && bytes == json_string_length(expected) && memcmp(text, json_string_value(expected), bytes) == 0;
  else is_good = result == ERR_FORMAT || result == ERR_UNSUPPORTED;
  if (!is_good) print_error("%s\n  %s\n", json_string_value(template), result == OK ? text : fail_text());
  if (result != OK) assert_true(strlen(fail_text()) > 0);
  free(text);
  return is_good;
}

static void templates_give_what_jinja2_gives(void **state) {
  (void)state;
  json_t *data = json_load_file("tests/data/jinja.json", JSON_ALLOW_NUL, NULL);
  const json_t *cases = json_object_get(data, "cases");
  size_t failed = 0;
  assert_true(json_array_size(cases) > 150);
  for (size_t i = 0; i < json_array_size(cases); i++)
    failed += !is_as_recorded(json_array_get(cases, i), json_object_get(data, "variables"));
  json_decref(data);
  assert_int_equal(failed, 0);
}

static void expect(const char *template, status why, const char *words) {
  char *text = NULL;
  size_t bytes = 0;
  status result = render(template, strlen(template), NULL, NULL, &text, &bytes);
  if (result != why || !strstr(result == OK ? text : fail_text(), words))
    fail_msg("%.80s: expected %d %s, found %d %.200s", template, why, words, result, result == OK ? text : fail_text());
  free(text);
}

static void errors_name_the_line(void **state) {
  (void)state;
  expect("a\n{{ b\n| nosuch }}", ERR_UNSUPPORTED, "line 3: this filter is not implemented: \"nosuch\"");
  expect("a\n\n{% for x in y %}", ERR_FORMAT, "line 3: expected endfor, found its end");
  expect("{% if a %}\n{% endfor %}", ERR_FORMAT, "line 2");
  expect("{{ 'a\\u12' }}", ERR_FORMAT, "escape");
  expect("{{ raise_exception('no ' ~ 1) }}", ERR_FORMAT, "the chat template refuses this conversation: no 1");
  expect("{{ strftime_now('%d') }}", ERR_UNSUPPORTED, "strftime_now: this model's template shows the day's date");
  expect("{{ a.b }}", ERR_FORMAT, "'a' is undefined");
  expect("{{ 'é'|upper }}", ERR_UNSUPPORTED, "not ASCII");
  expect("{{ 9223372036854775807 + 1 }}", ERR_LIMIT, "64 bits");
  expect("{{ 9223372036854775808 }}", ERR_LIMIT, "line 1: an integer beyond 64 bits");
  expect("\xff", ERR_FORMAT, "UTF-8");
}

/* A template that would run or grow without end is stopped by name. */
static void every_size_is_bounded(void **state) {
  (void)state;
  expect("{% set s = 'x' * 4000000 %}{% for a in range(100000) %}{{ 'q' in s }}{% endfor %}", ERR_LIMIT, "steps");
  expect("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", ERR_LIMIT, "268435456 bytes");
  expect("{% for a in range(100001) %}{% endfor %}", ERR_LIMIT, "range");
  expect("{% set ns = namespace(s='x') %}{% for a in range(30) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", ERR_LIMIT, "4194304");
  expect("{% for a in range(5) %}{{ 'x' * 1000000 }}{% endfor %}", ERR_LIMIT, "4194304");
  expect("{{ 'x' * 5000000 }}", ERR_LIMIT, "4194304");
  expect("{{ '' * 5000000 }}|", OK, "|");
  expect("{% set ns = namespace(l=[]) %}{% for a in range(100000) %}{% set ns.l = ns.l + [a] %}{% endfor %}", ERR_LIMIT, "");
  expect("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ERR_LIMIT, "nested too deeply");
  expect("{% set ns = namespace(d=[]) %}{% for a in range(100) %}{% set ns.d = [ns.d] %}{% endfor %}{{ ns.d }}", ERR_LIMIT, "deep");
  expect("{% set ns = namespace(d=[]) %}{% for a in range(100) %}{% set ns.d = [ns.d] %}{% endfor %}{{ ns.d|tojson }}", ERR_LIMIT, "deep");
  expect("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me.me is defined }}", OK, "True");
}

/* `count` copies of a piece around a middle. */
static void expect_repeated(const char *before, const char *middle, const char *after, size_t count, status why, const char *words) {
  strbuf text = {0};
  for (size_t i = 0; i < count; i++) strbuf_adds(&text, before);
  strbuf_adds(&text, middle);
  for (size_t i = 0; i < count; i++) strbuf_adds(&text, after);
  strbuf_add(&text, "", 1);
  assert_false(text.failed);
  expect(text.bytes, why, words);
  strbuf_close(&text);
}

static void nesting_is_bounded(void **state) {
  (void)state;
  expect_repeated("{% if true %}", "x", "{% endif %}", 50, OK, "x");
  expect_repeated("{% if true %}", "x", "{% endif %}", 5000, ERR_LIMIT, "nested more than");
  static const struct { const char *before, *middle, *after; } all[] = {
    {"", "{{ (((", ""}, {"", "{{ x", "|trim"}, {"", "{{ x", ".y"}, {"", "{{ 1", " + 1"}, {"", "{{ 1", " and 1"}, {"{% if a %}", "", ""}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    char *text = NULL;
    size_t bytes = 0;
    strbuf whole = {0};
    for (size_t k = 0; k < 20000; k++) strbuf_adds(&whole, all[i].before);
    strbuf_adds(&whole, all[i].middle);
    for (size_t k = 0; k < 20000; k++) strbuf_adds(&whole, i ? all[i].after : "(");
    assert_int_equal(render(whole.bytes, whole.count, NULL, NULL, &text, &bytes), ERR_LIMIT);
    strbuf_close(&whole);
  }
  expect_repeated("{{ 1 }}", "", "", JINJA_NODES_MAX / 2 + 1, ERR_LIMIT, "nodes");
  strbuf whole = {0};
  for (size_t k = 0; k <= JINJA_NAMES_MAX; k++) strbuf_addf(&whole, "{{ a%zu }}", k);
  strbuf_add(&whole, "", 1);
  expect(whole.bytes, ERR_LIMIT, "names");
  strbuf_close(&whole);
}

/* A member counts as read if it was looked up, or written or compared with the whole object: this is how unread input is refused. */
static void what_was_read_is_marked(void **state) {
  (void)state;
  static const struct { const char *template, *read; } cases[] = {
    {"{{ d.a }}", "a"}, {"{{ d['a'] }}{{ d.get('b') }}", "ab"}, {"{{ d|tojson }}", "abc"}, {"{{ d }}", "abc"},
    {"{{ 'a' in d }}{{ d|length }}", ""},
    {"{% for k, v in d.items() %}{% endfor %}", "abc"}, {"{% for k in d %}{% endfor %}", ""}, {"{{ d == {'a': 1} }}", ""},
    {"{{ d == d }}", "abc"}, {"{{ [d]|map(attribute='c')|list }}", "c"}, {"{% if false %}{{ d.a }}{% endif %}", ""}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    json_t *json = json_pack("{s:i,s:i,s:i}", "a", 1, "b", 2, "c", 3);
    jinja_memory memory = {0};
    jinja_template *self = NULL;
    jinja_variable variable = {.name = "d"};
    char *text = NULL, found[8] = {0};
    size_t bytes = 0, count = 0;
    assert_int_equal(jinja_open(&self, cases[i].template, strlen(cases[i].template)), OK);
    assert_int_equal(jinja_value_of_json(&memory, json, &variable.value), OK);
    assert_int_equal(jinja_render(self, &memory, &variable, 1, NULL, &text, &bytes), OK);
    for (size_t k = 0; k < variable.value.dict->count; k++)
      if (variable.value.dict->entries[k].was_read) found[count++] = variable.value.dict->entries[k].key.text.bytes[0];
    if (strcmp(found, cases[i].read) != 0) fail_msg("%s: expected %s, found %s", cases[i].template, cases[i].read, found);
    free(text);
    jinja_memory_close(&memory);
    jinja_close(self);
    json_decref(json);
  }
}

static void words_of_a_template(void **state) {
  (void)state;
  static const char text[] = "{{ a.b['c'].get('d') }}{% if e is defined %}{{ f(g=1)|h1('i') }}{% endif %}";
  jinja_template *self = NULL;
  assert_int_equal(jinja_open(&self, text, strlen(text)), OK);
  static const char *const mentioned[] = {"a", "b", "c", "d", "e", "f", "g", "i"}, *const variables[] = {"a", "e", "f"};
  for (size_t i = 0; i < ARRAY_LEN(mentioned); i++) assert_true(jinja_mentions(self, mentioned[i]));
  for (size_t i = 0; i < ARRAY_LEN(variables); i++) assert_true(jinja_reads(self, variables[i]));
  assert_false(jinja_mentions(self, "z"));
  assert_false(jinja_reads(self, "b") || jinja_reads(self, "c") || jinja_reads(self, "g"));
  jinja_close(self);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(templates_give_what_jinja2_gives), cmocka_unit_test(errors_name_the_line), cmocka_unit_test(every_size_is_bounded),
    cmocka_unit_test(nesting_is_bounded), cmocka_unit_test(what_was_read_is_marked), cmocka_unit_test(words_of_a_template)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
