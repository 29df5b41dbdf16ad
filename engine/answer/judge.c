/* answer/judge.c - see answer/judge.h. */
#include "answer/judge.h"
#include "answer/scan.h"
#include "answer/schema.h"
#include "base/json_text.h"
#include <stdio.h>

static json_t *load(const char *text, size_t bytes) {
  json_error_t error;
  return json_text_load(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
}

static const json_t *function_of(const json_t *tool) {
  const json_t *function = json_object_get(tool, "function");
  return function ? function : tool;
}

const json_t *answer_judge_name(const json_t *tool) {
  const json_t *name = json_object_get(function_of(tool), "name");
  return json_is_string(name) ? name : NULL;
}

static const json_t *find(const json_t *tools, const char *name) {
  const json_t *tool;
  size_t i;
  json_array_foreach(tools, i, tool)
    if (json_text_is(answer_judge_name(tool), name)) return function_of(tool);
  return NULL;
}

const json_t *answer_judge_parameters(const json_t *tools, const char *name) {
  return json_object_get(find(tools, name), "parameters");
}

/* Members of the object of a call: its name, its arguments, and what some models add. */
static bool has_only(const json_t *call, const char *arguments_key) {
  const char *key;
  const json_t *value;
  json_object_foreach((json_t *)(uintptr_t)call, key, value)
    if (strcmp(key, "name") != 0 && strcmp(key, arguments_key) != 0 && !(strcmp(key, "type") == 0 && json_text_is(value, "function")))
      return false;
  return true;
}

bool answer_judge_object(const char *object, size_t bytes, const char *arguments_key, char name[ANSWER_NAME_BYTES_MAX + 1],
                         const char **arguments, size_t *arguments_bytes, char why[ANSWER_ERROR_BYTES]) {
  json_t *call = load(object, bytes);
  const json_t *found = json_object_get(call, "name");
  size_t length = json_string_length(found), at = 0;
  bool is_named = length > 0 && length <= ANSWER_NAME_BYTES_MAX && strlen(json_string_value(found)) == length;
  bool is_call = is_named && has_only(call, arguments_key) && answer_scan_member(object, bytes, arguments_key, &at, arguments_bytes);
  if (is_call) {
    memcpy(name, json_string_value(found), length + 1);
    *arguments = object + at;
  } else snprintf(why, ANSWER_ERROR_BYTES, call ? "expected an object with name and %s" : "expected JSON: an object with name and %s",
                  arguments_key);
  json_decref(call);
  return is_call;
}

bool answer_judge_call(const json_t *tools, const char *name, const char *arguments, size_t bytes, char why[ANSWER_ERROR_BYTES]) {
  const json_t *tool = find(tools, name);
  if (!tool) {
    snprintf(why, ANSWER_ERROR_BYTES, "%.100s is not one of the request's tools", name);
    return false;
  }
  json_t *given = load(arguments, bytes);
  bool is_good = json_is_object(given);
  if (!is_good) snprintf(why, ANSWER_ERROR_BYTES, "the arguments of %.100s are not a JSON object", name);
  else is_good = answer_schema_check(json_object_get(tool, "parameters"), given, "arguments", why, ANSWER_ERROR_BYTES);
  json_decref(given);
  return is_good;
}

bool answer_judge_count(const answer_form *form, uint32_t count, char why[ANSWER_ERROR_BYTES]) {
  if (count < form->calls_max) return true;
  snprintf(why, ANSWER_ERROR_BYTES, "the request allows %u (parallel_tool_calls)", form->calls_max);
  return false;
}

void answer_judge_id(const answer_form *form, uint32_t index, char id[ANSWER_ID_BYTES]) {
  char text[DIGEST_TEXT_BYTES];
  digest_state state;
  digest_start(&state);
  digest_add(&state, form->seed.bytes, sizeof form->seed.bytes);
  uint8_t number[4] = {(uint8_t)index, (uint8_t)(index >> 8), (uint8_t)(index >> 16), (uint8_t)(index >> 24)};
  digest_add(&state, number, sizeof number);
  snprintf(id, ANSWER_ID_BYTES, "call_%.24s", digest_text(digest_end(&state).bytes, text));
}
