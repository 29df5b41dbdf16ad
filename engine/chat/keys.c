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

typedef enum verdict { REFUSED, IGNORED } verdict; /* of a key that was not read */

typedef struct key {
  const char *name;
  unsigned roles;      /* of the messages that may have it; of other objects: ANY */
  verdict otherwise;
  const char *neutral; /* a text that asks for nothing; NULL: only "" does */
  const char *hint;
} key;

static const key of_messages[] = {
  {"content", ANY, REFUSED, NULL, "send it in a message of another role or place"},
  {"tool_calls", ANY, REFUSED, NULL, "leave out the content, or write the calls into it"},
  {"tool_call_id", TOOL, IGNORED, NULL, NULL},
  {"name", TOOL, IGNORED, NULL, NULL},
  {"name", OTHERS | ASSISTANT, REFUSED, NULL, "write it into the content"},
  {"reasoning_content", ASSISTANT, REFUSED, NULL, "leave it out"},
  {"thinking", ASSISTANT, REFUSED, NULL, "leave it out"},
  {"prefix", ASSISTANT, REFUSED, NULL, "continue_final_message continues the last message"},
  {"partial", ASSISTANT, REFUSED, NULL, "continue_final_message continues the last message"},
  {"reasoning", ASSISTANT, REFUSED, NULL, "it must equal \"reasoning_content\""},
  {"cache_control", ANY, IGNORED, NULL, NULL},
  {"refusal", ASSISTANT, REFUSED, NULL, "write it into the content"},
  {"annotations", ASSISTANT, REFUSED, NULL, "leave it out"},
  {"audio", ASSISTANT, REFUSED, NULL, "leave it out"},
  {"function_call", ASSISTANT, REFUSED, NULL, "use tool_calls"},
};
static const key of_parts[] = {
  {"cache_control", ANY, IGNORED, NULL, NULL},
  {"annotations", ANY, REFUSED, NULL, "leave it out"},
};
static const key of_shown_parts[] = {
  {"type", ANY, IGNORED, "text", NULL},
  {"text", ANY, REFUSED, NULL, "send the content as one text"},
  {"cache_control", ANY, IGNORED, "", NULL},
};
static const key of_calls[] = {
  {"function", ANY, REFUSED, NULL, "write the call into the content"},
  {"id", ANY, IGNORED, NULL, NULL},
  {"type", ANY, REFUSED, "function", "only functions can be called"},
  {"index", ANY, IGNORED, NULL, NULL},
};
static const key of_called[] = {
  {"name", ANY, REFUSED, NULL, "write the call into the content"},
  {"arguments", ANY, REFUSED, NULL, "write the call into the content"},
};
static const key of_tools[] = {
  {"function", ANY, REFUSED, NULL, "declare it in the system message"},
  {"type", ANY, REFUSED, "function", "only functions can be called"},
  {"cache_control", ANY, IGNORED, NULL, NULL},
};
static const key of_functions[] = {
  {"name", ANY, REFUSED, NULL, "declare it in the system message"},
  {"description", ANY, REFUSED, NULL, "declare it in the system message"},
  {"parameters", ANY, REFUSED, NULL, "declare it in the system message"},
  {"strict", ANY, IGNORED, NULL, NULL},
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

/* Judges one member, which was not read, of the object at this path. */
static status judge(const char *path, const key *keys, size_t count, unsigned role, const char *name, const json_t *value,
                    json_t *ignored) {
  const key *found = NULL;
  for (size_t i = 0; i < count && (!found || !(found->roles & role)); i++)
    if (strcmp(keys[i].name, name) == 0) found = &keys[i];
  if (json_is_null(value)) return OK;
  if (!found) return FAIL(ERR_USAGE, "%s.%.64s: unknown key; hint: SERVING.md lists those of a conversation", path, name);
  if (is_empty(value, found->neutral)) return OK;
  if (!(found->roles & role)) return FAIL(ERR_UNSUPPORTED, "%s.%s: a message of this role has none; hint: leave it out", path, name);
  if (found->otherwise == IGNORED) return ignore(path, name, ignored);
  return FAIL(ERR_UNSUPPORTED, "%s.%s: this model's template does not show it; hint: %s", path, name, found->hint);
}

/* values: the dict that the template saw, or NULL: none. */
static bool was_read(const jinja_dict *values, const char *name) {
  const jinja_entry *entry = values ? jinja_value_find(values, (jinja_text){name, strlen(name)}) : NULL;
  return entry && entry->was_read;
}

static status judge_all(const char *path, const key *keys, size_t count, unsigned role, const json_t *object, const jinja_dict *values,
                        json_t *ignored) {
  const char *name;
  const json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, name, value)
    if (!was_read(values, name)) TRY(judge(path, keys, count, role, name, value, ignored));
  return OK;
}

#define JUDGE(path, keys, role, object, values) judge_all(path, keys, ARRAY_LEN(keys), role, object, values, ignored)

static const jinja_dict *dict_of(jinja_value value) { return value.kind == JINJA_DICT ? value.dict : NULL; }

static jinja_value member(const jinja_dict *dict, const char *name) {
  const jinja_entry *entry = dict ? jinja_value_find(dict, (jinja_text){name, strlen(name)}) : NULL;
  return entry ? entry->value : (jinja_value){.kind = JINJA_ABSENT};
}

static jinja_value item(jinja_value list, size_t index) {
  return list.kind == JINJA_LIST && index < list.list->count ? list.list->items[index] : (jinja_value){.kind = JINJA_ABSENT};
}

/* === Messages ================================================================================================ */

static unsigned role_of(const json_t *message) {
  static const char *const names[] = {"system", "user", "assistant", "tool", "developer"};
  const json_t *role = json_object_get(message, "role");
  for (unsigned i = 0; i < ARRAY_LEN(names); i++)
    if (json_text_is(role, names[i])) return 1u << i;
  return 0;
}

/* The members of a part that no template shows: its text and its type are checked elsewhere. */
status chat_keys_check_parts(const json_t *messages, json_t *ignored) {
  char path[PATH_BYTES];
  for (size_t i = 0; i < json_array_size(messages); i++) {
    const json_t *content = json_object_get(json_array_get(messages, i), "content"), *value;
    for (size_t k = 0; k < json_array_size(content); k++) {
      const json_t *part = json_array_get(content, k);
      const char *name;
      if (!json_text_is(json_object_get(part, "type"), "text")) continue;
      snprintf(path, sizeof path, "messages[%zu].content[%zu]", i, k);
      json_object_foreach((json_t *)(uintptr_t)part, name, value)
        if (strcmp(name, "type") != 0 && strcmp(name, "text") != 0)
          TRY(judge(path, of_parts, ARRAY_LEN(of_parts), ANY, name, value, ignored));
    }
  }
  return OK;
}

static status check_message(size_t index, const json_t *message, const jinja_dict *values, json_t *ignored) {
  const json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls"), *value;
  char path[PATH_BYTES];
  const char *name;
  snprintf(path, sizeof path, "messages[%zu]", index);
  json_object_foreach((json_t *)(uintptr_t)message, name, value)
    if (strcmp(name, "role") != 0 && !was_read(values, name)) /* a template need not tell roles apart */
      TRY(judge(path, of_messages, ARRAY_LEN(of_messages), role_of(message), name, value, ignored));
  for (size_t i = 0; i < json_array_size(content); i++) {
    snprintf(path, sizeof path, "messages[%zu].content[%zu]", index, i);
    TRY(JUDGE(path, of_shown_parts, ANY, json_array_get(content, i), dict_of(item(member(values, "content"), i))));
  }
  for (size_t i = 0; i < json_array_size(calls); i++) {
    const json_t *call = json_array_get(calls, i);
    const jinja_dict *shown = dict_of(item(member(values, "tool_calls"), i));
    snprintf(path, sizeof path, "messages[%zu].tool_calls[%zu]", index, i);
    TRY(JUDGE(path, of_calls, ANY, call, shown));
    snprintf(path, sizeof path, "messages[%zu].tool_calls[%zu].function", index, i);
    TRY(JUDGE(path, of_called, ANY, json_object_get(call, "function"), dict_of(member(shown, "function"))));
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

status chat_keys_check(const json_t *messages, jinja_value values, json_t *ignored) {
  const json_t *calls = NULL;
  size_t order = 0;
  for (size_t i = 0; i < json_array_size(messages); i++) {
    const json_t *message = json_array_get(messages, i);
    const jinja_dict *shown = dict_of(item(values, i));
    bool is_result = role_of(message) == TOOL;
    if (!is_result) calls = json_object_get(message, "tool_calls"), order = 0;
    else if (!was_read(shown, "tool_call_id")) TRY(check_order(i, message, calls, order++));
    TRY(check_message(i, message, shown, ignored));
  }
  return OK;
}

/* === Tools =================================================================================================== */

/* A template that shows functions only shows the whole tool if that has none. */
status chat_keys_check_tools(const json_t *tools, jinja_value values, json_t *ignored) {
  for (size_t i = 0; i < json_array_size(tools); i++) {
    const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
    const jinja_dict *shown = dict_of(item(values, i));
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "tools[%zu]", i);
    TRY(JUDGE(path, of_tools, ANY, tool, shown));
    snprintf(path, sizeof path, "tools[%zu].function", i);
    if (json_is_object(function)) TRY(JUDGE(path, of_functions, ANY, function, dict_of(member(shown, "function"))));
  }
  return OK;
}

/* === Copies ================================================================================================== */

static json_t *copy_call(const json_t *call, const char *thought) {
  (void)thought;
  json_t *copy = json_text_given(call), *function = json_object_get(copy, "function");
  if (!copy || !json_is_object(function)) return copy;
  if (json_object_set_new(copy, "function", json_text_given(function)) == 0) return copy;
  json_decref(copy);
  return NULL;
}

static json_t *copy_list(const json_t *list, const char *thought, json_t *(*copy_one)(const json_t *, const char *)) {
  json_t *copy = json_array();
  for (size_t i = 0; copy && i < json_array_size(list); i++)
    if (json_array_append_new(copy, copy_one(json_array_get(list, i), thought))) {
      json_decref(copy);
      return NULL;
    }
  return copy;
}

/* One text under two names is kept under the first, unless they differ. */
static int join(json_t *message, const char *kept, const char *other) {
  json_t *first = json_object_get(message, kept), *second = json_object_get(message, other);
  if (!json_is_string(second) || (first && !json_equal(first, second))) return 0;
  return json_object_set(message, kept, second) || json_object_del(message, other);
}

/* A reply has a thought as reasoning_content and as `reasoning`. */
static json_t *copy_message(const json_t *message, const char *thought) {
  json_t *copy = json_text_given(message), *calls = json_object_get(copy, "tool_calls");
  int failed = join(copy, "reasoning_content", "reasoning");
  if (strcmp(thought, "reasoning_content") != 0) failed |= join(copy, thought, "reasoning_content");
  if (copy && json_is_array(calls))
    failed |= json_array_size(calls) ? json_object_set_new(copy, "tool_calls", copy_list(calls, thought, copy_call))
                                     : json_object_del(copy, "tool_calls");
  if (!failed) return copy;
  json_decref(copy);
  return NULL;
}

json_t *chat_keys_copy(const json_t *messages, const char *thought) { return copy_list(messages, thought, copy_message); }
