/* chat/glm.c - see chat/glm.h. GLM-4.5 writes a newline between its marks, the later ones do not. */
#include "chat/glm.h"
#include <stdlib.h>
#include <string.h>

static const char tools_before[] =
    "<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n";
static const char tools_between[] =
    "</tools>\n\nFor each function call, output the function name and arguments within the following XML format:\n"
    "<tool_call>{function-name}";
static const char lines_45[] =
    "\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>\n<arg_key>{arg-key-2}</arg_key>\n"
    "<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>";
static const char line_47[] =
    "<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value><arg_key>{arg-key-2}</arg_key>"
    "<arg_value>{arg-value-2}</arg_value>...</tool_call>";

typedef struct turn {      /* an assistant's message, taken apart */
  chat_span reasoning, content;
  bool has_reasoning;
} turn;

/* === Tools =================================================================================================== */

/* GLM-5.1 writes the function object without the members meant for the server. */
static void put_function(const json_t *function, chat_text *out) {
  json_t *shown = json_copy((json_t *)function);
  json_object_del(shown, "defer_loading");
  json_object_del(shown, "strict");
  if (shown) chat_text_json(out, shown, false);
  json_decref(shown);
}

static status put_tools(const chat_request *request, unsigned variant, chat_text *out) {
  chat_text_say(out, tools_before);
  for (size_t i = 0; i < json_array_size(request->tools); i++) {
    const json_t *tool = json_array_get(request->tools, i), *function = json_object_get(tool, "function");
    if (variant == CHAT_GLM_51) {
      if (function && !json_is_object(function)) return FAIL(ERR_FORMAT, "tools[%zu].function: expected an object", i);
      if (function) tool = function;
      const json_t *deferred = json_object_get(tool, "defer_loading");
      if (deferred && !json_is_boolean(deferred)) return FAIL(ERR_FORMAT, "tools[%zu].defer_loading: expected true or false", i);
      if (json_is_true(deferred)) continue;
      put_function(tool, out);
    } else chat_text_json(out, tool, false);
    chat_text_say(out, "\n");
  }
  chat_text_say(out, tools_between);
  chat_text_say(out, variant == CHAT_GLM_45 ? lines_45 : line_47);
  return OK;
}

static status put_call(const chat_request *request, size_t index, size_t call, const char *line, chat_text *out) {
  json_t *arguments = NULL, *value = NULL;
  const char *key = NULL;
  TRY(chat_message_call_object(request, index, call, &arguments));
  chat_text_say(out, line);
  chat_text_say(out, "<tool_call>");
  chat_text_put(out, chat_message_call_name(request, index, call));
  json_object_foreach(arguments, key, value) {
    chat_text_say(out, line);
    chat_text_say(out, "<arg_key>");
    chat_text_say(out, key);
    chat_text_say(out, "</arg_key>");
    chat_text_say(out, line);
    chat_text_say(out, "<arg_value>");
    if (json_is_string(value)) chat_text_put(out, chat_message_span(value));
    else chat_text_json(out, value, false);
    chat_text_say(out, "</arg_value>");
  }
  chat_text_say(out, line);
  chat_text_say(out, "</tool_call>");
  json_decref(arguments);
  return OK;
}

/* === Answers ================================================================================================= */

/* Separates thinking and answer: by the field reasoning_content, or if that is not text, by the mark in the content. */
static status read_turn(const chat_request *request, size_t index, bool keeps_newlines, turn *t) {
  const json_t *reasoning = chat_message_get(request, index, "reasoning_content");
  TRY(chat_message_shown(request, index, "content", &t->content));
  if (json_is_string(reasoning)) {
    t->reasoning = chat_message_span(reasoning);
    t->has_reasoning = true;
  } else if (chat_text_find(t->content, "</think>") >= 0) {
    chat_span before = chat_text_trim(chat_text_before_first(t->content, "</think>"), false, !keeps_newlines);
    t->reasoning = chat_text_trim(chat_text_after_last(before, "<think>"), !keeps_newlines, false);
    t->content = chat_text_trim(chat_text_after_last(t->content, "</think>"), !keeps_newlines, false);
    t->has_reasoning = true;
  }
  return OK;
}

static void put_thinking(const turn *t, unsigned variant, bool is_shown, chat_text *out) {
  chat_text_say(out, variant == CHAT_GLM_45 ? "\n<think>" : is_shown ? "<think>" : "");
  if (is_shown) chat_text_put(out, variant == CHAT_GLM_51 ? t->reasoning : chat_text_strip(t->reasoning));
  chat_text_say(out, "</think>");
}

/* thinks: GLM-5.1 writes an empty block for an answer without thinking if another answer to the same question has some. */
static status put_assistant(const chat_request *request, size_t index, ptrdiff_t last_user, unsigned variant, bool thinks, chat_text *out) {
  const char *line = variant == CHAT_GLM_45 ? "\n" : "";
  bool is_late = (ptrdiff_t)index > last_user;
  turn t = {0};
  TRY(read_turn(request, index, variant == CHAT_GLM_51, &t));
  bool is_shown = is_late || (variant != CHAT_GLM_45 && request->clear_thinking == CHAT_OFF);
  if (variant == CHAT_GLM_51) t.has_reasoning |= is_late ? request->enable_thinking != CHAT_OFF : thinks;
  else t.has_reasoning = t.reasoning.count > 0;
  chat_text_say(out, "<|assistant|>");
  put_thinking(&t, variant, is_shown && t.has_reasoning, out);
  chat_span content = chat_text_strip(t.content);
  if (content.count) chat_text_say(out, line);
  chat_text_put(out, content);
  for (size_t i = 0; i < chat_message_calls(request, index); i++) TRY(put_call(request, index, i, line, out));
  return OK;
}

/* === Turns =================================================================================================== */

static status put_user(const chat_request *request, size_t index, unsigned variant, chat_text *out) {
  chat_span content = {0};
  TRY(chat_message_shown(request, index, "content", &content));
  chat_text_say(out, variant == CHAT_GLM_45 ? "<|user|>\n" : "<|user|>");
  chat_text_put(out, content);
  if (variant != CHAT_GLM_45 || request->enable_thinking != CHAT_OFF) return OK;
  bool ends = content.count >= 8 && memcmp(content.bytes + content.count - 8, "/nothink", 8) == 0;
  if (!ends) chat_text_say(out, "/nothink");
  return OK;
}

static status put_result(const chat_request *request, size_t index, unsigned variant, chat_text *out) {
  chat_span content = {0};
  if (variant == CHAT_GLM_51) TRY(chat_message_shown(request, index, "content", &content));
  else TRY(chat_message_text(request, index, "content", &content));
  if (index == 0 || chat_message_role(request, index - 1) != CHAT_TOOL) chat_text_say(out, "<|observation|>");
  chat_text_say(out, variant == CHAT_GLM_45 ? "\n<tool_response>\n" : "<tool_response>");
  chat_text_put(out, content);
  chat_text_say(out, variant == CHAT_GLM_45 ? "\n</tool_response>" : "</tool_response>");
  return OK;
}

/* Whether an answer to the user's message at index, up to the next user's message, has its thinking in a field. */
static bool thinks_after(const chat_request *request, size_t index) {
  for (size_t i = index + 1; i < request->count && chat_message_role(request, i) != CHAT_USER; i++)
    if (chat_message_role(request, i) == CHAT_ASSISTANT && json_is_string(chat_message_get(request, i, "reasoning_content"))) return true;
  return false;
}

static status put_turn(const chat_request *request, size_t index, ptrdiff_t last_user, unsigned variant, bool *thinks, chat_text *out) {
  switch (chat_message_role(request, index)) {
    case CHAT_USER: *thinks = thinks_after(request, index); return put_user(request, index, variant, out);
    case CHAT_ASSISTANT: return put_assistant(request, index, last_user, variant, *thinks, out);
    case CHAT_TOOL: return put_result(request, index, variant, out);
    case CHAT_DEVELOPER: return FAIL(ERR_FORMAT, "messages[%zu].role: this model's template has no developer; hint: use system", index);
    case CHAT_SYSTEM: break;
  }
  chat_text_say(out, variant == CHAT_GLM_45 ? "<|system|>\n" : "<|system|>");
  return chat_message_print(request, index, "content", out);
}

status chat_glm_render(const chat_request *request, unsigned variant, chat_text *out) {
  ptrdiff_t last_user = (ptrdiff_t)request->count - 1;
  bool thinks = false, is_off = request->enable_thinking == CHAT_OFF;
  while (last_user >= 0 && chat_message_role(request, (size_t)last_user) != CHAT_USER) last_user--;
  chat_text_say(out, "[gMASK]<sop>");
  if (request->tools) TRY(put_tools(request, variant, out));
  for (size_t i = 0; i < request->count; i++) TRY(put_turn(request, i, last_user, variant, &thinks, out));
  if (!request->add_generation_prompt) return OK;
  chat_text_say(out, "<|assistant|>");
  if (variant == CHAT_GLM_45) chat_text_say(out, is_off ? "\n<think></think>" : "");
  else chat_text_say(out, is_off ? "</think>" : "<think>");
  return OK;
}
