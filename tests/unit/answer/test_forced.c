/* test_forced.c - every text of a pattern for forced calls is read as one call, in every grammar and with every form of thought, and the
 * pattern's constraint takes it.
 *
 * Texts are drawn from the pattern at random. Control: the constraint takes no text that lacks its last byte. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "answer_fixture.h"
#include "engine/answer/forced.h"
#include "engine/base/base.h"
#include "engine/base/json_text.h"
#include "engine/constrain/constraint.h"

#define TRIALS 60u

static const char *const GRAMMARS[] = {"deepseek_v3", "deepseek_v31", "deepseek_v32", "glm45", "harmony", "hermes", "kimi_k2",
                                       "llama3_json"};
static const char TOOLS[] =
  "[{\"type\":\"function\",\"function\":{\"name\":\"find\",\"parameters\":{\"type\":\"object\",\"properties\":{\"q\":{\"type\":\"string\"},"
  "\"n\":{\"type\":\"integer\"},\"unit\":{\"enum\":[\"C\",\"F\"]},\"at\":{\"$ref\":\"#/$defs/at\"}},\"required\":[\"q\",\"at\"],\"$defs\":"
  "{\"at\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"]}}}}},"
  "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

/* A value that the schema allows: of those above. */
static json_t *value_of(const json_t *schema, const json_t *root) {
  const json_t *type = json_object_get(schema, "type"), *property;
  const char *key;
  if (json_object_get(schema, "$ref")) return value_of(json_object_get(json_object_get(root, "$defs"), "at"), root);
  if (json_object_get(schema, "enum")) return json_copy(json_array_get(json_object_get(schema, "enum"), 0));
  if (strcmp(json_string_value(type), "string") == 0) return json_string("a </tool_call> \"b\"");
  if (strcmp(json_string_value(type), "integer") == 0) return json_integer(7);
  json_t *object = json_object();
  json_object_foreach(json_object_get(schema, "properties"), key, property) json_object_set_new(object, key, value_of(property, root));
  return object;
}

static void draw(strbuf *out, const json_t *pattern, uint64_t *random) {
  static const char *const words[] = {"", " any\n", "\"<", "</", "{\"a\": 1}"};
  const json_t *piece;
  size_t i;
  json_array_foreach(pattern, i, piece) {
    const json_t *any = json_object_get(piece, "any"), *until = json_object_get(piece, "until");
    const json_t *schema = json_object_get(piece, "json_schema"), *plain = json_object_get(piece, "text");
    const json_t *regex = json_object_get(piece, "regex");
    if (plain) strbuf_add(out, json_string_value(plain), json_string_length(plain));
    if (json_text_is(regex, "[0-9]{1,2}")) strbuf_addf(out, "%u", (unsigned)(random_next(random) % 100));
    else if (regex) strbuf_adds(out, &"\n\n"[random_next(random) % 3]); /* \n{0,2} */
    if (any) draw(out, json_array_get(any, (size_t)(random_next(random) % json_array_size(any))), random);
    if (until) strbuf_adds(out, words[random_next(random) % ARRAY_LEN(words)]);
    if (until) strbuf_adds(out, json_string_value(until));
    if (!schema) continue;
    json_t *value = value_of(schema, schema);
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    strbuf_adds(out, text);
    free(text);
    json_decref(value);
  }
}

static bool takes(const verbatim_constraint *c, const char *text, size_t bytes) {
  const uint32_t state = automaton_run(&c->automaton, AUTOMATON_START, (const uint8_t *)text, bytes);
  return state != AUTOMATON_DEAD && c->automaton.is_accepting[state];
}

static verbatim_constraint *compile(const json_t *pattern) {
  verbatim_constraint *made = NULL;
  char *text = json_dumps(pattern, 0);
  if (constraint_open(&made, VERBATIM_PARTS, text, strlen(text)) != OK) fail_msg("%s: %s", text, fail_text());
  free(text);
  return made;
}

static void check(const answer_form *form, const char *name, uint64_t *random) {
  json_t *pattern = answer_forced(form, name);
  assert_non_null(pattern);
  verbatim_constraint *constraint = compile(pattern);
  for (uint32_t trial = 0; trial < TRIALS; trial++) {
    strbuf text = {0};
    draw(&text, pattern, random);
    if (!takes(constraint, text.bytes, text.count) || takes(constraint, text.bytes, text.count - 1))
      fail_msg("%s: %.*s", form->grammar->name, (int)text.count, text.bytes);
    answer_read read = answer_fixture_read(form, text.bytes, text.count, 5, trial);
    const char *called = read.call_count ? strchr(read.calls.bytes, ' ') + 1 : "";
    if (read.call_count != 1 || *read.error || read.content.count || (name && strncmp(called, name, strlen(name)) != 0))
      fail_msg("%s: %.*s\nread: %u calls, \"%s\"", form->grammar->name, (int)text.count, text.bytes, read.call_count, read.error);
    answer_fixture_close(&read);
    strbuf_close(&text);
  }
  constraint_close(constraint);
  json_decref(pattern);
}

static void forced_answers_are_calls(void **state) {
  (void)state;
  json_t *tools = json_loads(TOOLS, 0, NULL);
  uint64_t random = 3;
  for (size_t i = 0; i < ARRAY_LEN(GRAMMARS); i++)
    for (unsigned thought = 0; thought < 4; thought++) {
      bool is_harmony = strcmp(GRAMMARS[i], "harmony") == 0;
      const answer_form form = {.marks = thought ? answer_grammar_find_marks(is_harmony ? "harmony" : "think") : NULL,
                                .grammar = answer_grammar_find(GRAMMARS[i]), .tools = tools, .calls_max = 1, .is_apart = true,
                                .begins_inside = thought == 2, .begins_after = thought == 3};
      check(&form, NULL, &random);
      check(&form, "find", &random);
      check(&form, "now", &random);
      assert_null(answer_forced(&form, "nowhere"));
    }
  json_decref(tools);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(forced_answers_are_calls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
