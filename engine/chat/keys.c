/* chat/keys.c - see chat/keys.h. One table for each kind of object. */
#include "chat/keys.h"
#include "base/json_text.h"
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 96
#define SYSTEM 1u
#define USER 2u
#define ASSISTANT 4u
#define TOOL 8u
#define DEVELOPER 16u
#define OTHERS (SYSTEM | USER | DEVELOPER)
#define ANY (OTHERS | ASSISTANT | TOOL)
#define ALWAYS (~0u)

typedef enum verdict { REFUSED, IGNORED } verdict; /* of a key that is not shown */

typedef struct key {
  const char *name;
  unsigned roles;      /* of the messages that may have it; of other objects: ANY */
  unsigned shows;      /* any of these bits: the template shows it */
  verdict otherwise;
  const char *neutral; /* a text that asks for nothing; NULL: only "" does */
  const char *hint;
} key;

static const key of_messages[] = {
  {"role", ANY, ALWAYS, REFUSED, NULL, NULL},
  {"content", ANY, ALWAYS, REFUSED, NULL, NULL},
  {"tool_calls", ANY, ALWAYS, REFUSED, NULL, NULL}, /* message.c checks the role */
  {"tool_call_id", TOOL, CHAT_SHOWS_RESULT_ID, IGNORED, NULL, NULL},
  {"name", TOOL, CHAT_SHOWS_NAME, IGNORED, NULL, NULL},
  {"name", OTHERS | ASSISTANT, CHAT_SHOWS_NAME, REFUSED, NULL, "write it into the content"},
  {"reasoning_content", ASSISTANT, CHAT_SHOWS_REASONING, REFUSED, NULL, "leave it out"},
  {"prefix", ASSISTANT, CHAT_SHOWS_PREFIX, REFUSED, NULL, "continue_final_message continues the last message"},
  {"partial", ASSISTANT, 0, REFUSED, NULL, "continue_final_message continues the last message"},
  {"reasoning", ASSISTANT, 0, REFUSED, NULL, "is \"reasoning_content\" meant?"},
  {"cache_control", ANY, 0, IGNORED, NULL, NULL},
  {"refusal", ASSISTANT, 0, REFUSED, NULL, "write it into the content"},
  {"annotations", ASSISTANT, 0, REFUSED, NULL, "leave it out"},
  {"audio", ASSISTANT, 0, REFUSED, NULL, "leave it out"},
  {"function_call", ASSISTANT, 0, REFUSED, NULL, "use tool_calls"},
};
static const key of_parts[] = {
  {"type", ANY, ALWAYS, REFUSED, NULL, NULL},
  {"text", ANY, ALWAYS, REFUSED, NULL, NULL},
  {"cache_control", ANY, 0, IGNORED, NULL, NULL},
  {"annotations", ANY, 0, REFUSED, NULL, "leave it out"},
};
static const key of_calls[] = {
  {"function", ANY, ALWAYS, REFUSED, NULL, NULL},
  {"id", ANY, CHAT_SHOWS_CALL_ID, IGNORED, NULL, NULL},
  {"type", ANY, CHAT_SHOWS_CALL_TYPE, REFUSED, "function", "only functions can be called"},
  {"index", ANY, 0, IGNORED, NULL, NULL},
};
static const key of_called[] = {
  {"name", ANY, ALWAYS, REFUSED, NULL, NULL},
  {"arguments", ANY, ALWAYS, REFUSED, NULL, NULL},
};
static const key of_tools[] = {
  {"function", ANY, ALWAYS, REFUSED, NULL, NULL},
  {"type", ANY, CHAT_SHOWS_WHOLE_TOOLS, REFUSED, "function", "only functions can be called"},
  {"cache_control", ANY, CHAT_SHOWS_WHOLE_TOOLS, IGNORED, NULL, NULL},
};

static bool is_empty(const json_t *value, const char *neutral) {
  if (neutral && json_text_is(value, neutral)) return true;
  return json_is_false(value) || (json_is_string(value) && json_string_length(value) == 0) ||
         (json_is_array(value) && json_array_size(value) == 0) || (json_is_object(value) && json_object_size(value) == 0);
}

static status ignore(const char *path, const char *name, json_t *ignored) {
  char whole[2 * PATH_BYTES];
  if (!ignored) return FAIL(ERR_UNSUPPORTED, "%s.%s: this model's template does not show it; hint: leave it out", path, name);
  snprintf(whole, sizeof whole, "%s.%s", path, name);
  return json_array_append_new(ignored, json_string(whole)) ? FAIL(ERR_LIMIT, "messages: no memory") : OK;
}

/* Judges one member of the object at this path. */
static status judge(const char *path, const key *keys, size_t count, unsigned role, unsigned shows, const char *name, const json_t *value,
                    json_t *ignored) {
  const key *found = NULL;
  for (size_t i = 0; i < count && (!found || !(found->roles & role)); i++)
    if (strcmp(keys[i].name, name) == 0) found = &keys[i];
  if (json_is_null(value)) return OK;
  if (!found) return FAIL(ERR_USAGE, "%s.%.64s: unknown key; hint: SERVING.md lists those of a conversation", path, name);
  if ((found->shows & shows) && (found->roles & role)) return OK;
  if (found->shows == ALWAYS || is_empty(value, found->neutral)) return OK;
  if (!(found->roles & role)) return FAIL(ERR_UNSUPPORTED, "%s.%s: a message of this role has none; hint: leave it out", path, name);
  if (found->otherwise == IGNORED) return ignore(path, name, ignored);
  return FAIL(ERR_UNSUPPORTED, "%s.%s: this model's template does not show it; hint: %s", path, name, found->hint);
}

static status judge_all(const char *path, const key *keys, size_t count, unsigned role, unsigned shows, const json_t *object,
                        json_t *ignored) {
  const char *name;
  const json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, name, value)
    TRY(judge(path, keys, count, role, shows, name, value, ignored));
  return OK;
}

#define JUDGE(path, keys, role, object) judge_all(path, keys, ARRAY_LEN(keys), role, shows, object, ignored)

/* === Messages ================================================================================================ */

static unsigned role_of(const json_t *message) {
  static const char *const names[] = {"system", "user", "assistant", "tool", "developer"};
  const json_t *role = json_object_get(message, "role");
  for (unsigned i = 0; i < ARRAY_LEN(names); i++)
    if (json_text_is(role, names[i])) return 1u << i;
  return 0;
}

static status check_message(size_t index, const json_t *message, unsigned shows, json_t *ignored) {
  const json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls");
  char path[PATH_BYTES];
  unsigned role = role_of(message);
  if (!role) return OK; /* message.c says so */
  snprintf(path, sizeof path, "messages[%zu]", index);
  TRY(JUDGE(path, of_messages, role, message));
  for (size_t i = 0; i < json_array_size(content); i++) {
    snprintf(path, sizeof path, "messages[%zu].content[%zu]", index, i);
    if (json_text_is(json_object_get(json_array_get(content, i), "type"), "text"))
      TRY(JUDGE(path, of_parts, ANY, json_array_get(content, i)));
  }
  for (size_t i = 0; i < json_array_size(calls); i++) {
    const json_t *call = json_array_get(calls, i);
    snprintf(path, sizeof path, "messages[%zu].tool_calls[%zu]", index, i);
    TRY(JUDGE(path, of_calls, ANY, call));
    snprintf(path, sizeof path, "messages[%zu].tool_calls[%zu].function", index, i);
    TRY(JUDGE(path, of_called, ANY, json_object_get(call, "function")));
  }
  return OK;
}

/* Without ids a template gives the first result to the first call, and so on: refuses a result that names another call. */
static status check_order(size_t index, const json_t *result, const json_t *calls, size_t order) {
  const json_t *id = json_object_get(result, "tool_call_id");
  const json_t *expected = json_object_get(json_array_get(calls, order), "id");
  if (!json_string_length(id) || json_equal(id, expected)) return OK;
  for (size_t i = 0; i < json_array_size(calls); i++)
    if (json_equal(id, json_object_get(json_array_get(calls, i), "id")))
      return FAIL(ERR_UNSUPPORTED, "messages[%zu].tool_call_id: this model's template shows results by the order of their calls, and this "
                  "one belongs to call %zu; hint: send it as result %zu", index, i, i);
  return OK;
}

status chat_keys_check(const json_t *messages, unsigned shows, json_t *ignored) {
  const json_t *calls = NULL;
  size_t order = 0;
  for (size_t i = 0; i < json_array_size(messages); i++) {
    const json_t *message = json_array_get(messages, i);
    bool is_result = role_of(message) == TOOL;
    if (!is_result) calls = json_object_get(message, "tool_calls"), order = 0;
    else if (!(shows & CHAT_SHOWS_RESULT_ID)) TRY(check_order(i, message, calls, order++));
    TRY(check_message(i, message, shows, ignored));
  }
  return OK;
}

/* === Tools =================================================================================================== */

/* A template that shows functions only shows the whole tool if that has none. */
status chat_keys_check_tools(const json_t *tools, unsigned shows, json_t *ignored) {
  for (size_t i = 0; i < json_array_size(tools) && !(shows & CHAT_SHOWS_WHOLE_TOOLS); i++) {
    const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
    const json_t *strict = json_object_get(function ? function : tool, "strict");
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "tools[%zu]", i);
    if (function) TRY(JUDGE(path, of_tools, ANY, tool));
    snprintf(path, sizeof path, function ? "tools[%zu].function" : "tools[%zu]", i);
    if (!(shows & CHAT_SHOWS_STRICT) && strict && !json_is_null(strict) && !json_is_false(strict)) TRY(ignore(path, "strict", ignored));
  }
  return OK;
}

/* === Copies ================================================================================================== */

static json_t *copy_call(const json_t *call) {
  json_t *copy = json_text_given(call), *function = json_object_get(copy, "function");
  if (!copy || !json_is_object(function)) return copy;
  if (json_object_set_new(copy, "function", json_text_given(function)) == 0) return copy;
  json_decref(copy);
  return NULL;
}

static json_t *copy_list(const json_t *list, json_t *(*copy_one)(const json_t *)) {
  json_t *copy = json_array();
  for (size_t i = 0; copy && i < json_array_size(list); i++)
    if (json_array_append_new(copy, copy_one(json_array_get(list, i)))) {
      json_decref(copy);
      return NULL;
    }
  return copy;
}

static json_t *copy_message(const json_t *message) {
  json_t *copy = json_text_given(message), *calls = json_object_get(copy, "tool_calls");
  if (!copy || !json_is_array(calls)) return copy;
  int failed = json_array_size(calls) ? json_object_set_new(copy, "tool_calls", copy_list(calls, copy_call))
                                      : json_object_del(copy, "tool_calls");
  if (!failed) return copy;
  json_decref(copy);
  return NULL;
}

json_t *chat_keys_copy(const json_t *messages) { return copy_list(messages, copy_message); }
