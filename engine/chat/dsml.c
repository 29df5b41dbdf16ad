/* chat/dsml.c - see chat/dsml.h. */
#include "chat/dsml.h"

#define USER "<｜User｜>"
#define ASSISTANT "<｜Assistant｜>"
#define EOS "<｜end▁of▁sentence｜>"
#define DSML "｜DSML｜"

static const char tools_before[] =
    "## Tools\n\nYou have access to a set of tools you can use to answer the user's question.\n"
    "You can invoke functions by writing a \"<" DSML "function_calls>\" block like the following as part of your reply to the user:\n"
    "<" DSML "function_calls>\n<" DSML "invoke name=\"$FUNCTION_NAME\">\n"
    "<" DSML "parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</" DSML "parameter>\n...\n</" DSML "invoke>\n"
    "<" DSML "invoke name=\"$FUNCTION_NAME2\">\n...\n</" DSML "invoke>\n</" DSML "function_calls>\n\n"
    "String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON "
    "format. The \"string\" attribute should be set to \"true\" for string type parameters and \"false\" for other types (numbers, "
    "booleans, arrays, objects).\n\n"
    "If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an "
    "example:\n\n<" DSML "function_calls>\n...\n</" DSML "function_calls>\n\n<function_results>\n...\n</function_results>\n\n"
    "<think>...thinking about results</think>\n\nHere are the functions available in JSONSchema format:\n<functions>\n";
static const char tools_after[] = "\n</functions>\n";

static status put_tools(const chat_request *request, chat_text *out) {
  chat_text_say(out, "\n\n");
  chat_text_say(out, tools_before);
  for (size_t i = 0; i < json_array_size(request->tools); i++) {
    const json_t *function = json_object_get(json_array_get(request->tools, i), "function");
    if (!function) return FAIL(ERR_FORMAT, "tools[%zu].function: expected an object, found nothing", i);
    if (i) chat_text_say(out, "\n");
    chat_text_json(out, function, false);
  }
  chat_text_say(out, tools_after);
  return OK;
}

static status put_calls(const chat_request *request, size_t index, chat_text *out) {
  size_t count = chat_message_calls(request, index);
  if (count) chat_text_say(out, "\n\n<" DSML "function_calls>");
  for (size_t i = 0; i < count; i++) {
    json_t *arguments = NULL, *value = NULL;
    const char *key = NULL;
    bool is_later = false;
    TRY(chat_message_call_object(request, index, i, &arguments));
    chat_text_say(out, "\n<" DSML "invoke name=\"");
    chat_text_put(out, chat_message_call_name(request, index, i));
    chat_text_say(out, "\">\n");
    json_object_foreach(arguments, key, value) {
      if (is_later) chat_text_say(out, "\n");
      chat_text_say(out, "<" DSML "parameter name=\"");
      chat_text_say(out, key);
      chat_text_say(out, json_is_string(value) ? "\" string=\"true\">" : "\" string=\"false\">");
      if (json_is_string(value)) chat_text_put(out, chat_message_span(value));
      else chat_text_json(out, value, false);
      chat_text_say(out, "</" DSML "parameter>");
      is_later = true;
    }
    chat_text_say(out, "\n</" DSML "invoke>");
    json_decref(arguments);
  }
  if (count) chat_text_say(out, "\n</" DSML "function_calls>");
  return OK;
}

/* Results belong to the calls of the assistant's message before them, number `asked`, in order. */
static status put_result(const chat_request *request, size_t index, ptrdiff_t asked, ptrdiff_t last_user, bool is_thinking,
                         chat_text *out) {
  chat_span content = {0};
  size_t order = (size_t)((ptrdiff_t)index - asked);
  if (asked < 0 || chat_message_role(request, (size_t)asked) != CHAT_ASSISTANT || chat_message_calls(request, (size_t)asked) < order)
    return FAIL(ERR_FORMAT, "messages[%zu]: a tool's result without a call that it belongs to", index);
  TRY(chat_message_text(request, index, "content", &content));
  if (order == 1) chat_text_say(out, "\n\n<function_results>");
  chat_text_say(out, "\n<result>");
  chat_text_put(out, content);
  chat_text_say(out, "</result>");
  if (order != chat_message_calls(request, (size_t)asked)) return OK;
  chat_text_say(out, "\n</function_results>");
  chat_text_say(out, (ptrdiff_t)index >= last_user && is_thinking ? "\n\n<think>" : "\n\n</think>");
  return OK;
}

static status put_assistant(const chat_request *request, size_t index, ptrdiff_t last_user, bool is_thinking, chat_text *out) {
  chat_span content = {0}, reasoning = {0};
  TRY(chat_message_shown(request, index, "content", &content));
  if (is_thinking && (ptrdiff_t)index > last_user) {
    TRY(chat_message_shown(request, index, "reasoning_content", &reasoning));
    if (!reasoning.count && !chat_message_calls(request, index))
      return FAIL(ERR_FORMAT, "messages[%zu]: expected reasoning_content or tool_calls, as thinking is on and no user's message follows",
                  index);
    chat_text_put(out, reasoning);
    chat_text_say(out, "</think>");
  }
  chat_text_put(out, content);
  TRY(put_calls(request, index, out));
  chat_text_say(out, EOS);
  return OK;
}

static void put_question_end(size_t index, ptrdiff_t last_user, bool is_thinking, chat_text *out) {
  chat_text_say(out, (ptrdiff_t)index == last_user && is_thinking ? ASSISTANT "<think>" : ASSISTANT "</think>");
}

/* Refuses a developer's message before which thinking is dropped: the program would lose it, and with it its place in the conversation. */
static status put_developer(const chat_request *request, size_t index, ptrdiff_t last_user, bool is_thinking, chat_text *out) {
  chat_span content = {0};
  TRY(chat_message_text(request, index, "content", &content));
  if (!content.count) return FAIL(ERR_FORMAT, "messages[%zu].content: expected a text that is not empty", index);
  if (is_thinking && (ptrdiff_t)index < last_user)
    return FAIL(ERR_UNSUPPORTED, "messages[%zu].role: developer before the last question, with thinking on", index);
  chat_text_say(out, USER);
  if (index == 0 && request->tools) TRY(put_tools(request, out));
  chat_text_say(out, "\n\n# The user's message is: ");
  chat_text_put(out, content);
  put_question_end(index, last_user, is_thinking, out);
  return OK;
}

static status put_turn(const chat_request *request, size_t index, ptrdiff_t asked, ptrdiff_t last_user, bool is_thinking, chat_text *out) {
  chat_span content = {0};
  switch (chat_message_role(request, index)) {
    case CHAT_ASSISTANT: return put_assistant(request, index, last_user, is_thinking, out);
    case CHAT_TOOL: return put_result(request, index, asked, last_user, is_thinking, out);
    case CHAT_DEVELOPER: return put_developer(request, index, last_user, is_thinking, out);
    case CHAT_SYSTEM:
      TRY(chat_message_text(request, index, "content", &content));
      chat_text_put(out, content);
      return OK;
    case CHAT_USER: break;
  }
  TRY(chat_message_text(request, index, "content", &content));
  chat_text_say(out, USER);
  chat_text_put(out, content);
  put_question_end(index, last_user, is_thinking, out);
  return OK;
}

static bool asks(const chat_request *request, size_t index) {
  return chat_message_role(request, index) == CHAT_USER || chat_message_role(request, index) == CHAT_DEVELOPER;
}

/* Tools are written with a system or developer message that begins the conversation; without one, before everything else. */
status chat_dsml_render(const chat_request *request, unsigned variant, chat_text *out) {
  (void)variant;
  bool is_thinking = request->thinking == CHAT_ON || request->enable_thinking == CHAT_ON;
  ptrdiff_t last_user = (ptrdiff_t)request->count - 1, asked = -1;
  while (last_user >= 0 && !asks(request, (size_t)last_user)) last_user--;
  chat_role last = chat_message_role(request, request->count - 1);
  if (!request->add_generation_prompt && last != CHAT_ASSISTANT)
    return FAIL(ERR_UNSUPPORTED, "add_generation_prompt: this model's prompts always end in an assistant's turn");
  chat_text_say(out, "<｜begin▁of▁sentence｜>");
  chat_role first = chat_message_role(request, 0);
  if (request->tools && first != CHAT_SYSTEM && first != CHAT_DEVELOPER) TRY(put_tools(request, out));
  for (size_t i = 0; i < request->count; i++) {
    TRY(put_turn(request, i, asked, last_user, is_thinking, out));
    if (chat_message_role(request, i) != CHAT_TOOL) asked = (ptrdiff_t)i;
    if (i == 0 && request->tools && first == CHAT_SYSTEM) TRY(put_tools(request, out));
  }
  return OK;
}
