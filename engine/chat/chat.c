/* chat.c - see chat.h. The table of templates, and what all renderers share: switches, and the end of a message that is to be continued. */
#include "chat/chat.h"
#include "chat/deepseek.h"
#include "chat/dsml.h"
#include "chat/glm.h"
#include "chat/keys.h"
#include "chat/kimi.h"
#include "base/digest.h"
#include "text/tokenizer_json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSAL_BYTES 512u
#define CONTINUE_TAG "CONTINUE_FINAL_MESSAGE_TAG " /* transformers' own tag; its blank decides which white space is lost */
#define WAY_OUT "hint: render the conversation at the client and send its text or token ids to /v1/completions"

/* === Templates =============================================================================================== */

enum { THINKING = 1, ENABLE_THINKING = 2, CLEAR_THINKING = 4 };

#define INSTRUCT (CHAT_SHOWS_NAME | CHAT_SHOWS_RESULT_ID | CHAT_SHOWS_CALL_ID | CHAT_SHOWS_TOOLS | CHAT_SHOWS_WHOLE_TOOLS)
#define GLM (CHAT_SHOWS_REASONING | CHAT_SHOWS_TOOLS | CHAT_SHOWS_WHOLE_TOOLS)

typedef struct family {
  const char *name;
  chat_renderer *render;
  unsigned variant;
  unsigned shows;      /* CHAT_SHOWS_... */
  unsigned switches;   /* those that the template reads */
  const char *between; /* separator of a content's parts: templates that accept only text have each part on its own line */
} family;

static chat_renderer render_plain;

static const family families[] = {
  {"plain", render_plain, 0, 0, 0, "\n"},
  {"deepseek_v2", chat_deepseek_v2, 0, 0, 0, "\n"},
  {"deepseek_v25", chat_deepseek_v3, CHAT_DEEPSEEK_V25, CHAT_SHOWS_CALL_TYPE, 0, "\n"},
  {"deepseek_v3", chat_deepseek_v3, CHAT_DEEPSEEK_V3, CHAT_SHOWS_CALL_TYPE, 0, "\n"},
  {"deepseek_r1", chat_deepseek_v3, CHAT_DEEPSEEK_R1, CHAT_SHOWS_CALL_TYPE, 0, "\n"},
  {"deepseek_r1_think", chat_deepseek_v3, CHAT_DEEPSEEK_R1_THINK, CHAT_SHOWS_CALL_TYPE, 0, "\n"},
  {"deepseek_r1_0528", chat_deepseek_r1_0528, 0, CHAT_SHOWS_CALL_TYPE, 0, "\n"},
  {"deepseek_v31", chat_deepseek_v31, CHAT_DEEPSEEK_V31, CHAT_SHOWS_PREFIX, THINKING, "\n"},
  {"deepseek_v31_terminus", chat_deepseek_v31, CHAT_DEEPSEEK_TERMINUS, CHAT_SHOWS_PREFIX, THINKING, "\n"},
  {"deepseek_v32", chat_dsml_render, 0, CHAT_SHOWS_REASONING | CHAT_SHOWS_TOOLS | CHAT_SHOWS_STRICT, THINKING | ENABLE_THINKING, "\n"},
  {"moonlight", chat_kimi_render, CHAT_KIMI_MOONLIGHT, 0, 0, "\n"},
  {"kimi_k2", chat_kimi_render, CHAT_KIMI_K2, CHAT_SHOWS_RESULT_ID | CHAT_SHOWS_TOOLS | CHAT_SHOWS_WHOLE_TOOLS, 0, ""},
  {"kimi_k2_instruct", chat_kimi_render, CHAT_KIMI_INSTRUCT, INSTRUCT, 0, ""},
  {"kimi_k2_instruct_tight", chat_kimi_render, CHAT_KIMI_INSTRUCT_TIGHT, INSTRUCT, 0, ""},
  {"kimi_k2_thinking", chat_kimi_render, CHAT_KIMI_THINKING, INSTRUCT | CHAT_SHOWS_REASONING, 0, ""},
  {"kimi_k25", chat_kimi_render, CHAT_KIMI_K25, INSTRUCT | CHAT_SHOWS_REASONING, THINKING, ""},
  {"glm_45", chat_glm_render, CHAT_GLM_45, GLM, ENABLE_THINKING, ""},
  {"glm_47", chat_glm_render, CHAT_GLM_47, GLM, ENABLE_THINKING | CLEAR_THINKING, ""},
  {"glm_51", chat_glm_render, CHAT_GLM_51, CHAT_SHOWS_REASONING | CHAT_SHOWS_TOOLS, ENABLE_THINKING | CLEAR_THINKING, ""},
};

/* Digests of templates (chat_template_digest), the renderer of each, and where the text was published. */
static const struct {
  const char *digest, *family, *source;
} templates[] = {
  {"00bea8f9fbcfebfe7083520b80e73265", "plain", "this repository: tests/tiny"},
  {"87e1980108b40447f64ecff9c8ef587d", "deepseek_v2", "DeepSeek-V2-Lite-Chat, DeepSeek-V2, Coder-V2: four copies"},
  {"0eb5e46cc3f6e10f5d8f46e84b7785dd", "deepseek_v25", "DeepSeek-V2.5: one copy"},
  {"4539344e06ec0b776878d9ac13b3ef51", "deepseek_v3", "DeepSeek-V3, V3-Base: two copies"},
  {"ad7b49225b980e366d68488b86e2e184", "deepseek_r1", "DeepSeek-R1 as first published, R1-1776: two copies"},
  {"fc60798d3b3a231256a138c31521e7c8", "deepseek_r1_think", "DeepSeek-R1: two copies"},
  {"82bb975022b25f5158cd1105c674f0cc", "deepseek_r1_0528", "DeepSeek-R1-0528: one copy"},
  {"56ef7eac9b1d2a99ab9a527abb097f43", "deepseek_v31", "DeepSeek-V3.1: one copy"},
  {"948aaae927d40db6c82a573ea4abbd4e", "deepseek_v31_terminus", "V3.1-Terminus, V3.2-Exp: one copy, without its origin"},
  {"477385b3a89b817926ea5e491da79897", "moonlight", "Moonlight-16B-A3B-Instruct: put together from a description"},
  {"670550377b59dcfbaa422f3eb607ab97", "moonlight", "the same, with other spaces inside its marks"},
  {"2e926ddc2e24e4de0feece189429194c", "kimi_k2", "Kimi-K2-Instruct as first published: one copy"},
  {"f370be488ae780a3e5b93ef0f57868f3", "kimi_k2_instruct", "Kimi-K2-Instruct, 0905: put together from a changed copy"},
  {"0f2d441ce6bfd953caa73d334a2692c0", "kimi_k2_instruct", "the same, with the result's id in place"},
  {"0b47f66f9f20ee27623254e5bd9180d8", "kimi_k2_instruct_tight", "Kimi-K2-Instruct, 0905: put together from a changed copy"},
  {"ff33d866419c2a690b6f99d1a2b664b0", "kimi_k2_instruct_tight", "the same, with the result's id in place"},
  {"74222a62f985430fc7b6950dcf150d95", "kimi_k2_thinking", "Kimi-K2-Thinking: one copy"},
  {"e8a08eb6bd4e59e04721ebae7585e2b1", "kimi_k25", "Kimi-K2.5: one copy"},
  {"158e3477a24f6e26a59a37db2b6d44d1", "glm_45", "GLM-4.5, GLM-4.6: one copy"},
  {"0738cf0344d3654105c556566a3840a7", "glm_45", "GLM-4.6 as llama.cpp keeps it: renders the same"},
  {"36c6cca0b2be3bd19908ff553a4cc3df", "glm_47", "GLM-4.7-Flash, GLM-4.7: one copy"},
  {"b17a6c54dbcbd54e84b32ecff5b8e311", "glm_51", "GLM-5.1: one copy"},
};

struct chat {
  const family *family;      /* NULL: none */
  bool has_tool_template;    /* the model has a separate template for conversations with tools */
  char *bos, *eos;           /* may be NULL */
  char refusal[REFUSAL_BYTES];
  char digest[DIGEST_TEXT_BYTES]; /* of the template; "": it was not read */
};

void chat_template_digest(char *text, size_t bytes, char hexadecimal[33]) {
  size_t kept = 0;
  for (size_t i = 0; i < bytes; i++) {
    if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n') continue;
    text[kept++] = text[i] == '\r' ? '\n' : text[i];
  }
  size_t end = kept;
  while (end > 0 && strchr(" \t\n", text[end - 1])) end--;
  bool is_truncated = end >= 3 && memcmp(text + end - 3, "-%}", 3) == 0;
  if (is_truncated) kept = end;
  else if (kept > 0 && text[kept - 1] == '\n') kept--;
  digest d = digest_of(text, kept);
  digest_text(d.bytes, hexadecimal);
}

static const family *find_family(const char *name) {
  for (size_t i = 0; i < ARRAY_LEN(families); i++)
    if (strcmp(families[i].name, name) == 0) return &families[i];
  return NULL;
}

const char *chat_template_name(const char *hexadecimal) {
  for (size_t i = 0; i < ARRAY_LEN(templates); i++)
    if (strcmp(templates[i].digest, hexadecimal) == 0) return templates[i].family;
  return NULL;
}

static void choose(chat *self, char *text, size_t bytes) {
  chat_template_digest(text, bytes, self->digest);
  const char *known = chat_template_name(self->digest);
  if (known) self->family = find_family(known);
  if (known) return;
  snprintf(self->refusal, sizeof self->refusal, "this model's chat template (%s) is not one of those rendered here; " WAY_OUT,
           self->digest);
}

/* === Opening ================================================================================================= */

/* A token is a text, or an object with its content. */
static char *copy_token(const json_t *config, const char *key) {
  const json_t *token = json_object_get(config, key);
  const char *text = json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
  return text ? strdup(text) : NULL;
}

/* The template in tokenizer_config.json: a text, or the entry "default" of a list of named ones. NULL: none. */
static const json_t *config_template(chat *self, const json_t *config) {
  const json_t *found = json_object_get(config, "chat_template"), *chosen = NULL;
  if (!json_is_array(found)) return json_is_string(found) ? found : NULL;
  for (size_t i = 0; i < json_array_size(found); i++) {
    const char *name = json_string_value(json_object_get(json_array_get(found, i), "name"));
    if (name && strcmp(name, "default") == 0) chosen = json_object_get(json_array_get(found, i), "template");
    if (name && strcmp(name, "tool_use") == 0) self->has_tool_template = true;
  }
  return json_is_string(chosen) ? chosen : NULL;
}

/* DeepSeek-V3.2 ships a program instead of a template, so only the model type identifies it. */
static status choose_by_type(chat *self, const char *model_dir) {
  char *text = NULL;
  size_t bytes = 0;
  json_t *config = NULL;
  TRY(tokenizer_json_read_file(model_dir, "config.json", true, &text, &bytes));
  status result = text ? tokenizer_json_load("config.json", text, bytes, &config) : OK;
  free(text);
  const char *type = json_string_value(json_object_get(config, "model_type"));
  if (type && strcmp(type, "deepseek_v32") == 0) self->family = find_family("deepseek_v32");
  else snprintf(self->refusal, sizeof self->refusal, "this model has no chat template; " WAY_OUT);
  json_decref(config);
  return result;
}

static status read_config(chat *self, const char *model_dir, char **text, size_t *bytes) {
  char *file = NULL;
  size_t file_bytes = 0;
  json_t *config = NULL;
  TRY(tokenizer_json_read_file(model_dir, "tokenizer_config.json", true, &file, &file_bytes));
  status result = file ? tokenizer_json_load("tokenizer_config.json", file, file_bytes, &config) : OK;
  free(file);
  if (result != OK || !config) return result;
  self->bos = copy_token(config, "bos_token");
  self->eos = copy_token(config, "eos_token");
  const json_t *found = config_template(self, config);
  if (found && !*text) {
    *bytes = json_string_length(found);
    *text = strdup(json_string_value(found));
    if (!*text) result = FAIL(ERR_LIMIT, "tokenizer_config.json: no memory");
  }
  json_decref(config);
  return result;
}

static status open_files(chat *self, const char *model_dir) {
  char *text = NULL;
  size_t bytes = 0;
  TRY(tokenizer_json_read_file(model_dir, "chat_template.jinja", true, &text, &bytes));
  status result = read_config(self, model_dir, &text, &bytes);
  if (result == OK && text) choose(self, text, bytes);
  else if (result == OK) result = choose_by_type(self, model_dir);
  free(text);
  return result;
}

static status open_named(chat *self, const char *model_dir, const char *name) {
  char *text = NULL;
  size_t bytes = 0;
  status result = read_config(self, model_dir, &text, &bytes);
  free(text);
  self->has_tool_template = false;
  self->family = find_family(name);
  if (result == OK && !self->family)
    return FAIL(ERR_USAGE, "chat template \"%.64s\": expected the name of a renderer (chat.c lists them)", name);
  return result;
}

static status open_one(chat **out, const char *model_dir, const char *name) {
  chat *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "chat template: no memory");
  status result = name ? open_named(self, model_dir, name) : open_files(self, model_dir);
  if (result == OK) *out = self;
  else chat_close(self);
  return result;
}

status chat_open(chat **out, const char *model_dir) { return open_one(out, model_dir, NULL); }
status chat_open_named(chat **out, const char *model_dir, const char *name) { return open_one(out, model_dir, name); }

void chat_close(chat *self) {
  if (!self) return;
  free(self->bos);
  free(self->eos);
  free(self);
}

const char *chat_name(const chat *self) { return self->family ? self->family->name : NULL; }
const char *chat_digest(const chat *self) { return *self->digest ? self->digest : NULL; }
const char *chat_refusal(const chat *self) { return self->refusal; }

/* === Rendering =============================================================================================== */

/* For base models and the shipped one: the contents, concatenated. */
static status render_plain(const chat_request *request, unsigned variant, chat_text *out) {
  (void)variant;
  chat_text_put(out, request->bos);
  for (size_t i = 0; i < request->count; i++) {
    if (chat_message_calls(request, i))
      return FAIL(ERR_UNSUPPORTED, "messages[%zu].tool_calls: this model's template shows no calls of tools", i);
    TRY(chat_message_print(request, i, "content", out));
  }
  return OK;
}

static status read_bool(const json_t *body, const char *key, bool otherwise, bool *out) {
  const json_t *value = json_object_get(body, key);
  if (value && !json_is_boolean(value) && !json_is_null(value)) return FAIL(ERR_FORMAT, "%s: expected true or false", key);
  *out = json_is_boolean(value) ? json_is_true(value) : otherwise;
  return OK;
}

static status read_switches(const family *f, const json_t *body, chat_request *request) {
  static const char *const names[] = {"thinking", "enable_thinking", "clear_thinking"};
  chat_switch *const switches[] = {&request->thinking, &request->enable_thinking, &request->clear_thinking};
  const json_t *given = json_object_get(body, "chat_template_kwargs");
  if (given && !json_is_object(given) && !json_is_null(given)) return FAIL(ERR_FORMAT, "chat_template_kwargs: expected an object");
  const char *key = NULL;
  json_t *value = NULL;
  json_object_foreach((json_t *)given, key, value) {
    size_t i = 0;
    if (json_is_null(value)) continue;
    while (i < ARRAY_LEN(names) && strcmp(names[i], key) != 0) i++;
    if (i == ARRAY_LEN(names) || !(f->switches & 1u << i))
      return FAIL(ERR_UNSUPPORTED, "chat_template_kwargs.%.64s: this model's template (%s) does not read it; hint: remove it", key,
                  f->name);
    if (!json_is_boolean(value)) return FAIL(ERR_FORMAT, "chat_template_kwargs.%s: expected true or false", names[i]);
    *switches[i] = json_is_true(value) ? CHAT_ON : CHAT_OFF;
  }
  return OK;
}

static status read_tools(const chat *self, const json_t *body, json_t *ignored, chat_request *request) {
  const json_t *tools = json_object_get(body, "tools");
  if (!tools || json_is_null(tools) || (json_is_array(tools) && json_array_size(tools) == 0)) return OK;
  if (!json_is_array(tools)) return FAIL(ERR_FORMAT, "tools: expected a list");
  if (!(self->family->shows & CHAT_SHOWS_TOOLS) || self->has_tool_template)
    return FAIL(ERR_UNSUPPORTED, "tools: this model's template (%s) does not show them; hint: declare them in the system message",
                self->family->name);
  for (size_t i = 0; i < json_array_size(tools); i++)
    if (!json_is_object(json_array_get(tools, i))) return FAIL(ERR_FORMAT, "tools[%zu]: expected an object", i);
  request->tools = tools;
  return chat_keys_check_tools(tools, self->family->shows, ignored);
}

/* Appends the tag to the last message's content. */
static status mark_end(chat_request *request) {
  chat_text marked = {0};
  chat_span content = {0};
  char *bytes = NULL;
  size_t count = 0;
  TRY(chat_message_text(request, request->count - 1, "content", &content));
  chat_text_put(&marked, content);
  chat_text_say(&marked, CONTINUE_TAG);
  TRY(chat_text_take(&marked, &bytes, &count));
  int failed = json_object_set_new(json_array_get(request->messages, request->count - 1), "content", json_stringn(bytes, count));
  free(bytes);
  return failed ? FAIL(ERR_LIMIT, "messages: no memory") : OK;
}

/* Truncates the prompt at the tag; if the template stripped the tag's blank, also strips white space before the tag. */
static status truncate_end(const chat_request *request, chat_span content, chat_text *out) {
  chat_span text = {out->buffer.bytes, out->buffer.count};
  size_t tag_bytes = sizeof CONTINUE_TAG - 1;
  ptrdiff_t at = chat_text_find_last(text, "CONTINUE_FINAL_MESSAGE_TAG");
  bool is_whole = at >= 0 && text.count - (size_t)at >= tag_bytes && memcmp(text.bytes + at, CONTINUE_TAG, tag_bytes) == 0;
  text.count = at >= 0 ? (size_t)at : 0;
  chat_span bare = chat_text_strip_end(text);
  if (at < 0 || bare.count < content.count || memcmp(bare.bytes + bare.count - content.count, content.bytes, content.count) != 0)
    return FAIL(ERR_FORMAT, "messages[%zu]: the template changes this message: it cannot be continued", request->count - 1);
  out->buffer.count = is_whole ? text.count : bare.count;
  return OK;
}

static status render(const chat *self, chat_request *request, bool continues, json_t *ignored, chat_text *out) {
  json_t *last = NULL;
  chat_span content = {0};
  TRY(chat_keys_check(request->messages, self->family->shows, ignored));
  TRY(chat_message_check(request->messages, self->family->between));
  request->count = json_array_size(request->messages);
  if (continues) {
    last = json_incref((json_t *)chat_message_get(request, request->count - 1, "content"));
    status marked = mark_end(request);
    if (marked != OK) json_decref(last);
    TRY(marked);
    content = chat_text_strip(chat_message_span(last));
  }
  status result = self->family->render(request, self->family->variant, out);
  if (result == OK) result = out->failure;
  if (result == OK && continues) result = truncate_end(request, content, out);
  json_decref(last);
  return result;
}

status chat_render(const chat *self, const json_t *body, json_t *ignored, char **text, size_t *bytes) {
  chat_request request = {0};
  chat_text out = {0};
  bool continues = false;
  if (!self->family) return FAIL(ERR_UNSUPPORTED, "%s", self->refusal);
  if (self->bos) request.bos = (chat_span){self->bos, strlen(self->bos)};
  if (self->eos) request.eos = (chat_span){self->eos, strlen(self->eos)};
  TRY(read_bool(body, "continue_final_message", false, &continues));
  TRY(read_bool(body, "add_generation_prompt", !continues, &request.add_generation_prompt));
  if (continues && request.add_generation_prompt)
    return FAIL(ERR_FORMAT, "continue_final_message: expected false, as add_generation_prompt is true");
  TRY(read_switches(self->family, body, &request));
  TRY(read_tools(self, body, ignored, &request));
  const json_t *messages = json_object_get(body, "messages");
  if (!json_is_array(messages) || json_array_size(messages) == 0)
    return FAIL(ERR_FORMAT, "messages: expected a list of at least one message");
  if (!(request.messages = chat_keys_copy(messages))) return FAIL(ERR_LIMIT, "messages: no memory");
  status result = render(self, &request, continues, ignored, &out);
  if (result == OK) result = chat_text_take(&out, text, bytes);
  chat_text_close(&out);
  json_decref(request.messages);
  return result;
}
