/* chat/message.c - see chat/message.h. Checks run once over all messages; accessors rely on them. */
#include "chat/message.h"
#include "base/json_text.h"
#include <stdlib.h>
#include <string.h>

static const char *const role_names[] = {"system", "user", "assistant", "tool", "developer"};
static const char *const type_names[] = {"an object", "a list", "text", "an integer", "a number", "true", "false", "null"};

static const char *type_name(const json_t *value) { return value ? type_names[json_typeof(value)] : "nothing"; }

chat_span chat_message_span(const json_t *string) { return (chat_span){json_string_value(string), json_string_length(string)}; }

/* === Checking ================================================================================================ */

static status join_parts(json_t *message, size_t index, const json_t *parts, const char *between) {
  chat_text joined = {0};
  for (size_t i = 0; i < json_array_size(parts); i++) {
    const json_t *part = json_array_get(parts, i), *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
    if (!json_text_is(type, "text") || !json_is_string(text)) {
      chat_text_close(&joined);
      return json_text_is(type, "text")
                 ? FAIL(ERR_FORMAT, "messages[%zu].content[%zu].text: expected text, found %s", index, i, type_name(text))
                 : FAIL(ERR_UNSUPPORTED, "messages[%zu].content[%zu].type: expected a part {\"type\": \"text\", \"text\": ...}; nothing "
                        "else is supported", index, i);
    }
    if (i) chat_text_say(&joined, between);
    chat_text_put(&joined, chat_message_span(text));
  }
  char *bytes = NULL;
  size_t count = 0;
  TRY(chat_text_take(&joined, &bytes, &count));
  int failed = json_object_set_new(message, "content", json_stringn(bytes, count));
  free(bytes);
  return failed ? FAIL(ERR_LIMIT, "messages[%zu]: no memory", index) : OK;
}

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

static status check_type(const json_t *message, size_t index, const char *key, bool is_good, const char *expected) {
  const json_t *value = json_object_get(message, key);
  if (!value || is_good) return OK;
  return FAIL(ERR_FORMAT, "messages[%zu].%s: expected %s, found %s", index, key, expected, type_name(value));
}

static status check_one(json_t *message, size_t index, const char *between) {
  if (!json_is_object(message)) return FAIL(ERR_FORMAT, "messages[%zu]: expected an object, found %s", index, type_name(message));
  const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
  const json_t *calls = json_object_get(message, "tool_calls");
  static const char *const texts[] = {"name", "reasoning_content", "tool_call_id"};
  if (!json_is_string(role)) return FAIL(ERR_FORMAT, "messages[%zu].role: expected text, found %s", index, type_name(role));
  size_t known = 0;
  while (known < ARRAY_LEN(role_names) && !json_text_is(role, role_names[known])) known++;
  if (known == ARRAY_LEN(role_names))
    return FAIL(ERR_FORMAT, "messages[%zu].role: expected system, user, assistant, tool or developer, found another", index);
  for (size_t i = 0; i < ARRAY_LEN(texts); i++)
    TRY(check_type(message, index, texts[i], json_is_string(json_object_get(message, texts[i])), "text"));
  TRY(check_type(message, index, "prefix", json_is_boolean(json_object_get(message, "prefix")), "true or false"));
  if (calls) {
    if (known != CHAT_ASSISTANT) return FAIL(ERR_FORMAT, "messages[%zu].tool_calls: only an assistant's message may have them", index);
    TRY(check_calls(index, calls));
  }
  if (json_is_array(content)) return join_parts(message, index, content, between);
  if (content ? !json_is_string(content) : !calls)
    return FAIL(ERR_FORMAT, "messages[%zu].content: expected text or a list of parts, found %s", index, type_name(content));
  return OK;
}

status chat_message_check(json_t *messages, const char *between) {
  size_t count = json_array_size(messages);
  if (count > CHAT_MESSAGES_MAX) return FAIL(ERR_LIMIT, "messages: expected at most %u, found %zu", CHAT_MESSAGES_MAX, count);
  for (size_t i = 0; i < count; i++) TRY(check_one(json_array_get(messages, i), i, between));
  return OK;
}

/* === Fields ================================================================================================== */

const json_t *chat_message_get(const chat_request *request, size_t index, const char *key) {
  return json_object_get(json_array_get(request->messages, index), key);
}

chat_role chat_message_role(const chat_request *request, size_t index) {
  const char *role = json_string_value(chat_message_get(request, index, "role"));
  unsigned known = 0;
  while (strcmp(role, role_names[known]) != 0) known++;
  return (chat_role)known;
}

status chat_message_text(const chat_request *request, size_t index, const char *key, chat_span *out) {
  const json_t *value = chat_message_get(request, index, key);
  if (!json_is_string(value)) return FAIL(ERR_FORMAT, "messages[%zu].%s: expected text, found %s", index, key, type_name(value));
  *out = chat_message_span(value);
  return OK;
}

status chat_message_shown(const chat_request *request, size_t index, const char *key, chat_span *out) {
  if (chat_message_get(request, index, key)) return chat_message_text(request, index, key, out);
  *out = (chat_span){"", 0};
  return OK;
}

status chat_message_print(const chat_request *request, size_t index, const char *key, chat_text *out) {
  chat_span span = {0};
  TRY(chat_message_shown(request, index, key, &span));
  chat_text_put(out, span);
  return OK;
}

/* === Calls =================================================================================================== */

size_t chat_message_calls(const chat_request *request, size_t index) {
  return json_array_size(chat_message_get(request, index, "tool_calls"));
}

const json_t *chat_message_call(const chat_request *request, size_t index, size_t call) {
  return json_array_get(chat_message_get(request, index, "tool_calls"), call);
}

static const json_t *function_of(const chat_request *request, size_t index, size_t call) {
  return json_object_get(chat_message_call(request, index, call), "function");
}

chat_span chat_message_call_name(const chat_request *request, size_t index, size_t call) {
  return chat_message_span(json_object_get(function_of(request, index, call), "name"));
}

const json_t *chat_message_call_arguments(const chat_request *request, size_t index, size_t call) {
  return json_object_get(function_of(request, index, call), "arguments");
}

status chat_message_call_text(const chat_request *request, size_t index, size_t call, chat_span *out) {
  const json_t *arguments = chat_message_call_arguments(request, index, call);
  if (!json_is_string(arguments))
    return FAIL(ERR_FORMAT, "messages[%zu].tool_calls[%zu].function.arguments: expected JSON as text, found an object", index, call);
  *out = chat_message_span(arguments);
  return OK;
}

status chat_message_call_object(const chat_request *request, size_t index, size_t call, json_t **out) {
  const json_t *arguments = chat_message_call_arguments(request, index, call);
  if (json_is_object(arguments)) {
    *out = json_incref((json_t *)arguments);
    return OK;
  }
  json_error_t error = {.line = 0};
  json_t *parsed = json_text_load(json_string_value(arguments), json_string_length(arguments), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                                  &error);
  if (json_is_object(parsed)) {
    *out = parsed;
    return OK;
  }
  json_decref(parsed);
  return FAIL(json_text_fault(&error, ERR_FORMAT),
              "messages[%zu].tool_calls[%zu].function.arguments: expected the text of a JSON object", index, call);
}
