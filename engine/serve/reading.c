/* serve/reading.c - see serve/reading.h. */
#include "serve/reading.h"
#include "answer/forced.h"
#include "answer/judge.h"
#include "answer/scan.h"
#include "base/json_text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES 64u   /* of jansson's for any value */
#define MEMBER_BYTES 128u /* of an object for a member, of a list for an item */

/* === The server's choice ==================================================================================================== */

/* Thoughts and calls are both messages of harmony or neither. Where thoughts stay in the content their marks follow the calls'. */
static status agree(serve_reading *found) {
  bool are_messages = found->grammar && found->grammar->body == ANSWER_BODY_MESSAGES;
  if (!found->grammar || (found->marks && found->marks->are_messages == are_messages)) return OK;
  if (found->is_apart && found->marks)
    return FAIL(ERR_USAGE, "--reasoning-parser %s and --tool-call-parser %s: expected harmony for both or neither; hint: none for one of "
                "them", found->marks->name, found->grammar->name);
  found->marks = are_messages ? answer_grammar_find_marks("harmony") : NULL;
  return OK;
}

status serve_reading_choose(serve_reading *out, const chat *templates, const char *thoughts, const char *calls) {
  bool has_template = templates && chat_name(templates);
  const char *plain = has_template ? chat_text(templates, false) : NULL, *with_tools = has_template ? chat_text(templates, true) : NULL;
  serve_reading found = {.marks = plain ? answer_grammar_marks_of(plain) : NULL, .is_apart = strcmp(thoughts, "none") != 0};
  bool is_named = found.is_apart && strcmp(thoughts, "auto") != 0;
  if (is_named && !(found.marks = answer_grammar_find_marks(thoughts)))
    return FAIL(ERR_USAGE, "--reasoning-parser: expected auto, none or %s, found %.64s", answer_grammar_marks_names(), thoughts);
  if (strcmp(calls, "auto") == 0) found.grammar = with_tools ? answer_grammar_of(with_tools) : NULL;
  else if (strcmp(calls, "none") != 0 && !(found.grammar = answer_grammar_find(calls)))
    return FAIL(ERR_USAGE, "--tool-call-parser: expected auto, none or one of %s, found %.64s", answer_grammar_names(), calls);
  TRY(agree(&found));
  found.is_apart = found.is_apart && found.marks;
  *out = found;
  return OK;
}

const char *serve_reading_text(const serve_reading *self, char text[SERVE_READING_TEXT_BYTES]) {
  snprintf(text, SERVE_READING_TEXT_BYTES, "thoughts %s%s, tool calls %s", self->marks ? self->marks->name : "none",
           self->marks && !self->is_apart ? " (in the content)" : "", self->grammar ? self->grammar->name : "none");
  return text;
}

/* === A request ============================================================================================================== */

/* A call names its tool: each needs a name of its own. */
static bool check_tools(const json_t *tools, serve_fault *fault) {
  char path[SERVE_FIELDS_PATH_BYTES];
  if (json_array_size(tools) > SERVE_READING_TOOLS_MAX)
    return serve_fields_wrong(fault, "tools", "invalid_value", "tools: expected at most %u, found %zu", SERVE_READING_TOOLS_MAX,
                              json_array_size(tools));
  for (size_t i = 0; i < json_array_size(tools); i++) {
    const json_t *name = answer_judge_name(json_array_get(tools, i));
    snprintf(path, sizeof path, "tools[%zu].function.name", i);
    if (!json_string_length(name)) return serve_fields_wrong(fault, path, "invalid_value", "%s: expected a name", path);
    for (size_t k = 0; k < i; k++)
      if (json_equal(name, answer_judge_name(json_array_get(tools, k))))
        return serve_fields_wrong(fault, path, "invalid_value", "%s: expected no name twice", path);
  }
  return true;
}

/* The name in {"type":"function","function":{"name":NAME}}, or NULL. */
static const json_t *name_of_choice(const json_t *choice) {
  static const char *const keys[] = {"type", "function", NULL};
  serve_fault unused;
  if (!json_is_object(choice) || !serve_fields_only(choice, "", keys, &unused)) return NULL;
  const json_t *name = json_object_get(json_object_get(choice, "function"), "name");
  return json_text_is(json_object_get(choice, "type"), "function") && json_is_string(name) ? name : NULL;
}

static bool is_free(const json_t *choice) { return !choice || json_text_is(choice, "none") || json_text_is(choice, "auto"); }

static bool check_choice(const json_t *choice, const json_t *tools, serve_fault *fault) {
  const json_t *name = name_of_choice(choice), *tool;
  bool is_there = false;
  size_t i;
  if (is_free(choice)) return true;
  if (!json_text_is(choice, "required") && !name)
    return serve_fields_wrong(fault, "tool_choice", "invalid_value", "tool_choice: expected \"none\", \"auto\", \"required\" or "
                              "{\"type\": \"function\", \"function\": {\"name\": ...}}");
  json_array_foreach(tools, i, tool) is_there |= !name || json_equal(name, answer_judge_name(tool));
  return is_there ||
         serve_fields_wrong(fault, name ? "tool_choice.function.name" : "tool_choice", "invalid_value", "tool_choice: expected %s",
                            name ? "the name of one of the tools" : "tools, as a call is required");
}

bool serve_reading_of_body(const serve_reading *self, const json_t *body, serve_fields *fields, answer_form *out, serve_fault *fault) {
  const json_t *tools = json_object_get(body, "tools"), *parallel = json_object_get(body, "parallel_tool_calls");
  bool are_read = self->grammar && json_array_size(tools) > 0 && !json_text_is(json_object_get(body, "tool_choice"), "none");
  bool are_many = true;
  *out = (answer_form){.marks = self->is_apart || are_read ? self->marks : NULL, .is_apart = self->is_apart,
                       .grammar = are_read ? self->grammar : NULL, .tools = are_read ? tools : NULL, .calls_max = UINT32_MAX};
  if (!serve_fields_bool(body, "", "parallel_tool_calls", &are_many, fault) ||
      !check_choice(json_object_get(body, "tool_choice"), tools, fault))
    return false;
  if (!are_many && are_read) out->calls_max = 1;
  if (parallel && !are_read && !serve_fields_ignore(fields, "parallel_tool_calls", fault)) return false;
  return !are_read || check_tools(tools, fault);
}

bool serve_reading_is_needed(const answer_form *form) { return form->is_apart || form->grammar; }

static size_t without_blank(const char *text, size_t bytes) {
  while (bytes > 0 && answer_scan_is_blank(text[bytes - 1])) bytes--;
  return bytes;
}

static bool ends_in(const char *text, size_t bytes, const char *mark) {
  size_t length = strlen(mark);
  return bytes >= length && memcmp(text + bytes - length, mark, length) == 0;
}

/* The offset after the last mark in the text, or 0. */
static size_t after_last(const char *text, size_t bytes, const char *mark) {
  for (size_t end = bytes; end >= strlen(mark); end--)
    if (ends_in(text, end, mark)) return end;
  return 0;
}

void serve_reading_of_prompt(const json_t *body, const char *prompt_end, size_t bytes, answer_form *out) {
  const json_t *messages = json_object_get(body, "messages");
  const json_t *last = json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content");
  const char *begun = json_is_true(json_object_get(body, "continue_final_message")) ? json_string_value(last) : NULL;
  size_t begun_bytes = begun ? without_blank(begun, json_string_length(last)) : 0, prompt_bytes = without_blank(prompt_end, bytes);
  if (!out->marks) return;
  if (out->marks->are_messages) {
    out->begins_inside = !begun_bytes && ends_in(prompt_end, prompt_bytes, out->marks->open);
    out->begins_after = begun_bytes || (!out->begins_inside && ends_in(prompt_end, prompt_bytes, "<|message|>"));
    return;
  }
  if (begun_bytes) {
    size_t opened = after_last(begun, begun_bytes, out->marks->open), closed = after_last(begun, begun_bytes, out->marks->close);
    out->begins_inside = opened > closed;
    out->begins_after = !out->begins_inside;
    return;
  }
  out->begins_inside = ends_in(prompt_end, prompt_bytes, out->marks->open);
  out->begins_after = ends_in(prompt_end, prompt_bytes, out->marks->close);
}

bool serve_reading_force(const json_t *body, answer_form *form, serve_fields *fields, serve_fault *fault) {
  const json_t *choice = json_object_get(body, "tool_choice");
  if (is_free(choice)) return true;
  if (!form->grammar)
    return serve_fields_wrong(fault, "tool_choice", "unsupported_value", "tool_choice: this server reads no calls of tools, so none can be "
                              "forced; hint: --tool-call-parser");
  if (fields->constraint || fields->allowed_count)
    return serve_fields_wrong(fault, "tool_choice", "invalid_value", "tool_choice: a forced call and %s exclude each other",
                              fields->constraint ? fields->constraint_field : "allowed_token_ids");
  form->calls_max = 1;
  json_t *pattern = answer_forced(form, json_string_value(name_of_choice(choice)));
  char *text = json_dumps(pattern, JSON_COMPACT);
  json_decref(pattern);
  fail_clear();
  status result = text ? verbatim_constraint_open(&fields->constraint, VERBATIM_PARTS, text, strlen(text)) : FAIL(ERR_LIMIT, "no memory");
  free(text);
  fields->constraint_field = "tool_choice";
  return result == OK || serve_fields_wrong(fault, "tool_choice", result == ERR_UNSUPPORTED ? "unsupported_value" : "invalid_value",
                                            "tool_choice: %.500s", fail_text());
}

uint64_t serve_reading_bytes(const json_t *value) {
  uint64_t total = VALUE_BYTES + json_string_length(value);
  const char *key;
  const json_t *member;
  size_t i;
  json_array_foreach(value, i, member) total += MEMBER_BYTES + serve_reading_bytes(member);
  json_object_foreach((json_t *)(uintptr_t)value, key, member) total += MEMBER_BYTES + strlen(key) + serve_reading_bytes(member);
  return total;
}
