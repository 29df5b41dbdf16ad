/* chat.c - see chat.h. Where a template is found, what it sees, and the end of a message that is to be continued. */
#include "chat/chat.h"
#include "base/digest.h"
#include "base/json_text.h"
#include "chat/deepseek_v32.h"
#include "chat/keys.h"
#include "chat/message.h"
#include "jinja/jinja.h"
#include "jinja/text.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSAL_BYTES 1024u
#define VARIABLES_MAX 64u
#define PATH_BYTES_MAX 4096u
#define CONTINUE_TAG "CONTINUE_FINAL_MESSAGE_TAG " /* transformers' own tag; its blank decides which white space is lost */
#define WAY_OUT "hint: render the conversation at the client and send its text or token ids to /v1/completions"

_Static_assert(JINJA_TEXT_BYTES_MAX == TOKENIZER_TEXT_BYTES_MAX, "a prompt can be encoded");

static const char *const special_tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

struct chat {
  const char *name;                 /* NULL: no template */
  jinja_template *plain, *with_tools; /* with_tools: NULL if plain serves all conversations */
  json_t *tokens;                   /* special tokens by name; NULL: none */
  char *text, *tools_text;          /* of the templates; NULL: none */
  bool is_given;                    /* the caller named the file */
  char refusal[REFUSAL_BYTES];
  char digest[DIGEST_TEXT_BYTES];   /* "": no template was found */
};

/* === Opening ================================================================================================= */

typedef struct sources { /* the texts that were found; NULL: none */
  char *plain, *with_tools;
  size_t plain_bytes, with_tools_bytes;
} sources;

static status take_text(const json_t *found, char **text, size_t *bytes) {
  if (!json_is_string(found) || *text) return OK;
  *bytes = json_string_length(found);
  *text = malloc(*bytes + 1);
  if (!*text) return FAIL(ERR_LIMIT, "chat template: no memory");
  memcpy(*text, json_string_value(found), *bytes + 1);
  return OK;
}

/* chat_template of a JSON file: a text, or a list of named ones. */
static status take_member(const json_t *config, sources *s) {
  const json_t *found = json_object_get(config, "chat_template");
  if (!json_is_array(found)) return take_text(found, &s->plain, &s->plain_bytes);
  for (size_t i = 0; i < json_array_size(found); i++) {
    const json_t *name = json_object_get(json_array_get(found, i), "name"), *text = json_object_get(json_array_get(found, i), "template");
    if (json_text_is(name, "default")) TRY(take_text(text, &s->plain, &s->plain_bytes));
    if (json_text_is(name, "tool_use")) TRY(take_text(text, &s->with_tools, &s->with_tools_bytes));
  }
  return OK;
}

static status read_json(const char *model_dir, const char *name, json_t **out) {
  char *text = NULL;
  size_t bytes = 0;
  TRY(tokenizer_json_read_file(model_dir, name, true, &text, &bytes));
  status result = text ? tokenizer_json_load(name, text, bytes, out) : OK;
  free(text);
  return result;
}

/* A token is a text, or an object with its content. */
static status take_tokens(chat *self, const json_t *config) {
  self->tokens = json_object();
  int failed = self->tokens ? 0 : -1;
  for (size_t i = 0; i < ARRAY_LEN(special_tokens) && !failed; i++) {
    json_t *token = json_object_get(config, special_tokens[i]);
    if (json_is_object(token)) token = json_object_get(token, "content");
    if (json_is_string(token)) failed = json_object_set(self->tokens, special_tokens[i], token);
  }
  return failed ? FAIL(ERR_LIMIT, "tokenizer_config.json: no memory") : OK;
}

static status read_file(const char *path, sources *s) {
  char folder[PATH_BYTES_MAX];
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  if (name - path >= (ptrdiff_t)sizeof folder)
    return FAIL(ERR_USAGE, "%.64s...: expected a path of less than %u bytes", path, PATH_BYTES_MAX);
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(name - path) : 1, slash ? path : ".");
  return tokenizer_json_read_file(folder, name, false, &s->plain, &s->plain_bytes);
}

static status find_sources(chat *self, const char *model_dir, const char *file, sources *s) {
  json_t *config = NULL, *processor = NULL;
  if (file) TRY(read_file(file, s));
  else TRY(tokenizer_json_read_file(model_dir, "chat_template.jinja", true, &s->plain, &s->plain_bytes));
  if (s->plain && !file)
    TRY(tokenizer_json_read_file(model_dir, "additional_chat_templates/tool_use.jinja", true, &s->with_tools, &s->with_tools_bytes));
  TRY(read_json(model_dir, "tokenizer_config.json", &config));
  status result = take_tokens(self, config);
  if (result == OK && !s->plain) result = take_member(config, s);
  json_decref(config);
  TRY(result);
  if (s->plain) return OK;
  TRY(read_json(model_dir, "chat_template.json", &processor));
  result = take_member(processor, s);
  json_decref(processor);
  return result;
}

static status use_deepseek_v32(chat *self, sources *s) {
  size_t first = strlen(chat_deepseek_v32_tools), rest = strlen(chat_deepseek_v32_turns);
  s->plain = malloc(first + rest + 1);
  if (!s->plain) return FAIL(ERR_LIMIT, "chat template: no memory");
  memcpy(s->plain, chat_deepseek_v32_tools, first);
  memcpy(s->plain + first, chat_deepseek_v32_turns, rest + 1);
  s->plain_bytes = first + rest;
  self->name = "deepseek_v32";
  return OK;
}

/* DeepSeek-V3.2 ships a program instead of a template, so only the model type identifies it. */
static status choose_by_type(chat *self, const char *model_dir, sources *s) {
  json_t *config = NULL;
  TRY(read_json(model_dir, "config.json", &config));
  bool is_v32 = json_text_is(json_object_get(config, "model_type"), "deepseek_v32");
  json_decref(config);
  if (is_v32) return use_deepseek_v32(self, s);
  snprintf(self->refusal, sizeof self->refusal, "this model has no chat template; " WAY_OUT);
  return OK;
}

/* Without line ends that Jinja drops: a template has one digest however its file ends. */
static void add_digest(digest_state *state, char *text, size_t bytes) {
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
  digest_add(state, text, kept);
}

static status interpret(chat *self, sources *s, bool must_be) {
  digest_state state;
  status result = jinja_open(&self->plain, s->plain, s->plain_bytes);
  if (result == OK && s->with_tools) result = jinja_open(&self->with_tools, s->with_tools, s->with_tools_bytes);
  digest_start(&state);
  add_digest(&state, s->plain, s->plain_bytes);
  if (s->with_tools) add_digest(&state, s->with_tools, s->with_tools_bytes);
  digest_text(digest_end(&state).bytes, self->digest);
  if (result == OK && !self->name) self->name = "jinja";
  if (result == OK || must_be || (result != ERR_UNSUPPORTED && result != ERR_FORMAT)) return result;
  snprintf(self->refusal, sizeof self->refusal, "%.700s; " WAY_OUT, fail_text());
  fail_clear();
  self->name = NULL;
  return OK;
}

/* Before interpret, which changes the texts. */
static status keep_texts(chat *self, const sources *s) {
  if (s->plain) self->text = strndup(s->plain, s->plain_bytes);
  if (s->with_tools) self->tools_text = strndup(s->with_tools, s->with_tools_bytes);
  bool is_kept = (self->text || !s->plain) && (self->tools_text || !s->with_tools);
  return is_kept ? OK : FAIL(ERR_LIMIT, "chat template: no memory");
}

status chat_open(chat **out, const char *model_dir, const char *file) {
  sources found = {0};
  chat *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "chat template: no memory");
  status result = find_sources(self, model_dir, file, &found);
  if (result == OK && !found.plain) result = choose_by_type(self, model_dir, &found);
  if (result == OK) result = keep_texts(self, &found);
  self->is_given = file != NULL;
  if (result == OK && found.plain) result = interpret(self, &found, file != NULL);
  free(found.plain);
  free(found.with_tools);
  if (result == OK) *out = self;
  else chat_close(self);
  return result;
}

void chat_close(chat *self) {
  if (!self) return;
  jinja_close(self->plain);
  jinja_close(self->with_tools);
  json_decref(self->tokens);
  free(self->text);
  free(self->tools_text);
  free(self);
}

const char *chat_name(const chat *self) { return self->name; }
const char *chat_digest(const chat *self) { return *self->digest ? self->digest : NULL; }
const char *chat_given(const chat *self) { return self->is_given ? self->text : NULL; }
const char *chat_text(const chat *self, bool has_tools) { return has_tools && self->tools_text ? self->tools_text : self->text; }
const char *chat_refusal(const chat *self) { return self->refusal; }

/* === What a template sees ==================================================================================== */

typedef struct rendering {
  const jinja_template *template;
  const chat *chat;
  json_t *messages;          /* a copy, checked */
  const json_t *tools;       /* NULL: none */
  const json_t *switches;    /* NULL: none */
  const char *today;
  bool continues, add_generation_prompt;
  jinja_memory memory;
  jinja_value shown, shown_tools; /* as the template saw them */
} rendering;

static status read_bool(const json_t *body, const char *key, bool otherwise, bool *out) {
  const json_t *value = json_object_get(body, key);
  if (value && !json_is_boolean(value) && !json_is_null(value)) return FAIL(ERR_FORMAT, "%s: expected true or false", key);
  *out = json_is_boolean(value) ? json_is_true(value) : otherwise;
  return OK;
}

static status read_switches(const json_t *body, rendering *r) {
  static const char *const taken[] = {"messages", "tools", "add_generation_prompt"};
  const json_t *given = json_object_get(body, "chat_template_kwargs"), *value;
  const char *key = NULL;
  if (given && !json_is_object(given) && !json_is_null(given)) return FAIL(ERR_FORMAT, "chat_template_kwargs: expected an object");
  json_object_foreach((json_t *)(uintptr_t)given, key, value) {
    bool is_taken = false;
    for (size_t i = 0; i < ARRAY_LEN(taken); i++) is_taken |= strcmp(taken[i], key) == 0;
    if (json_is_null(value)) continue;
    if (is_taken) return FAIL(ERR_UNSUPPORTED, "chat_template_kwargs.%s: expected next to it, not in it", key);
    if (!jinja_reads(r->template, key))
      return FAIL(ERR_UNSUPPORTED, "chat_template_kwargs.%.64s: this model's template does not read it; hint: remove it", key);
    if (strcmp(key, "strftime_now") != 0) continue;
    if (!json_is_string(value)) return FAIL(ERR_FORMAT, "chat_template_kwargs.strftime_now: expected a date as \"2025-07-31\"");
    r->today = json_string_value(value);
  }
  r->switches = json_is_object(given) ? given : NULL;
  return OK;
}

/* tools_ts_str: a variable of Kimi-K2.5's template that only the program of its tokenizer sets, from tools. */
static status read_tools(const json_t *body, rendering *r) {
  const json_t *tools = json_object_get(body, "tools");
  if (!tools || json_is_null(tools) || (json_is_array(tools) && json_array_size(tools) == 0)) return OK;
  if (!json_is_array(tools)) return FAIL(ERR_FORMAT, "tools: expected a list");
  if (r->chat->with_tools) r->template = r->chat->with_tools;
  if (!jinja_reads(r->template, "tools") || jinja_reads(r->template, "tools_ts_str"))
    return FAIL(ERR_UNSUPPORTED, "tools: this model's template does not show them; hint: declare them in the system message");
  for (size_t i = 0; i < json_array_size(tools); i++)
    if (!json_is_object(json_array_get(tools, i))) return FAIL(ERR_FORMAT, "tools[%zu]: expected an object", i);
  r->tools = tools;
  return OK;
}

static jinja_text key_text(const char *key) { return (jinja_text){key, strlen(key)}; }

/* Next to calls an absent content is a None that prints as nothing; arguments that are text may be wanted as objects. */
static status mark_message(jinja_memory *memory, jinja_dict *message) {
  jinja_entry *calls = jinja_value_find(message, key_text("tool_calls"));
  if (!calls) return OK;
  for (size_t i = 0; i < calls->value.list->count; i++) {
    const jinja_entry *function = jinja_value_find(calls->value.list->items[i].dict, key_text("function"));
    jinja_entry *arguments = jinja_value_find(function->value.dict, key_text("arguments"));
    if (arguments->value.kind == JINJA_TEXT) arguments->value.marks = JINJA_CODED;
  }
  if (!jinja_value_find(message, key_text("content")))
    return jinja_value_put(memory, message, jinja_value_words("content"), (jinja_value){.kind = JINJA_NONE, .marks = JINJA_QUIET});
  return OK;
}

typedef struct variables {
  jinja_variable all[VARIABLES_MAX];
  size_t count;
} variables;

static status add_variable(variables *v, const char *name, jinja_value value) {
  if (v->count == VARIABLES_MAX) return FAIL(ERR_LIMIT, "chat_template_kwargs: more than %zu variables", v->count);
  v->all[v->count++] = (jinja_variable){name, value};
  return OK;
}

static status add_json(jinja_memory *memory, variables *v, const json_t *object) {
  const char *key;
  const json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    jinja_value made;
    if (json_is_null(value) || strcmp(key, "strftime_now") == 0) continue;
    TRY(jinja_value_of_json(memory, value, &made));
    TRY(add_variable(v, key, made));
  }
  return OK;
}

static status render_once(rendering *r, char **text, size_t *bytes) {
  variables v = {.count = 0};
  jinja_memory *memory = &r->memory;
  TRY(jinja_value_of_json(memory, r->messages, &r->shown));
  for (size_t i = 0; i < r->shown.list->count; i++) TRY(mark_message(memory, r->shown.list->items[i].dict));
  r->shown_tools = (jinja_value){.kind = JINJA_NONE};
  if (r->tools) TRY(jinja_value_of_json(memory, r->tools, &r->shown_tools));
  TRY(add_variable(&v, "messages", r->shown));
  TRY(add_variable(&v, "tools", r->shown_tools));
  TRY(add_variable(&v, "documents", (jinja_value){.kind = JINJA_NONE}));
  TRY(add_variable(&v, "add_generation_prompt", jinja_value_bool(r->add_generation_prompt)));
  TRY(add_json(memory, &v, r->chat->tokens));
  TRY(add_json(memory, &v, r->switches));
  return jinja_render(r->template, memory, v.all, v.count, r->today, text, bytes);
}

/* Renders with the arguments of calls as they were sent; if the template wants objects where texts were sent, once more with those. */
static status render_template(rendering *r, char **text, size_t *bytes) {
  status result = render_once(r, text, bytes);
  if (result == OK || !r->memory.wants_objects) return result;
  fail_clear();
  jinja_memory_close(&r->memory);
  TRY(chat_message_parse_arguments(r->messages));
  return render_once(r, text, bytes);
}

/* === The end of a continued message ========================================================================== */

/* Truncates the prompt at the tag; if the template stripped the tag's blank, also strips white space before the tag. */
static status truncate_end(const rendering *r, char *text, size_t *bytes) {
  const json_t *last = json_object_get(json_array_get(r->messages, json_array_size(r->messages) - 1), "content");
  const size_t tag_bytes = sizeof CONTINUE_TAG - 1;
  jinja_text whole = {text, *bytes}, bare_tag = {CONTINUE_TAG, tag_bytes - 1};
  jinja_text content = {json_string_value(last), json_string_length(last) - tag_bytes};
  content = jinja_text_strip(content, NULL, true, true);
  ptrdiff_t at = jinja_text_find_last(whole, bare_tag);
  bool is_whole = at >= 0 && *bytes - (size_t)at >= tag_bytes && memcmp(text + at, CONTINUE_TAG, tag_bytes) == 0;
  jinja_text before = {text, at >= 0 ? (size_t)at : 0}, bare = jinja_text_strip(before, NULL, false, true);
  if (at < 0 || !jinja_text_ends(bare, content))
    return FAIL(ERR_FORMAT, "messages[%zu]: the template changes this message: it cannot be continued", json_array_size(r->messages) - 1);
  *bytes = is_whole ? before.count : bare.count;
  text[*bytes] = 0;
  return OK;
}

/* === Rendering =============================================================================================== */

static status render(rendering *r, json_t *ignored, char **text, size_t *bytes) {
  bool tells_roles = jinja_mentions(r->template, "role");
  const chat_message_form form = {
    .takes_parts = jinja_mentions(r->template, "text"),
    .shows_developer = !tells_roles || jinja_mentions(r->template, "developer"),
    .shows_results = !tells_roles || jinja_mentions(r->template, "tool"),
  };
  char *made = NULL;
  size_t made_bytes = 0;
  TRY(chat_keys_check_parts(r->messages, ignored));
  TRY(chat_message_check(r->messages, &form, r->continues ? CONTINUE_TAG : NULL));
  status result = render_template(r, &made, &made_bytes);
  if (result == OK) result = chat_keys_check(r->messages, r->shown, ignored);
  if (result == OK && r->tools) result = chat_keys_check_tools(r->tools, r->shown_tools, ignored);
  if (result == OK && r->continues) result = truncate_end(r, made, &made_bytes);
  if (result == OK) {
    *text = made;
    *bytes = made_bytes;
  } else free(made);
  return result;
}

/* Templates of gpt-oss read a message's thought as its `thinking`; in others that is a switch. */
static const char *name_of_thought(const jinja_template *template) {
  bool is_member = jinja_mentions(template, "thinking") && !jinja_reads(template, "thinking");
  return is_member && !jinja_mentions(template, "reasoning_content") ? "thinking" : "reasoning_content";
}

status chat_render(const chat *self, const json_t *body, json_t *ignored, char **text, size_t *bytes) {
  rendering r = {.chat = self, .template = self->plain};
  if (!self->name) return FAIL(ERR_UNSUPPORTED, "%s", self->refusal);
  TRY(read_bool(body, "continue_final_message", false, &r.continues));
  TRY(read_bool(body, "add_generation_prompt", !r.continues, &r.add_generation_prompt));
  if (r.continues && r.add_generation_prompt)
    return FAIL(ERR_FORMAT, "continue_final_message: expected false, as add_generation_prompt is true");
  TRY(read_tools(body, &r));
  TRY(read_switches(body, &r));
  const json_t *messages = json_object_get(body, "messages");
  if (!json_is_array(messages) || json_array_size(messages) == 0)
    return FAIL(ERR_FORMAT, "messages: expected a list of at least one message");
  if (!(r.messages = chat_keys_copy(messages, name_of_thought(r.template)))) return FAIL(ERR_LIMIT, "messages: no memory");
  status result = render(&r, ignored, text, bytes);
  jinja_memory_close(&r.memory);
  json_decref(r.messages);
  return result;
}
