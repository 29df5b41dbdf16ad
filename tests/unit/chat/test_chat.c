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

/* What the templates read, by the first letters of their names: their texts say so, not the renderers. */
static bool reads(const char *name, const char *key) {
  static const struct { const char *key, *names[5]; } all[] = {
    {"name", {"kimi_k2_", "kimi_k25"}}, {"prefix", {"deepseek_v31"}},
    {"reasoning_content", {"kimi_k2_thinking", "kimi_k25", "glm_", "deepseek_v32"}}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    for (size_t k = 0; strcmp(all[i].key, key) == 0 && all[i].names[k]; k++)
      if (strncmp(name, all[i].names[k], strlen(all[i].names[k])) == 0) return true;
  return false;
}

/* V2.5's and V3's templates show calls only if there is no content. */
static bool hides_calls(const char *name) { return strcmp(name, "deepseek_v25") == 0 || strcmp(name, "deepseek_v3") == 0; }

/* Removes from a copy of the body what the template would drop without a word. Returns whether there was any. */
static bool take_lost(const char *name, json_t *body) {
  static const char *const keys[] = {"name", "reasoning_content", "prefix"};
  bool lost = false;
  size_t i;
  json_t *message;
  json_array_foreach(json_object_get(body, "messages"), i, message) {
    bool is_result = strcmp(json_string_value(json_object_get(message, "role")), "tool") == 0;
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
      const json_t *value = json_object_get(message, keys[k]);
      if (!json_is_true(value) && json_string_length(value) == 0) continue; /* asks for nothing */
      if (reads(name, keys[k]) || (is_result && k == 0)) continue;
      json_object_del(message, keys[k]);
      lost = true;
    }
    size_t calls = json_array_size(json_object_get(message, "tool_calls"));
    if (hides_calls(name) && calls && json_string_length(json_object_get(message, "content"))) {
      json_object_del(message, "tool_calls");
      lost = true;
    }
  }
  return lost;
}

/* Removes from a copy of the body what says nothing: null, and an empty list of calls. An absent content next to calls is an empty one,
 * which V2.5 and V3 must not have. has_none: another message has no content; is_odd: a template does something else for what says nothing.
 * Returns whether anything was removed. */
static bool take_nothing(const char *name, json_t *body, bool *has_none, bool *is_odd) {
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
    if (!has_calls || json_string_length(value) || json_is_array(value) || (value != NULL) != hides_calls(name)) continue;
    *is_odd |= value != NULL;
    if (value) json_object_del(message, "content");
    else json_object_set_new(message, "content", json_string(""));
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
  return why == OK ? result == ERR_FORMAT || result == ERR_UNSUPPORTED : result == why;
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

/* Returns whether the renderer gives for the conversation what its template gave; where the template drops what was said, or prints the
 * word None, whether it refuses that, and gives the same for the rest. */
static bool is_same(const chat *self, const json_t *conversation, const json_t *vector) {
  const json_t *expected = json_object_get(vector, "text");
  json_t *given = json_deep_copy(json_object_get(conversation, "body"));
  bool has_none = false, is_odd = false, lost = take_lost(chat_name(self), given);
  bool good = !lost || is_refused(self, json_object_get(conversation, "body"), ERR_UNSUPPORTED);
  json_t *bare = json_deep_copy(given);
  bool changed = take_nothing(chat_name(self), bare, &has_none, &is_odd);
  if (has_none) good &= is_refused(self, given, OK);
  else if (changed) good &= are_equal(self, given, bare);
  bool says = json_is_string(expected) && !strstr(json_string_value(expected), "None");
  if (!is_odd && !has_none && (says || !changed)) good &= says ? is_text(self, given, expected) : is_refused(self, given, OK);
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
  const json_t *vectors = json_object_get(made, "vectors"), *key = json_object_get(made, "digest");
  if (json_array_size(vectors) != json_array_size(conversations))
    fail_msg("%s: another number of conversations; hint: tools/chat_vectors.py", path);
  chat *self = open_named(name);
  size_t failed = 0;
  for (size_t i = 0; i < json_array_size(vectors); i++) {
    const json_t *conversation = json_array_get(conversations, i), *vector = json_array_get(vectors, i);
    assert_string_equal(json_string_value(json_object_get(conversation, "name")), json_string_value(json_object_get(vector, "name")));
    if (is_same(self, conversation, vector)) continue;
    print_error("%s, %s: not as the template\n", name, json_string_value(json_object_get(vector, "name")));
    failed++;
  }
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
    assert_int_equal(chat_render(self, body, NULL, &text, &bytes), ERR_UNSUPPORTED);
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
  static const char *const names[] = {"plain", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_47"};
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
  expect_refusal("deepseek_v3", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{}]}", ERR_UNSUPPORTED, "tools");
  static const char list[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"id\":\"1\","
                             "\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}}]}]}";
  expect_refusal("glm_47", list, ERR_FORMAT, "messages[0].tool_calls[0].function.arguments: ");
  expect_refusal("deepseek_v32", list, ERR_FORMAT, "messages[0].tool_calls[0].function.arguments: ");
  expect_refusal("deepseek_v31", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":{\"thinking\":1}}",
                 ERR_FORMAT, "chat_template_kwargs.thinking: ");
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
  expect_ignored("deepseek_v3", CALLS(""), "[\"messages[1].tool_calls[0].id\",\"messages[2].tool_call_id\",\"messages[2].name\"]");
  expect_ignored("glm_47", CALLS(",\"index\":0"), "[\"messages[1].tool_calls[0].id\",\"messages[1].tool_calls[0].index\","
                 "\"messages[2].tool_call_id\",\"messages[2].name\"]");
  expect_ignored("kimi_k2", CALLS(""), "[\"messages[1].tool_calls[0].id\",\"messages[2].name\"]");
  expect_ignored("kimi_k2_thinking", CALLS(""), "[]");
  expect_ignored("plain", PART("\"cache_control\":{\"type\":\"ephemeral\"}"), "[\"messages[0].content[0].cache_control\"]");
  expect_ignored("plain", SAID("user", "\"cache_control\":{\"type\":\"ephemeral\"}"), "[\"messages[1].cache_control\"]");
  static const char strict[] = TOOLS("{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}");
  expect_ignored("glm_51", strict, "[\"tools[0].function.strict\"]");
  expect_ignored("glm_47", strict, "[]"); /* shown */
  expect_ignored("deepseek_v32", strict, "[]");
  expect_ignored("kimi_k2", TOOLS("{\"type\":\"x\",\"any\":[null]}"), "[]");
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
    {"glm_47", SAID("assistant", "\"reasoning\":\"x\""), ERR_UNSUPPORTED, "messages[1].reasoning: "},
    {"glm_47", SAID("user", "\"reasoning_content\":\"x\""), ERR_UNSUPPORTED, "messages[1].reasoning_content: a message of this role"},
    {"plain", SAID("assistant", "\"prefix\":true"), ERR_UNSUPPORTED, "messages[1].prefix: "},
    {"deepseek_v31", SAID("assistant", "\"partial\":true"), ERR_UNSUPPORTED, "messages[1].partial: "},
    {"plain", SAID("user", "\"name\":\"ann\""), ERR_UNSUPPORTED, "messages[1].name: "},
    {"kimi_k2_instruct", SAID("user", "\"tool_call_id\":\"a\""), ERR_UNSUPPORTED, "messages[1].tool_call_id: a message of this role"},
    {"plain", SAID("assistant", "\"refusal\":\"no\""), ERR_UNSUPPORTED, "messages[1].refusal: "},
    {"plain", SAID("assistant", "\"function_call\":{\"name\":\"f\"}"), ERR_UNSUPPORTED, "messages[1].function_call: "},
    {"plain", SAID("user", "\"mood\":0"), ERR_USAGE, "messages[1].mood: unknown"},
    {"plain", PART("\"mood\":\"\""), ERR_USAGE, "messages[0].content[0].mood: unknown"},
    {"glm_47", CALLS(",\"mood\":1"), ERR_USAGE, "messages[1].tool_calls[0].mood: unknown"},
    {"deepseek_v32", TOOLS("{\"type\":\"function\",\"function\":{},\"mood\":1}"), ERR_USAGE, "tools[0].mood: unknown"},
    {"glm_51", TOOLS("{\"type\":\"custom\",\"function\":{}}"), ERR_UNSUPPORTED, "tools[0].type: "},
    {"plain", TOOLS("{}"), ERR_UNSUPPORTED, "tools: "},
    {"plain", SAID("user", "\"name\":7"), ERR_UNSUPPORTED, "messages[1].name: "},
    {"kimi_k25", SAID("user", "\"name\":7"), ERR_FORMAT, "messages[1].name: expected text"},
    {"deepseek_v31", SAID("assistant", "\"prefix\":1"), ERR_FORMAT, "messages[1].prefix: expected true or false"},
    {"plain", "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":null}]}]}", ERR_FORMAT,
     "messages[0].content[0].text: expected text"},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) expect_refusal(cases[i].name, cases[i].body, cases[i].why, cases[i].path);
}

/* Where ids are not shown, the order is what says which call a result belongs to. */
static void results_come_in_the_order_of_their_calls(void **state) {
  (void)state;
  static const char calls[] = "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":["
                              "{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
                              "{\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
                              "{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"%s\"},"
                              "{\"role\":\"tool\",\"content\":\"y\",\"tool_call_id\":\"%s\"}]}";
  static const char ids[] = "[\"messages[0].tool_calls[0].id\",\"messages[0].tool_calls[1].id\",\"messages[1].tool_call_id\","
                            "\"messages[2].tool_call_id\"]";
  char body[512];
  snprintf(body, sizeof body, calls, "b", "a");
  expect_refusal("deepseek_v3", body, ERR_UNSUPPORTED, "messages[1].tool_call_id: ");
  expect_refusal("glm_47", body, ERR_UNSUPPORTED, "belongs to call 1");
  expect_ignored("kimi_k2_thinking", body, "[]"); /* shows them */
  snprintf(body, sizeof body, calls, "a", "a");
  expect_refusal("deepseek_v32", body, ERR_UNSUPPORTED, "messages[2].tool_call_id: ");
  snprintf(body, sizeof body, calls, "a", "b");
  expect_ignored("deepseek_v3", body, ids);
  snprintf(body, sizeof body, calls, "other", "b");
  expect_ignored("glm_47", body, ids);
}

/* No template prints Python's None. Null next to calls is in the vectors. */
static void null_is_not_given(void **state) {
  (void)state;
  static const char *const names[] = {"plain", "deepseek_v2", "deepseek_v25", "deepseek_r1", "deepseek_v31", "deepseek_v32", "moonlight",
                                      "kimi_k2", "kimi_k25", "glm_45", "glm_51"};
  static const char *const roles[] = {"system", "user", "assistant"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++)
    for (size_t k = 0; k < ARRAY_LEN(roles); k++) {
      char body[256];
      snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"%s\",\"content\":null}]}", roles[k]);
      expect_refusal(names[i], body, ERR_FORMAT, "messages[1].content: expected text or a list of parts, found nothing");
    }
  expect_refusal("kimi_k2", "{\"messages\":[{\"role\":\"tool\",\"content\":null}]}", ERR_FORMAT, "messages[0].content: ");
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
    cmocka_unit_test(the_shipped_model_has_the_plain_one),
    cmocka_unit_test(plain_text_has_the_ids_of_a_prompt),
    cmocka_unit_test(refusals_name_the_message),
    cmocka_unit_test(keys_without_effect_are_listed),
    cmocka_unit_test(keys_that_say_something_are_shown_or_refused),
    cmocka_unit_test(null_is_not_given),
    cmocka_unit_test(results_come_in_the_order_of_their_calls),
    cmocka_unit_test(a_prompt_has_a_bound),
    cmocka_unit_test(values_are_written_as_python_does),
    cmocka_unit_test(deep_values_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
