/* serve/info.c - see serve/info.h. One function per endpoint. */
#include "serve/info.h"
#include "serve/router.h"
#include "base/json_text.h"
#include "base/input_file.h"
#include "base/special_file.h"
#include "serve/tokens.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_BYTES_MAX (16u << 20)
#define PATH_BYTES 4096

/* === Models ================================================================================================================= */

static void put_model(const serve_model *m, serve_text *out) {
  strbuf_addf(out, "{\"id\":");
  serve_text_string(out, m->name, strlen(m->name));
  strbuf_addf(out, ",\"object\":\"model\",\"created\":%" PRIu64 ",\"owned_by\":\"verbatim\",\"root\":", m->created);
  serve_text_string(out, m->name, strlen(m->name));
  strbuf_addf(out, ",\"parent\":null,\"max_model_len\":%" PRIu32 "}", m->info->max_len);
}

void serve_info_models(const serve_model *m, serve_text *out) {
  strbuf_addf(out, "{\"object\":\"list\",\"data\":[");
  put_model(m, out);
  strbuf_addf(out, "]}");
}

bool serve_info_model(const serve_model *m, const char *name, serve_text *out, serve_fault *fault) {
  if (strcmp(name, m->name) == 0) {
    put_model(m, out);
    return true;
  }
  (void)serve_fields_wrong(fault, "model", "model_not_found", "unknown model \"%.100s\"; this server has \"%.100s\"", name,
                           m->name);
  fault->http_status = 404;
  return false;
}

void serve_info_version(const serve_model *m, serve_text *out) {
  const struct { const char *key; const uint8_t *digest; } names[] = {
    {"numerics_id", m->info->numerics_id}, {"plan", m->info->plan_digest}, {"weights", m->info->weights_digest},
    {"tokenizer", m->info->tokenizer_digest}, {"config", m->info->config_digest}};
  strbuf_addf(out, "{\"version\":\"%s\"", VERBATIM_VERSION);
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    strbuf_addf(out, ",\"%s\":", names[i].key);
    serve_text_digest(out, names[i].digest);
  }
  strbuf_addf(out, ",\"system_fingerprint\":");
  serve_text_string(out, m->fingerprint, strlen(m->fingerprint));
  strbuf_addf(out, ",\"device\":");
  serve_text_string(out, m->info->device, strlen(m->info->device));
  strbuf_addf(out, "}");
}

/* What a browser or a new user sees first. */
void serve_info_root(const serve_model *m, serve_text *out) {
  const serve_route *route;
  strbuf_addf(out, "{\"name\":\"verbatim\",\"version\":\"%s\",\"model\":", VERBATIM_VERSION);
  serve_text_string(out, m->name, strlen(m->name));
  strbuf_addf(out, ",\"numerics_id\":");
  serve_text_digest(out, m->info->numerics_id);
  strbuf_addf(out, ",\"max_model_len\":%u,\"endpoints\":[", m->info->max_len);
  for (uint32_t i = 0; (route = serve_router_at(i)) != NULL; i++)
    strbuf_addf(out, "%s\"%s %s%s\"", i ? "," : "", route->is_post ? "POST" : "GET", route->path, route->is_prefix ? "NAME" : "");
  strbuf_adds(out, "]}");
}

/* === Tokenizer ============================================================================================================== */

static bool no_memory(serve_fault *fault) {
  *fault = (serve_fault){.http_status = 500, .type = "server_error", .code = "out_of_memory", .message = "no memory for the reply"};
  return false;
}

/* Restores out if the reply is incomplete. */
static bool close_reply(serve_text *out, size_t before, bool is_sound, serve_fault *fault) {
  if (is_sound && !out->failed) return true;
  if (is_sound) (void)no_memory(fault);
  out->count = before;
  out->failed = false;
  return false;
}

/* Reads the switches; the other fields are those of a prompt, or of a chat. */
static bool read_tokenize(const json_t *body, bool *add_special, bool *return_strings, serve_fault *fault) {
  static const char *const of_text[] = {"model", "prompt", "add_special_tokens", "return_token_strs", NULL};
  static const char *const of_chat[] = {"model", "messages", "add_special_tokens", "return_token_strs", "tools", "tool_choice",
                                        "add_generation_prompt", "continue_final_message", "chat_template_kwargs", NULL};
  bool is_chat = json_object_get(body, "messages") != NULL;
  *add_special = !is_chat;
  *return_strings = false;
  if (!serve_fields_only(body, "", is_chat ? of_chat : of_text, fault)) return false;
  return serve_fields_bool(body, "", "add_special_tokens", add_special, fault) &&
         serve_fields_bool(body, "", "return_token_strs", return_strings, fault);
}

/* ignored: the paths of a conversation's fields without effect; NULL: it was no conversation. */
static void put_tokens(const serve_model *m, const int32_t *ids, size_t count, bool return_strings, const json_t *ignored,
                       serve_text *out) {
  strbuf_addf(out, "{\"count\":%zu,\"max_model_len\":%" PRIu32 ",\"tokens\":", count, m->info->max_len);
  serve_text_ids(out, ids, count);
  strbuf_addf(out, return_strings ? ",\"token_strs\":[" : ",\"token_strs\":null");
  for (size_t i = 0; i < count && return_strings; i++) {
    if (i) strbuf_addf(out, ",");
    serve_tokens_name(m->tokenizer, ids[i], false, out);
  }
  if (return_strings) strbuf_addf(out, "]");
  if (ignored) strbuf_addf(out, ",\"ignored\":");
  if (ignored) serve_text_json(out, ignored);
  strbuf_addf(out, "}");
}

static bool tokenize(const serve_model *m, const json_t *body, serve_text *out, serve_fault *fault) {
  serve_prompt prompt = {0};
  bool add_special, return_strings;
  const json_t *text = json_object_get(body, "prompt");
  if (!serve_request_check_model(m, body, fault) || !read_tokenize(body, &add_special, &return_strings, fault)) return false;
  bool is_chat = json_object_get(body, "messages") != NULL;
  if (!is_chat && !json_is_string(text))
    return serve_fields_wrong(fault, "prompt", text ? "invalid_value" : "missing_required_parameter", "prompt: expected a text");
  json_t *ignored = is_chat ? json_array() : NULL;
  bool is_read = is_chat ? serve_request_encode_chat(m, body, add_special, ignored, &prompt, fault)
                         : serve_request_encode(m, json_string_value(text), json_string_length(text), add_special, "prompt", &prompt,
                                                fault);
  if (is_read) put_tokens(m, prompt.ids, prompt.count, return_strings, ignored, out);
  json_decref(ignored);
  free(prompt.ids);
  return is_read;
}

bool serve_info_tokenize(const serve_model *m, const char *body, size_t bytes, serve_text *out, serve_fault *fault) {
  json_t *object = NULL;
  size_t before = out->count;
  bool is_sound = serve_fields_parse(body, bytes, &object, fault) && tokenize(m, object, out, fault);
  json_decref(object);
  return close_reply(out, before, is_sound, fault);
}

/* Special tokens are spelled out, so that encoding the text again gives the same tokens. */
static bool detokenize(const serve_model *m, const json_t *body, serve_text *out, serve_fault *fault) {
  static const char *const names[] = {"model", "tokens", NULL};
  const json_t *list = json_object_get(body, "tokens");
  serve_text text = {0};
  detokenizer decoder = {0};
  if (!serve_request_check_model(m, body, fault) || !serve_fields_only(body, "", names, fault)) return false;
  if (!json_is_array(list))
    return serve_fields_wrong(fault, "tokens", list ? "invalid_value" : "missing_required_parameter",
                              "tokens: expected a list of token ids");
  int32_t *ids = malloc((json_array_size(list) + 1) * sizeof *ids);
  if (!ids) return no_memory(fault);
  bool is_sound = serve_fields_ids("tokens", list, m->info->vocab, ids, fault);
  for (size_t i = 0; i < json_array_size(list) && is_sound; i++) serve_tokens_text(m->tokenizer, &decoder, ids[i], true, &text);
  serve_tokens_flush(&decoder, &text);
  strbuf_addf(out, "{\"prompt\":");
  serve_text_string(out, text.bytes, text.count);
  strbuf_addf(out, "}");
  out->failed |= text.failed;
  free(ids);
  strbuf_close(&text);
  return is_sound;
}

bool serve_info_detokenize(const serve_model *m, const char *body, size_t bytes, serve_text *out, serve_fault *fault) {
  json_t *object = NULL;
  size_t before = out->count;
  bool is_sound = serve_fields_parse(body, bytes, &object, fault) && detokenize(m, object, out, fault);
  json_decref(object);
  return close_reply(out, before, is_sound, fault);
}

/* === tokenizer_info ========================================================================================================= */

/* A file's text, NUL-terminated, which the caller frees. If there is no file: OK, and *text is NULL. */
static status read_file(const char *folder, const char *name, char **text, size_t *bytes) {
  char path[PATH_BYTES];
  *text = NULL;
  if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) return FAIL(ERR_USAGE, "%s: the path is too long", folder);
  if (!special_file_is_there(path)) return OK;
  FILE *file;
  TRY(input_file_check(path, INPUT_TOKENIZER));
  TRY(input_file_open_stream(path, INPUT_TOKENIZER, &file));
  char *read = malloc(CONFIG_BYTES_MAX + 1);
  *bytes = read ? fread(read, 1, CONFIG_BYTES_MAX + 1, file) : 0;
  bool failed = ferror(file) != 0;
  fclose(file);
  status result = !read ? FAIL(ERR_LIMIT, "%s: no memory", path) : failed ? FAIL(ERR_IO, "%s: cannot be read", path) : OK;
  if (result == OK && *bytes > CONFIG_BYTES_MAX) result = FAIL(ERR_LIMIT, "%s: more than %u bytes", path, CONFIG_BYTES_MAX);
  if (result != OK) {
    free(read);
    return result;
  }
  read[*bytes] = 0;
  *text = read;
  return OK;
}

/* Replaces {"content": TEXT, ...} by TEXT. */
static int flatten(json_t *config) {
  const char *key;
  json_t *value;
  void *next;
  json_object_foreach_safe(config, next, key, value) {
    json_t *content = json_object_get(value, "content");
    size_t bytes = strlen(key);
    bool is_token = bytes > 6 && strcmp(key + bytes - 6, "_token") == 0 && json_is_string(content);
    if (is_token && json_object_set(config, key, content) != 0) return -1;
  }
  return 0;
}

/* Sets the token's text, or null. */
static int set_token(const serve_model *m, json_t *config, const char *key, int32_t id) {
  size_t bytes = 0;
  const uint8_t *text = id >= 0 ? tokenizer_token_bytes(m->tokenizer, id, &bytes) : NULL;
  if (json_is_string(json_object_get(config, key))) return 0;
  return json_object_set_new(config, key, text ? json_stringn((const char *)text, bytes) : json_null());
}

static int complete(const serve_model *m, json_t *config, const char *chat_template, size_t template_bytes) {
  int32_t eos = tokenizer_eos(m->tokenizer);
  if (eos < 0 && m->info->eos_count) eos = (int32_t)m->info->eos[0];
  int failed = flatten(config);
  failed |= set_token(m, config, "bos_token", tokenizer_bos(m->tokenizer));
  failed |= set_token(m, config, "eos_token", eos);
  failed |= set_token(m, config, "pad_token", -1);
  const char *given = m->chat ? chat_given(m->chat) : NULL;
  if (given) failed |= json_object_set_new(config, "chat_template", json_string(given));
  else if (chat_template) failed |= json_object_set_new(config, "chat_template", json_stringn(chat_template, template_bytes));
  else if (!json_object_get(config, "chat_template")) failed |= json_object_set_new(config, "chat_template", json_null());
  failed |= json_object_set_new(config, "vocab_size", json_integer(m->info->vocab));
  return failed | json_object_set_new(config, "max_model_len", json_integer(m->info->max_len));
}

status serve_info_tokenizer(const serve_model *m, const char *model_dir, serve_text *out) {
  char *text = NULL, *chat_template = NULL;
  size_t bytes = 0, template_bytes = 0;
  json_error_t error = {.line = 0};
  TRY(read_file(model_dir, "tokenizer_config.json", &text, &bytes));
  json_t *config = text ? json_text_load_file(text, bytes, 0, &error) : json_object();
  free(text);
  if (!json_is_object(config)) {
    json_decref(config);
    return FAIL(json_text_fault(&error, ERR_FORMAT), "%s/tokenizer_config.json: expected a JSON object: %s", model_dir, error.text);
  }
  status result = read_file(model_dir, "chat_template.jinja", &chat_template, &template_bytes);
  if (result == OK && complete(m, config, chat_template, template_bytes) != 0)
    result = FAIL(ERR_FORMAT, "%s: a special token or chat_template.jinja is not UTF-8", model_dir);
  if (result == OK) serve_text_json(out, config);
  if (result == OK && out->failed) result = FAIL(ERR_LIMIT, "tokenizer_info: no memory");
  free(chat_template);
  json_decref(config);
  return result;
}
