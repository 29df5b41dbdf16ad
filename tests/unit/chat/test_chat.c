/* test_chat.c - chat templates: renderers against jinja2's output for the templates (tests/data/chat, tools/chat_vectors.py), the choice of
 * the template, refusals, and JSON as Python writes it. */
#include "tests/unit/unit.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/chat/chat.h"
#include "engine/chat/text.h"
#include "engine/text/tokenizer.h"

#define VECTORS "tests/data/chat"
#define MODEL "tests/tiny" /* its BOS and EOS are those of the vectors */

static chat *open_named(const char *name) {
  chat *self = NULL;
  fail_clear();
  if (chat_open_named(&self, MODEL, name) != OK) fail_msg("%s: %s", name, fail_text());
  return self;
}

/* === Vectors ================================================================================================= */

/* Returns whether the renderer gives for the conversation what its template gave. */
static bool is_same(const chat *self, const json_t *conversation, const json_t *vector) {
  const json_t *expected = json_object_get(vector, "text");
  const char *name = json_string_value(json_object_get(conversation, "name"));
  char *text = NULL;
  size_t bytes = 0;
  assert_string_equal(name, json_string_value(json_object_get(vector, "name")));
  fail_clear();
  status result = chat_render(self, json_object_get(conversation, "body"), &text, &bytes);
  bool same = expected ? result == OK && bytes == json_string_length(expected) && memcmp(text, json_string_value(expected), bytes) == 0
                       : result == ERR_FORMAT || result == ERR_UNSUPPORTED;
  if (!same)
    print_error("%s, %s:\n  expected %s\n  found    %s\n", chat_name(self), name,
                expected ? json_string_value(expected) : json_string_value(json_object_get(vector, "error")), text ? text : fail_text());
  if (result == OK) assert_int_equal(text[bytes], 0);
  else assert_null(text);
  free(text);
  return same;
}

static size_t compare(const char *file, const json_t *conversations) {
  char path[512], name[64];
  json_error_t error;
  snprintf(path, sizeof path, VECTORS "/%s", file);
  snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
  json_t *made = json_load_file(path, JSON_ALLOW_NUL, &error);
  if (!made) fail_msg("%s: %s", path, error.text);
  const json_t *vectors = json_object_get(made, "vectors"), *key = json_object_get(made, "digest");
  if (json_array_size(vectors) != json_array_size(conversations))
    fail_msg("%s: another number of conversations; hint: tools/chat_vectors.py", path);
  chat *self = open_named(name);
  size_t failed = 0;
  for (size_t i = 0; i < json_array_size(vectors); i++)
    failed += !is_same(self, json_array_get(conversations, i), json_array_get(vectors, i));
  if (json_is_string(key)) {
    const char *known = chat_template_name(json_string_value(key));
    if (!known || strcmp(known, name) != 0) fail_msg("%s: its template's digest is that of %s", path, known ? known : "none");
  }
  chat_close(self);
  json_decref(made);
  return failed;
}

static void renderers_write_what_templates_write(void **state) {
  (void)state;
  json_t *conversations = json_load_file("tests/chat/conversations.json", JSON_ALLOW_NUL, NULL);
  DIR *folder = opendir(VECTORS);
  assert_non_null(conversations);
  assert_non_null(folder);
  size_t files = 0, failed = 0;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    failed += compare(entry->d_name, conversations);
    files++;
  }
  closedir(folder);
  json_decref(conversations);
  assert_int_equal(failed, 0);
  assert_int_equal(files, 19); /* one for every renderer */
}

/* === Which template ========================================================================================== */

#define PLAIN "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"

static char folder[64];

static void write_file(const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (!text) {
    unlink(path);
    return;
  }
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/verbatim-chat-XXXXXX");
  return mkdtemp(folder) == NULL;
}

static int drop_folder(void **state) {
  (void)state;
  write_file("chat_template.jinja", NULL);
  write_file("tokenizer_config.json", NULL);
  write_file("config.json", NULL);
  return rmdir(folder);
}

static void expect_name(const char *config, const char *jinja, const char *type, const char *name) {
  chat *self = NULL;
  write_file("tokenizer_config.json", config);
  write_file("chat_template.jinja", jinja);
  write_file("config.json", type);
  fail_clear();
  if (chat_open(&self, folder) != OK) fail_msg("%s", fail_text());
  if (name) assert_string_equal(chat_name(self) ? chat_name(self) : "none", name);
  else assert_null(chat_name(self));
  assert_int_equal(chat_refusal(self)[0] == 0, name != NULL);
  if (!name) {
    json_t *body = json_pack("{s:[{s:s,s:s}]}", "messages", "role", "user", "content", "x");
    char *text = NULL;
    size_t bytes = 0;
    assert_non_null(strstr(chat_refusal(self), "hint: "));
    assert_int_equal(chat_render(self, body, &text, &bytes), ERR_UNSUPPORTED);
    assert_string_equal(fail_text(), chat_refusal(self));
    json_decref(body);
  }
  chat_close(self);
}

static void a_template_is_known_by_its_text(void **state) {
  (void)state;
  static const char v32[] = "{\"model_type\":\"deepseek_v32\"}", v3[] = "{\"model_type\":\"deepseek_v3\"}";
  expect_name(NULL, PLAIN, NULL, "plain");
  expect_name(NULL, PLAIN "\n", NULL, "plain");
  expect_name(NULL, PLAIN "\r\n", NULL, "plain");
  expect_name(NULL, PLAIN "\n\n", NULL, NULL); /* Jinja keeps all line ends but the last */
  expect_name(NULL, PLAIN " ", NULL, NULL);
  expect_name("{\"chat_template\":\"" PLAIN "\"}", NULL, NULL, "plain");
  expect_name("{\"chat_template\":\"" PLAIN "\"}", "{{ 1 }}", NULL, NULL); /* the file next to it takes precedence */
  expect_name("{\"chat_template\":[{\"name\":\"default\",\"template\":\"" PLAIN "\"}]}", NULL, v3, "plain");
  expect_name("{\"chat_template\":[{\"name\":\"rag\",\"template\":\"" PLAIN "\"}]}", NULL, v3, NULL);
  expect_name(NULL, NULL, v32, "deepseek_v32");
  expect_name(NULL, "{{ 1 }}", v32, NULL);
  expect_name("{\"chat_template\":null}", NULL, v3, NULL);
  expect_name(NULL, NULL, NULL, NULL);
}

static void ends_that_jinja_drops_do_not_count(void **state) {
  (void)state;
  char texts[][40] = {"a\n{%- endif -%}", "a\r\n{%- endif -%}\r\n", "a\r{%- endif -%} \n\t\n"}, other[] = "a\n\n{%- endif -%}";
  char first[33], later[33];
  chat_template_digest(texts[0], strlen(texts[0]), first);
  for (size_t i = 1; i < ARRAY_LEN(texts); i++) {
    chat_template_digest(texts[i], strlen(texts[i]), later);
    assert_string_equal(later, first);
  }
  chat_template_digest(other, strlen(other), later);
  assert_string_not_equal(later, first);
}

static void files_that_are_not_what_they_should_be(void **state) {
  (void)state;
  chat *self = NULL;
  write_file("chat_template.jinja", NULL);
  write_file("config.json", NULL);
  write_file("tokenizer_config.json", "{");
  fail_clear();
  assert_int_equal(chat_open(&self, folder), ERR_FORMAT);
  write_file("tokenizer_config.json", NULL);
  write_file("config.json", "[");
  assert_int_equal(chat_open(&self, folder), ERR_FORMAT);
  assert_int_equal(chat_open_named(&self, MODEL, "nobody"), ERR_USAGE);
  assert_null(self);
}

/* Taken for an absent file, a link that leads nowhere would give an older template, or none. */
static void a_link_that_leads_nowhere_is_no_absent_file(void **state) {
  (void)state;
  static const char *const names[] = {"tokenizer_config.json", "chat_template.jinja", "config.json"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    chat *self = NULL;
    char path[256];
    for (size_t j = 0; j < ARRAY_LEN(names); j++) write_file(names[j], NULL);
    fail_clear();
    assert_int_equal(chat_open(&self, folder), OK); /* the control: an absent file is none */
    chat_close(self);
    self = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    assert_int_equal(chat_open(&self, folder), ERR_IO);
    assert_non_null(strstr(fail_text(), names[i]));
    write_file(names[i], NULL);
  }
}

static void the_shipped_model_has_the_plain_one(void **state) {
  (void)state;
  chat *self = NULL;
  assert_int_equal(chat_open(&self, MODEL), OK);
  assert_string_equal(chat_name(self), "plain");
  chat_close(self);
}

/* With the plain template a conversation of one message gives the prompt that `run` makes of its text. */
static void plain_text_has_the_ids_of_a_prompt(void **state) {
  (void)state;
  static const char content[] = "add: 86+72=";
  json_t *body = json_pack("{s:[{s:s,s:s}]}", "messages", "role", "user", "content", content);
  chat *self = open_named("plain");
  tokenizer *t = NULL;
  char *text = NULL;
  size_t bytes = 0, count = 0, expected_count = 0;
  int32_t ids[64], expected[64];
  assert_int_equal(tokenizer_open(&t, MODEL), OK);
  assert_int_equal(chat_render(self, body, &text, &bytes), OK);
  assert_int_equal(tokenizer_encode(t, text, bytes, false, true, ids, ARRAY_LEN(ids), &count), OK);
  assert_int_equal(tokenizer_encode(t, content, strlen(content), true, false, expected, ARRAY_LEN(expected), &expected_count), OK);
  assert_int_equal(count, expected_count);
  assert_memory_equal(ids, expected, count * sizeof *ids);
  free(text);
  json_decref(body);
  chat_close(self);
  tokenizer_close(t);
}

/* === Refusals ================================================================================================ */

static void expect_refusal(const char *name, const char *json, status expected, const char *words) {
  chat *self = open_named(name);
  json_error_t error;
  json_t *body = json_loads(json, JSON_ALLOW_NUL, &error);
  char *text = NULL;
  size_t bytes = 7;
  if (!body) fail_msg("%s: %s", json, error.text);
  fail_clear();
  status result = chat_render(self, body, &text, &bytes);
  if (result != expected || !strstr(fail_text(), words)) fail_msg("%s: expected \"%s\", found %d %s", json, words, result, fail_text());
  assert_true(text == NULL && bytes == 7);
  json_decref(body);
  chat_close(self);
}

static void refusals_name_the_message(void **state) {
  (void)state;
  static const char *const names[] = {"plain", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_47"};
  static const struct { status expected; const char *words, *messages; } cases[] = {
    {ERR_FORMAT, "at least one", "[]"},
    {ERR_FORMAT, "messages: expected a list", "{\"role\":\"user\"}"},
    {ERR_FORMAT, "messages[1]: expected an object", "[{\"role\":\"user\",\"content\":\"x\"},3]"},
    {ERR_FORMAT, "messages[1]: role", "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"critic\",\"content\":\"x\"}]"},
    {ERR_FORMAT, "messages[0]: role", "[{\"role\":\"user\\u0000\",\"content\":\"x\"}]"},
    {ERR_FORMAT, "messages[0]: role", "[{\"content\":\"x\"}]"},
    {ERR_FORMAT, "messages[0]: content", "[{\"role\":\"user\",\"content\":3}]"},
    {ERR_UNSUPPORTED, "messages[0]: content[0]", "[{\"role\":\"user\",\"content\":[{\"type\":\"audio\"}]}]"},
    {ERR_UNSUPPORTED, "messages[0]: content[0]", "[{\"role\":\"user\",\"content\":[{\"type\":\"text\\u0000\",\"text\":\"x\"}]}]"},
    {ERR_FORMAT, "messages[0]: tool_calls", "[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{}]}]"},
    {ERR_FORMAT, "tool_calls[0]: function.name", "[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{}]}]"},
    {ERR_FORMAT, "tools: expected a list", "[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":{}"},
    {ERR_UNSUPPORTED, "\"mood\"", "[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":{\"mood\":1}"},
    {ERR_FORMAT, "chat_template_kwargs", "[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":3"},
    {ERR_FORMAT, "add_generation_prompt", "[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":1"},
  };
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    expect_refusal(names[i], "{}", ERR_FORMAT, "messages: expected a list");
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
      char json[256];
      snprintf(json, sizeof json, "{\"messages\":%s}", cases[c].messages);
      expect_refusal(names[i], json, cases[c].expected, cases[c].words);
    }
    if (strcmp(names[i], "plain") != 0 && strcmp(names[i], "deepseek_v32") != 0)
      expect_refusal(names[i], "{\"messages\":[{\"role\":\"developer\",\"content\":\"x\"}]}", ERR_FORMAT, "messages[0]: role");
  }
  expect_refusal("glm_47", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[3]}", ERR_FORMAT, "tools[0]");
  expect_refusal("deepseek_v3", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{}]}", ERR_UNSUPPORTED, "tools");
  static const char list[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"id\":\"1\","
                             "\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}}]}]}";
  expect_refusal("glm_47", list, ERR_FORMAT, "messages[0]: tool_calls[0]: function.arguments");
  expect_refusal("deepseek_v32", list, ERR_FORMAT, "messages[0]: tool_calls[0]: function.arguments");
  expect_refusal("deepseek_v31", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":{\"thinking\":1}}",
                 ERR_FORMAT, "thinking");
}

/* A body of `count` messages of `bytes` bytes each. */
static json_t *large_body(size_t count, size_t bytes) {
  char *content = malloc(bytes + 1);
  assert_non_null(content);
  memset(content, 'x', bytes);
  json_t *body = json_object(), *messages = json_array();
  for (size_t i = 0; i < count; i++) json_array_append_new(messages, json_pack("{s:s,s:s%}", "role", "user", "content", content, bytes));
  json_object_set_new(body, "messages", messages);
  free(content);
  return body;
}

static void a_prompt_has_a_bound(void **state) {
  (void)state;
  chat *self = open_named("plain");
  char *text = NULL;
  size_t bytes = 0, lead = strlen("<｜begin▁of▁sentence｜>");
  json_t *most = large_body(1, TOKENIZER_TEXT_BYTES_MAX - lead), *more = large_body(2, TOKENIZER_TEXT_BYTES_MAX / 2);
  json_t *many = large_body(65537, 0);
  assert_int_equal(chat_render(self, most, &text, &bytes), OK);
  assert_int_equal(bytes, TOKENIZER_TEXT_BYTES_MAX);
  free(text);
  fail_clear();
  assert_int_equal(chat_render(self, more, &text, &bytes), ERR_LIMIT);
  assert_non_null(strstr(fail_text(), "4194304"));
  fail_clear();
  assert_int_equal(chat_render(self, many, &text, &bytes), ERR_LIMIT);
  json_decref(most);
  json_decref(more);
  json_decref(many);
  chat_close(self);
}

/* === Python's JSON =========================================================================================== */

static void expect_json(const char *json, const char *expected) {
  json_t *value = json_loads(json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
  chat_text text = {0};
  char *bytes = NULL;
  size_t count = 0;
  assert_non_null(value);
  chat_text_json(&text, value, false);
  assert_int_equal(chat_text_take(&text, &bytes, &count), OK);
  assert_string_equal(bytes, expected);
  free(bytes);
  json_decref(value);
}

static void values_are_written_as_python_does(void **state) {
  (void)state;
  expect_json("{\"b\":[1,2.0],\"a\":{\"\\u0001\\u007f\\u00e9\\ud83d\\ude00\":null}}",
              "{\"b\": [1, 2.0], \"a\": {\"\\u0001\x7f\xc3\xa9\xf0\x9f\x98\x80\": null}}");
  expect_json("\"a\\u0000\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"a\\u0000\\\"\\\\/\\b\\f\\n\\r\\t\"");
  static const char *const reals[] = {
    "0.1", "1e-05", "0.0001", "0.00012345", "123456.789", "1000000000000000.0", "1e+16", "1.5e+300", "-0.0", "5e-324", "-1.25",
    "2.2250738585072014e-308", "0.30000000000000004", "9007199254740992.0", "1.7976931348623157e+308"};
  for (size_t i = 0; i < ARRAY_LEN(reals); i++) expect_json(reals[i], reals[i]);
  expect_json("9223372036854775807", "9223372036854775807");
  expect_json("[]", "[]");
  expect_json("{}", "{}");
}

static void deep_values_are_refused(void **state) {
  (void)state;
  for (size_t depth = CHAT_TEXT_DEPTH_MAX; depth <= CHAT_TEXT_DEPTH_MAX + 1; depth++) {
    char json[4 * CHAT_TEXT_DEPTH_MAX] = {0}, *bytes = NULL;
    size_t count = 0;
    memset(json, '[', depth);
    memset(json + depth, ']', depth);
    json_t *value = json_loads(json, 0, NULL);
    chat_text text = {0};
    chat_text_json(&text, value, true);
    assert_int_equal(chat_text_take(&text, &bytes, &count), depth <= CHAT_TEXT_DEPTH_MAX ? OK : ERR_LIMIT);
    free(bytes);
    json_decref(value);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(renderers_write_what_templates_write),
    cmocka_unit_test_setup_teardown(a_template_is_known_by_its_text, make_folder, drop_folder),
    cmocka_unit_test(ends_that_jinja_drops_do_not_count),
    cmocka_unit_test_setup_teardown(files_that_are_not_what_they_should_be, make_folder, drop_folder),
    cmocka_unit_test_setup_teardown(a_link_that_leads_nowhere_is_no_absent_file, make_folder, drop_folder),
      cmocka_unit_test_setup_teardown(a_link_that_leads_nowhere_is_no_absent_file, make_folder, drop_folder),
    cmocka_unit_test(the_shipped_model_has_the_plain_one),
    cmocka_unit_test(plain_text_has_the_ids_of_a_prompt),
    cmocka_unit_test(refusals_name_the_message),
    cmocka_unit_test(a_prompt_has_a_bound),
    cmocka_unit_test(values_are_written_as_python_does),
    cmocka_unit_test(deep_values_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
