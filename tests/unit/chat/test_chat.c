/* test_chat.c - chat templates: prompts against jinja2's (tests/data/chat, tools/chat_vectors.py), where a template is found, refusals. */
#include "tests/unit/unit.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/chat/chat.h"
#include "engine/text/tokenizer.h"

#define VECTORS "tests/data/chat"
#define MODEL "tests/tiny" /* its BOS and EOS are those of the vectors */

static chat *open_named(const char *name) {
  char file[128];
  bool is_program = strcmp(name, "deepseek_v32") == 0;
  chat *self = NULL;
  fail_clear();
  snprintf(file, sizeof file, VECTORS "/%s.jinja", name);
  if (chat_open(&self, is_program ? VECTORS "/deepseek_v32" : MODEL, is_program ? NULL : file) != OK) fail_msg("%s: %s", name, fail_text());
  return self;
}

/* === Vectors ================================================================================================= */

/* What the templates read: their texts say so. */
static bool reads(const char *name, const char *key) {
  static const char *const thinkers[] = {"glm_47", "deepseek_v32", "turns_with_calls", "harmony"};
  bool is_found = false;
  for (size_t i = 0; i < ARRAY_LEN(thinkers); i++) is_found |= strcmp(name, thinkers[i]) == 0;
  return is_found && strcmp(key, "reasoning_content") == 0;
}

/* These templates show no content next to calls. */
static bool hides_contents(const char *name) { return strcmp(name, "headers_with_date") == 0 || strcmp(name, "strict_instructions") == 0; }

/* Removes from a copy of the body what the template would drop without a word. Returns whether there was any. */
static bool take_lost(const char *name, json_t *body) {
  static const char *const keys[] = {"name", "reasoning_content", "prefix"};
  bool lost = false;
  size_t i;
  json_t *message, *tool;
  json_array_foreach(json_object_get(body, "tools"), i, tool) {
    json_t *function = json_object_get(tool, "function");
    bool is_shown = strcmp(name, "harmony") != 0 || !json_object_get(function, "defer_loading");
    lost |= !is_shown && json_object_del(function, "defer_loading") == 0;
  }
  json_array_foreach(json_object_get(body, "messages"), i, message) {
    bool is_result = strcmp(json_string_value(json_object_get(message, "role")), "tool") == 0;
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
      const json_t *value = json_object_get(message, keys[k]);
      if (!json_is_true(value) && json_string_length(value) == 0) continue; /* asks for nothing */
      if (reads(name, keys[k]) || (is_result && k == 0)) continue;
      json_object_del(message, keys[k]);
      lost = true;
    }
    bool has_calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    const json_t *content = json_object_get(message, "content");
    if (!hides_contents(name) || !has_calls || (json_string_length(content) == 0 && json_array_size(content) == 0)) continue;
    json_object_del(message, "content");
    lost = true;
  }
  return lost;
}

/* Removes from a copy of the body what says nothing: null, and an empty list of calls. An absent content next to calls is an empty one.
 * has_none: another message has no content; is_odd: a template does something else for what says nothing.
 * Returns whether anything was removed. */
static bool take_nothing(json_t *body, bool *has_none, bool *is_odd) {
  bool changed = false;
  size_t i;
  json_t *message, *value;
  const char *key;
  void *next;
  json_array_foreach(json_object_get(body, "messages"), i, message) {
    json_object_foreach_safe(message, next, key, value) {
      bool is_empty = strcmp(key, "tool_calls") == 0 && json_is_array(value) && json_array_size(value) == 0;
      if (!json_is_null(value) && !is_empty) continue;
      *is_odd |= is_empty;
      json_object_del(message, key);
      changed = true;
    }
    bool has_calls = json_object_get(message, "tool_calls") != NULL;
    value = json_object_get(message, "content");
    *has_none |= !has_calls && !value;
    if (!has_calls || json_string_length(value) || json_is_array(value) || value) continue;
    json_object_set_new(message, "content", json_string(""));
    changed = true;
  }
  return changed;
}

static status render(const chat *self, const json_t *body, char **text, size_t *bytes) {
  json_t *ignored = json_array();
  fail_clear();
  *text = NULL;
  status result = chat_render(self, body, ignored, text, bytes);
  if (result == OK) assert_int_equal((*text)[*bytes], 0);
  else assert_null(*text);
  json_decref(ignored);
  return result;
}

static bool is_refused(const chat *self, const json_t *body, status why) {
  char *text;
  size_t bytes = 0;
  status result = render(self, body, &text, &bytes);
  free(text);
  return why == OK ? result == ERR_FORMAT || result == ERR_UNSUPPORTED || result == ERR_USAGE : result == why;
}

static bool are_equal(const chat *self, const json_t *body, const json_t *other) {
  char *text, *second;
  size_t bytes = 0, second_bytes = 0;
  status result = render(self, body, &text, &bytes), same = render(self, other, &second, &second_bytes);
  bool equal = (result == OK) == (same == OK) && bytes == second_bytes && (result != OK || memcmp(text, second, bytes) == 0);
  free(text);
  free(second);
  return equal;
}

static bool is_text(const chat *self, const json_t *body, const json_t *expected) {
  char *text;
  size_t bytes = 0;
  bool same = render(self, body, &text, &bytes) == OK && bytes == json_string_length(expected) &&
              memcmp(text, json_string_value(expected), bytes) == 0;
  free(text);
  return same;
}

/* The body with the date that the vectors show, if its template asks for one. */
static json_t *with_date(const char *name, const json_t *body) {
  json_t *copy = json_deep_copy(body), *switches = json_object_get(copy, "chat_template_kwargs");
  if (strcmp(name, "roles_in_marks") != 0 && strcmp(name, "harmony") != 0) return copy;
  if (!json_is_object(switches)) {
    switches = json_object();
    json_object_set_new(copy, "chat_template_kwargs", switches);
  }
  json_object_set_new(switches, "strftime_now", json_string("2025-07-31"));
  return copy;
}

/* Returns whether we give for the conversation what jinja2 gave; where the template drops what was said, or prints the
 * word None, whether it refuses that, and gives the same for the rest. */
static bool is_same(const char *name, const chat *self, const json_t *conversation, const json_t *vector) {
  const json_t *expected = json_object_get(vector, "text");
  json_t *whole = with_date(name, json_object_get(conversation, "body")), *given = json_deep_copy(whole);
  bool has_none = false, is_odd = false, lost = take_lost(name, given);
  bool good = !lost || is_refused(self, whole, OK);
  json_t *bare = json_deep_copy(given);
  bool changed = take_nothing(bare, &has_none, &is_odd);
  if (has_none) good &= is_refused(self, given, OK);
  else if (changed) good &= are_equal(self, given, bare);
  bool says = json_is_string(expected) && !strstr(json_string_value(expected), "None");
  if (!is_odd && !has_none && (says || !changed)) good &= says ? is_text(self, given, expected) : is_refused(self, given, OK);
  json_decref(whole);
  json_decref(given);
  json_decref(bare);
  return good;
}

static size_t compare(const char *file, const json_t *conversations) {
  char path[512], name[64];
  json_error_t error;
  snprintf(path, sizeof path, VECTORS "/%s", file);
  snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
  json_t *made = json_load_file(path, JSON_ALLOW_NUL, &error);
  if (!made) fail_msg("%s: %s", path, error.text);
  const json_t *vectors = json_object_get(made, "vectors");
  if (json_array_size(vectors) != json_array_size(conversations))
    fail_msg("%s: another number of conversations; hint: tools/chat_vectors.py", path);
  chat *self = open_named(name);
  size_t failed = 0;
  for (size_t i = 0; i < json_array_size(vectors); i++) {
    const json_t *conversation = json_array_get(conversations, i), *vector = json_array_get(vectors, i);
    assert_string_equal(json_string_value(json_object_get(conversation, "name")), json_string_value(json_object_get(vector, "name")));
    if (is_same(name, self, conversation, vector)) continue;
    print_error("%s, %s: not as the template\n", name, json_string_value(json_object_get(vector, "name")));
    failed++;
  }
  chat_close(self);
  json_decref(made);
  return failed;
}

static void prompts_are_those_of_jinja2(void **state) {
  (void)state;
  json_t *conversations = json_load_file("tests/chat/conversations.json", JSON_ALLOW_NUL, NULL);
  DIR *folder = opendir(VECTORS);
  assert_non_null(conversations);
  assert_non_null(folder);
  size_t files = 0, failed = 0;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    if (!strstr(entry->d_name, ".json")) continue;
    failed += compare(entry->d_name, conversations);
    files++;
  }
  closedir(folder);
  json_decref(conversations);
  assert_int_equal(failed, 0);
  assert_int_equal(files, 9);
}

/* === Which template ========================================================================================== */

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

static const char *const file_names[] = {"tokenizer_config.json", "chat_template.jinja", "chat_template.json", "config.json"};
#define TOOL_USE "additional_chat_templates/tool_use.jinja"

static int drop_folder(void **state) {
  (void)state;
  char path[256];
  for (size_t i = 0; i < ARRAY_LEN(file_names); i++) write_file(file_names[i], NULL);
  write_file(TOOL_USE, NULL);
  snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
  rmdir(path);
  return rmdir(folder);
}

/* What the model's template makes of one message and, if `tools`, of a tool. prompt: NULL: there is no template, and why says so. */
static void expect_prompt(const char *config, const char *jinja, const char *type, bool tools, const char *prompt, const char *why) {
  chat *self = NULL;
  char *text = NULL;
  size_t bytes = 0;
  write_file("tokenizer_config.json", config);
  write_file("chat_template.jinja", jinja);
  write_file("config.json", type);
  fail_clear();
  if (chat_open(&self, folder, NULL) != OK) fail_msg("%s", fail_text());
  json_t *body = json_pack("{s:[{s:s,s:s}],s:[{s:{s:s}}]}", "messages", "role", "user", "content", "x", "tools", "function", "name", "f");
  if (!tools) json_object_del(body, "tools");
  status result = chat_render(self, body, NULL, &text, &bytes);
  if (prompt) {
    if (result != OK) fail_msg("%s", fail_text());
    assert_string_equal(text, prompt);
    assert_string_equal(chat_refusal(self), "");
    assert_non_null(chat_digest(self));
  } else {
    assert_int_equal(result, ERR_UNSUPPORTED);
    assert_null(chat_name(self));
    assert_non_null(strstr(chat_refusal(self), why));
    assert_non_null(strstr(chat_refusal(self), "hint: "));
    assert_string_equal(fail_text(), chat_refusal(self));
  }
  free(text);
  json_decref(body);
  chat_close(self);
}

#define SAYS(word) "{{ bos_token ~ '" word "' ~ messages[0].content }}"
#define SHOWS(word) "{{ '" word "' ~ messages[0].content ~ tools[0].function.name }}"

static void a_template_is_found_where_transformers_looks(void **state) {
  (void)state;
  static const char v32[] = "{\"model_type\":\"deepseek_v32\"}", named[] =
    "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"" SHOWS("t") "\"},{\"name\":\"default\",\"template\":\"" SAYS("d")
    "\"}]}";
  expect_prompt("{\"bos_token\":{\"content\":\"B\"}}", SAYS("a"), NULL, false, "Bax", NULL);
  expect_prompt("{\"bos_token\":\"B\",\"chat_template\":\"" SAYS("c") "\"}", NULL, NULL, false, "Bcx", NULL);
  expect_prompt("{\"chat_template\":\"" SAYS("c") "\"}", SAYS("a"), NULL, false, "ax", NULL); /* the file takes precedence */
  expect_prompt(named, NULL, NULL, false, "dx", NULL);
  expect_prompt(named, NULL, NULL, true, "txf", NULL);
  expect_prompt("{\"chat_template\":[{\"name\":\"rag\",\"template\":\"" SAYS("r") "\"}]}", NULL, NULL, false, NULL, "no chat template");
  expect_prompt(NULL, NULL, v32, false, "<｜begin▁of▁sentence｜><｜User｜>x<｜Assistant｜></think>", NULL);
  expect_prompt(NULL, SAYS("a"), v32, false, "ax", NULL);
  expect_prompt("{\"chat_template\":null}", NULL, NULL, false, NULL, "no chat template");
  expect_prompt(NULL, "a\n{% for x in y %}", NULL, false, NULL, "chat template, line 2: expected endfor");
  expect_prompt(NULL, "{% include 'x' %}", NULL, false, NULL, "is not implemented: \"include\"");
  write_file("chat_template.json", "{\"chat_template\":\"" SAYS("p") "\"}");
  expect_prompt(NULL, NULL, NULL, false, "px", NULL);
  expect_prompt("{\"chat_template\":\"" SAYS("c") "\"}", NULL, NULL, false, "cx", NULL);
  char path[256];
  snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
  assert_int_equal(mkdir(path, 0700), 0);
  write_file(TOOL_USE, SHOWS("t"));
  expect_prompt(NULL, SAYS("a"), NULL, false, "ax", NULL);
  expect_prompt(NULL, SAYS("a"), NULL, true, "txf", NULL);
}

static void digest_of_template(const char *text, char out[33]) {
  chat *self = NULL;
  write_file("chat_template.jinja", text);
  fail_clear();
  if (chat_open(&self, folder, NULL) != OK) fail_msg("%s", fail_text());
  strcpy(out, chat_digest(self));
  chat_close(self);
}

static void ends_that_jinja_drops_do_not_count(void **state) {
  (void)state;
  static const char *const texts[] = {"a\n{%- set b = 1 -%}", "a\r\n{%- set b = 1 -%}\r\n", "a\r{%- set b = 1 -%} \n\t\n"};
  char first[33], later[33];
  digest_of_template(texts[0], first);
  for (size_t i = 1; i < ARRAY_LEN(texts); i++) {
    digest_of_template(texts[i], later);
    assert_string_equal(later, first);
  }
  digest_of_template("a\n\n{%- set b = 1 -%}", later);
  assert_string_not_equal(later, first);
}

static void files_that_are_not_what_they_should_be(void **state) {
  (void)state;
  chat *self = NULL;
  char path[256];
  write_file("tokenizer_config.json", "{");
  fail_clear();
  assert_int_equal(chat_open(&self, folder, NULL), ERR_FORMAT);
  write_file("tokenizer_config.json", NULL);
  write_file("config.json", "[");
  assert_int_equal(chat_open(&self, folder, NULL), ERR_FORMAT);
  write_file("config.json", NULL);
  /* A template that the caller names must be one. */
  snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
  assert_int_equal(chat_open(&self, MODEL, path), ERR_IO);
  write_file("chat_template.jinja", "{% if %}");
  assert_int_equal(chat_open(&self, MODEL, path), ERR_FORMAT);
  assert_null(self);
}

/* Taken for an absent file, a link that leads nowhere would give an older template, or none. */
static void a_link_that_leads_nowhere_is_no_absent_file(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(file_names); i++) {
    chat *self = NULL;
    char path[256];
    for (size_t j = 0; j < ARRAY_LEN(file_names); j++) write_file(file_names[j], NULL);
    fail_clear();
    assert_int_equal(chat_open(&self, folder, NULL), OK); /* the control: an absent file is none */
    chat_close(self);
    self = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, file_names[i]);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    assert_int_equal(chat_open(&self, folder, NULL), ERR_IO);
    assert_non_null(strstr(fail_text(), file_names[i]));
    write_file(file_names[i], NULL);
  }
}

static void the_shipped_model_has_the_plain_one(void **state) {
  (void)state;
  chat *self = NULL;
  assert_int_equal(chat_open(&self, MODEL, NULL), OK);
  assert_string_equal(chat_name(self), "jinja");
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
  assert_int_equal(chat_render(self, body, NULL, &text, &bytes), OK);
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
  json_t *ignored = json_array();
  fail_clear();
  status result = chat_render(self, body, ignored, &text, &bytes);
  json_decref(ignored);
  if (result != expected || !strstr(fail_text(), words)) fail_msg("%s: expected \"%s\", found %d %s", json, words, result, fail_text());
  assert_true(text == NULL && bytes == 7);
  json_decref(body);
  chat_close(self);
}

static void refusals_name_the_message(void **state) {
  (void)state;
  static const char *const names[] = {"plain", "deepseek_r1_think", "deepseek_v32", "turns_with_calls", "glm_47"};
  static const struct { status expected; const char *words, *messages; } cases[] = {
    {ERR_FORMAT, "at least one", "[]"},
    {ERR_FORMAT, "messages: expected a list", "{\"role\":\"user\"}"},
    {ERR_FORMAT, "messages[1]: expected an object", "[{\"role\":\"user\",\"content\":\"x\"},3]"},
    {ERR_FORMAT, "messages[1].role: ", "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"critic\",\"content\":\"x\"}]"},
    {ERR_FORMAT, "messages[0].role: ", "[{\"role\":\"user\\u0000\",\"content\":\"x\"}]"},
    {ERR_FORMAT, "messages[0].role: ", "[{\"content\":\"x\"}]"},
    {ERR_FORMAT, "messages[0].content: ", "[{\"role\":\"user\",\"content\":3}]"},
    {ERR_UNSUPPORTED, "messages[0].content[0].type: ", "[{\"role\":\"user\",\"content\":[{\"type\":\"audio\"}]}]"},
    {ERR_UNSUPPORTED, "messages[0].content[0].type: ", "[{\"role\":\"user\",\"content\":[{\"type\":\"text\\u0000\",\"text\":\"x\"}]}]"},
    {ERR_FORMAT, "messages[0].tool_calls: ", "[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{}]}]"},
    {ERR_FORMAT, "messages[0].tool_calls[0].function.name: ", "[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{}]}]"},
    {ERR_FORMAT, "tools: expected a list", "[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":{}"},
    {ERR_UNSUPPORTED, "chat_template_kwargs.mood: ", "[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":{\"mood\":1}"},
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
      expect_refusal(names[i], "{\"messages\":[{\"role\":\"developer\",\"content\":\"x\"}]}", ERR_FORMAT, "messages[0].role: ");
  }
  expect_refusal("glm_47", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[3]}", ERR_FORMAT, "tools[0]");
  expect_refusal("deepseek_r1_think", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{}]}", ERR_UNSUPPORTED, "tools");
  static const char list[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"id\":\"1\","
                             "\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}}]}]}";
  expect_refusal("glm_47", list, ERR_FORMAT, "messages[0].tool_calls[0].function.arguments: ");
  expect_refusal("deepseek_v32", list, ERR_FORMAT, "messages[0].tool_calls[0].function.arguments: ");
}

/* Every key of every level is shown, listed as ignored or refused by its path. ignored: the list, as JSON. */
static void expect_ignored(const char *name, const char *json, const char *ignored) {
  chat *self = open_named(name);
  json_t *body = json_loads(json, 0, NULL), *found = json_array(), *expected = json_loads(ignored, 0, NULL);
  char *text = NULL;
  size_t bytes = 0;
  assert_true(body && expected);
  fail_clear();
  if (chat_render(self, body, found, &text, &bytes) != OK) fail_msg("%s: %s", json, fail_text());
  if (!json_equal(found, expected)) fail_msg("%s, %s: expected %s, found %s", name, json, ignored, json_dumps(found, 0));
  free(text);
  text = NULL;
  bool has_some = json_array_size(expected) > 0; /* where nothing can be listed, it is refused */
  assert_int_equal(chat_render(self, body, NULL, &text, &bytes), has_some ? ERR_UNSUPPORTED : OK);
  free(text);
  json_decref(body);
  json_decref(found);
  json_decref(expected);
  chat_close(self);
}

#define CALLS(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" \
                    "{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}" more "}]}," \
                    "{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"a\",\"name\":\"f\"}]}"
#define SAID(role, more) "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"" role "\",\"content\":\"A\"," more "}]}"
#define PART(more) "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Q\"," more "}]}]}"
#define TOOLS(tool) "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}],\"tools\":[" tool "]}"

static void keys_without_effect_are_listed(void **state) {
  (void)state;
  expect_ignored("deepseek_r1_think", CALLS(""), "[\"messages[1].tool_calls[0].id\",\"messages[2].tool_call_id\",\"messages[2].name\"]");
  expect_ignored("glm_47", CALLS(",\"index\":0"), "[\"messages[1].tool_calls[0].id\",\"messages[1].tool_calls[0].index\","
                 "\"messages[2].tool_call_id\",\"messages[2].name\"]");
  expect_ignored("plain", PART("\"cache_control\":{\"type\":\"ephemeral\"}"), "[\"messages[0].content[0].cache_control\"]");
  expect_ignored("plain", SAID("user", "\"cache_control\":{\"type\":\"ephemeral\"}"), "[\"messages[1].cache_control\"]");
  static const char strict[] = TOOLS("{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}");
  expect_ignored("glm_47", strict, "[]"); /* shown */
  expect_ignored("deepseek_v32", strict, "[]");
  expect_ignored("turns_with_calls", TOOLS("{\"type\":\"x\",\"any\":[null]}"), "[]");
  /* What asks for nothing. */
  expect_ignored("plain", SAID("assistant", "\"name\":null,\"reasoning_content\":\"\",\"reasoning\":null,\"prefix\":false,"
                 "\"partial\":false,\"refusal\":null,\"annotations\":[],\"audio\":null,\"function_call\":null,"
                 "\"tool_calls\":[],\"mood\":null"), "[]");
  expect_ignored("plain", PART("\"annotations\":[],\"mood\":null"), "[]");
  static const char nulls[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}],\"tools\":null,"
                              "\"chat_template_kwargs\":{\"mood\":null}}";
  expect_ignored("glm_47", nulls, "[]");
}

static void keys_that_say_something_are_shown_or_refused(void **state) {
  (void)state;
  static const struct { const char *name, *body; status why; const char *path; } cases[] = {
    {"plain", SAID("assistant", "\"reasoning_content\":\"x\""), ERR_UNSUPPORTED, "messages[1].reasoning_content: "},
    {"plain", SAID("assistant", "\"reasoning\":\"x\""), ERR_UNSUPPORTED, "messages[1].reasoning_content: "},
    {"glm_47", SAID("assistant", "\"reasoning\":\"x\",\"reasoning_content\":\"y\""), ERR_UNSUPPORTED, "messages[1].reasoning: "},
    {"glm_47", SAID("user", "\"reasoning_content\":\"x\""), ERR_UNSUPPORTED, "messages[1].reasoning_content: a message of this role"},
    {"plain", SAID("assistant", "\"prefix\":true"), ERR_UNSUPPORTED, "messages[1].prefix: "},
    {"plain", SAID("user", "\"name\":\"ann\""), ERR_UNSUPPORTED, "messages[1].name: "},
    {"plain", SAID("user", "\"tool_call_id\":\"a\""), ERR_UNSUPPORTED, "messages[1].tool_call_id: a message of this role"},
    {"plain", SAID("assistant", "\"refusal\":\"no\""), ERR_UNSUPPORTED, "messages[1].refusal: "},
    {"plain", SAID("assistant", "\"function_call\":{\"name\":\"f\"}"), ERR_UNSUPPORTED, "messages[1].function_call: "},
    {"plain", SAID("user", "\"mood\":0"), ERR_USAGE, "messages[1].mood: unknown"},
    {"plain", PART("\"mood\":\"\""), ERR_USAGE, "messages[0].content[0].mood: unknown"},
    {"plain", CALLS(""), ERR_UNSUPPORTED, "messages[1].tool_calls: this model's template does not show it"},
    {"glm_47", CALLS(",\"mood\":1"), ERR_USAGE, "messages[1].tool_calls[0].mood: unknown"},
    {"deepseek_v32", TOOLS("{\"type\":\"function\",\"function\":{},\"mood\":1}"), ERR_USAGE, "tools[0].mood: unknown"},
    {"deepseek_v32", TOOLS("{\"type\":\"custom\",\"function\":{}}"), ERR_UNSUPPORTED, "tools[0].type: "},
    {"plain", TOOLS("{}"), ERR_UNSUPPORTED, "tools: "},
    {"plain", SAID("user", "\"name\":7"), ERR_FORMAT, "messages[1].name: expected text"},
    {"plain", SAID("assistant", "\"prefix\":1"), ERR_FORMAT, "messages[1].prefix: expected true or false"},
    {"deepseek_r1_think", SAID("assistant", "\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]"),
     ERR_FORMAT, "unsupported operand type(s) for +"},
    {"strict_instructions", SAID("user", "\"cache_control\":null"), ERR_FORMAT,
     "refuses this conversation: After the optional system message"},
    {"turns_with_calls", SAID("developer", "\"refusal\":null"), ERR_FORMAT, "messages[1].role: "},
    {"plain", "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":null}]}]}", ERR_FORMAT,
     "messages[0].content[0].text: expected text"},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++)
    expect_refusal(cases[i].name, cases[i].body, cases[i].why, cases[i].path);
}

/* The date is the request's: never the clock's. */
static void a_date_comes_from_the_request(void **state) {
  (void)state;
  static const char asked[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":{\"strftime_now\":%s}}";
  static const struct { const char *date; status why; const char *words; } cases[] = {
    {"null", ERR_UNSUPPORTED, "chat_template_kwargs.strftime_now: this model's template shows the day's date"},
    {"\"2025-02-29\"", ERR_FORMAT, "chat_template_kwargs.strftime_now: expected a date"},
    {"\"2025-2\"", ERR_FORMAT, "chat_template_kwargs.strftime_now: expected a date"},
    {"\"2025-01-01 25:00:00\"", ERR_FORMAT, "chat_template_kwargs.strftime_now: expected a date"},
    {"\"today\"", ERR_FORMAT, "chat_template_kwargs.strftime_now: expected a date"},
    {"20250101", ERR_FORMAT, "chat_template_kwargs.strftime_now: expected a date"},
  };
  char body[256];
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    snprintf(body, sizeof body, asked, cases[i].date);
    expect_refusal("roles_in_marks", body, cases[i].why, cases[i].words);
  }
  snprintf(body, sizeof body, asked, "\"2025-01-01\"");
  expect_refusal("plain", body, ERR_UNSUPPORTED, "chat_template_kwargs.strftime_now: this model's template does not read it");
}

/* Where ids are not shown, the order is what says which call a result belongs to. */
static void results_come_in_the_order_of_their_calls(void **state) {
  (void)state;
  static const char calls[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"tool_calls\":["
                              "{\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
                              "{\"id\":\"call_b\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
                              "{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"%s\"},"
                              "{\"role\":\"tool\",\"content\":\"y\",\"tool_call_id\":\"%s\"}]}";
  static const char ids[] = "[\"messages[1].tool_calls[0].id\",\"messages[1].tool_calls[1].id\",\"messages[2].tool_call_id\","
                            "\"messages[3].tool_call_id\"]";
  char body[640];
  snprintf(body, sizeof body, calls, "call_b", "call_a");
  expect_refusal("deepseek_r1_think", body, ERR_UNSUPPORTED, "messages[2].tool_call_id: ");
  expect_refusal("glm_47", body, ERR_UNSUPPORTED, "belongs to call 1");
  expect_ignored("strict_instructions", body, "[]"); /* shows them */
  snprintf(body, sizeof body, calls, "call_a", "call_a");
  expect_refusal("deepseek_v32", body, ERR_UNSUPPORTED, "messages[3].tool_call_id: ");
  snprintf(body, sizeof body, calls, "call_a", "call_b");
  expect_ignored("deepseek_r1_think", body, ids);
  snprintf(body, sizeof body, calls, "other", "call_b");
  expect_ignored("glm_47", body, ids);
}

/* No template prints Python's None. Null next to calls is in the vectors. */
static void null_is_not_given(void **state) {
  (void)state;
  static const char *const names[] = {"plain", "deepseek_r1_think", "deepseek_v32", "turns_with_calls", "glm_47"};
  static const char *const roles[] = {"system", "user", "assistant"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++)
    for (size_t k = 0; k < ARRAY_LEN(roles); k++) {
      char body[256];
      snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"%s\",\"content\":null}]}", roles[k]);
      expect_refusal(names[i], body, ERR_FORMAT, "messages[1].content: expected text or a list of parts, found nothing");
    }
  expect_refusal("glm_47", "{\"messages\":[{\"role\":\"tool\",\"content\":null}]}", ERR_FORMAT, "messages[0].content: ");
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
  assert_int_equal(chat_render(self, most, NULL, &text, &bytes), OK);
  assert_int_equal(bytes, TOKENIZER_TEXT_BYTES_MAX);
  free(text);
  fail_clear();
  assert_int_equal(chat_render(self, more, NULL, &text, &bytes), ERR_LIMIT);
  assert_non_null(strstr(fail_text(), "4194304"));
  fail_clear();
  assert_int_equal(chat_render(self, many, NULL, &text, &bytes), ERR_LIMIT);
  json_decref(most);
  json_decref(more);
  json_decref(many);
  chat_close(self);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(prompts_are_those_of_jinja2),
    cmocka_unit_test_setup_teardown(a_template_is_found_where_transformers_looks, make_folder, drop_folder),
    cmocka_unit_test_setup_teardown(ends_that_jinja_drops_do_not_count, make_folder, drop_folder),
    cmocka_unit_test_setup_teardown(files_that_are_not_what_they_should_be, make_folder, drop_folder),
    cmocka_unit_test_setup_teardown(a_link_that_leads_nowhere_is_no_absent_file, make_folder, drop_folder),
    cmocka_unit_test(the_shipped_model_has_the_plain_one),
    cmocka_unit_test(plain_text_has_the_ids_of_a_prompt),
    cmocka_unit_test(refusals_name_the_message),
    cmocka_unit_test(keys_without_effect_are_listed),
    cmocka_unit_test(keys_that_say_something_are_shown_or_refused),
    cmocka_unit_test(a_date_comes_from_the_request),
    cmocka_unit_test(null_is_not_given),
    cmocka_unit_test(results_come_in_the_order_of_their_calls),
    cmocka_unit_test(a_prompt_has_a_bound),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
