/* chat/message.c - see chat/message.h. */
#include "chat/message.h"
#include <stdlib.h>
#include <string.h>
#include "base/json_text.h"
#include "base/strbuf.h"

static const char *type_name(const json_t *value) {
  static const char *const names[] = {"an object", "a list", "text", "an integer", "a number", "true", "false", "null"};
  return value ? names[json_typeof(value)] : "nothing";
}

/* === Contents ================================================================================================ */

static status check_parts(size_t index, const json_t *parts) {
  for (size_t i = 0; i < json_array_size(parts); i++) {
    const json_t *part = json_array_get(parts, i), *text = json_object_get(part, "text");
    if (!json_text_is(json_object_get(part, "type"), "text"))
      return FAIL(ERR_UNSUPPORTED, "messages[%zu].content[%zu].type: expected a part {\"type\": \"text\", \"text\": ...}; nothing else is "
                  "supported", index, i);
    if (!json_is_string(text))
      return FAIL(ERR_FORMAT, "messages[%zu].content[%zu].text: expected text, found %s", index, i, type_name(text));
  }
  return OK;
}

static status set_content(json_t *message, size_t index, strbuf *text) {
  int failed = text->failed || json_object_set_new(message, "content", json_stringn(text->bytes ? text->bytes : "", text->count));
  strbuf_close(text);
  return failed ? FAIL(ERR_LIMIT, "messages[%zu]: no memory", index) : OK;
}

static status join_parts(json_t *message, size_t index, const json_t *parts, const char *between) {
  strbuf joined = {0};
  for (size_t i = 0; i < json_array_size(parts); i++) {
    const json_t *text = json_object_get(json_array_get(parts, i), "text");
    if (i) strbuf_adds(&joined, between);
    strbuf_add(&joined, json_string_value(text), json_string_length(text));
  }
  return set_content(message, index, &joined);
}

static status append_tag(json_t *message, size_t index, const char *tag) {
  const json_t *content = json_object_get(message, "content");
  strbuf marked = {0};
  if (!json_is_string(content)) return FAIL(ERR_FORMAT, "messages[%zu].content: expected text, found %s", index, type_name(content));
  strbuf_add(&marked, json_string_value(content), json_string_length(content));
  strbuf_adds(&marked, tag);
  return set_content(message, index, &marked);
}

/* === Messages ================================================================================================ */

static status check_calls(size_t index, const json_t *calls) {
  if (!json_is_array(calls)) return FAIL(ERR_FORMAT, "messages[%zu].tool_calls: expected a list, found %s", index, type_name(calls));
  for (size_t i = 0; i < json_array_size(calls); i++) {
    const json_t *function = json_object_get(json_array_get(calls, i), "function");
    const json_t *name = json_object_get(function, "name"), *arguments = json_object_get(function, "arguments");
    if (!json_is_string(name))
      return FAIL(ERR_FORMAT, "messages[%zu].tool_calls[%zu].function.name: expected text, found %s", index, i, type_name(name));
    if (!json_is_string(arguments) && !json_is_object(arguments))
      return FAIL(ERR_FORMAT, "messages[%zu].tool_calls[%zu].function.arguments: expected JSON as text or an object, found %s", index, i,
                  type_name(arguments));
  }
  return OK;
}

static status check_role(size_t index, const json_t *role, const chat_message_form *form) {
  static const char *const names[] = {"system", "user", "assistant", "tool", "developer"};
  if (!json_is_string(role)) return FAIL(ERR_FORMAT, "messages[%zu].role: expected text, found %s", index, type_name(role));
  size_t known = 0;
  while (known < ARRAY_LEN(names) && !json_text_is(role, names[known])) known++;
  if (known == ARRAY_LEN(names))
    return FAIL(ERR_FORMAT, "messages[%zu].role: expected system, user, assistant, tool or developer, found another", index);
  if (json_text_is(role, "developer") && !form->shows_developer)
    return FAIL(ERR_FORMAT, "messages[%zu].role: this model's template has no developer; hint: use system", index);
  if (json_text_is(role, "tool") && !form->shows_results)
    return FAIL(ERR_UNSUPPORTED, "messages[%zu]: this model's template shows no calls of tools", index);
  return OK;
}

static status check_type(const json_t *message, size_t index, const char *key, bool is_good, const char *expected) {
  const json_t *value = json_object_get(message, key);
  if (!value || is_good) return OK;
  return FAIL(ERR_FORMAT, "messages[%zu].%s: expected %s, found %s", index, key, expected, type_name(value));
}

static status check_one(json_t *message, size_t index, const chat_message_form *form, const char *tag) {
  if (!json_is_object(message)) return FAIL(ERR_FORMAT, "messages[%zu]: expected an object, found %s", index, type_name(message));
  const json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls");
  const json_t *role = json_object_get(message, "role");
  static const char *const texts[] = {"name", "reasoning_content", "tool_call_id"};
  TRY(check_role(index, role, form));
  for (size_t i = 0; i < ARRAY_LEN(texts); i++)
    TRY(check_type(message, index, texts[i], json_is_string(json_object_get(message, texts[i])), "text"));
  TRY(check_type(message, index, "prefix", json_is_boolean(json_object_get(message, "prefix")), "true or false"));
  if (calls && !json_text_is(role, "assistant"))
    return FAIL(ERR_FORMAT, "messages[%zu].tool_calls: only an assistant's message may have them", index);
  if (calls) TRY(check_calls(index, calls));
  if (json_is_array(content)) {
    TRY(check_parts(index, content));
    bool is_kept = form->takes_parts && !calls && !tag && !json_text_is(role, "tool");
    if (!is_kept) TRY(join_parts(message, index, content, form->takes_parts ? "" : "\n"));
  } else if (content ? !json_is_string(content) : !calls)
    return FAIL(ERR_FORMAT, "messages[%zu].content: expected text or a list of parts, found %s", index, type_name(content));
  return tag ? append_tag(message, index, tag) : OK;
}

status chat_message_check(json_t *messages, const chat_message_form *form, const char *tag) {
  size_t count = json_array_size(messages);
  if (count > CHAT_MESSAGES_MAX) return FAIL(ERR_LIMIT, "messages: expected at most %u, found %zu", CHAT_MESSAGES_MAX, count);
  for (size_t i = 0; i < count; i++) TRY(check_one(json_array_get(messages, i), i, form, i + 1 == count ? tag : NULL));
  return OK;
}

/* === Arguments =============================================================================================== */

static status parse_one(size_t index, size_t call, json_t *function) {
  const json_t *arguments = json_object_get(function, "arguments");
  json_error_t error = {.line = 0};
  if (!json_is_string(arguments)) return OK;
  json_t *parsed = json_text_load(json_string_value(arguments), json_string_length(arguments), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                                  &error);
  if (json_is_object(parsed))
    return json_object_set_new(function, "arguments", parsed) ? FAIL(ERR_LIMIT, "messages[%zu]: no memory", index) : OK;
  json_decref(parsed);
  return FAIL(json_text_fault(&error, ERR_FORMAT),
              "messages[%zu].tool_calls[%zu].function.arguments: expected the text of a JSON object", index, call);
}

status chat_message_parse_arguments(json_t *messages) {
  for (size_t i = 0; i < json_array_size(messages); i++) {
    const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
    for (size_t k = 0; k < json_array_size(calls); k++) TRY(parse_one(i, k, json_object_get(json_array_get(calls, k), "function")));
  }
  return OK;
}
