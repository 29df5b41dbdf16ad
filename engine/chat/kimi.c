/* chat/kimi.c - see chat/kimi.h. A table holds what differs between the variants. */
#include "chat/kimi.h"
#include <stdio.h>

#define KIMI "You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>"

typedef struct form {
  const char *system;   /* default system message, complete, for a conversation that begins with another role; NULL: none */
  bool has_names;       /* a message's name replaces its role */
  bool is_thinking;     /* answers have a <think> block */
  bool is_tight;        /* the tools' JSON has no spaces */
} form;

static const form forms[] = {
  [CHAT_KIMI_MOONLIGHT] = {.system = "You are a helpful assistant<|im_end|>"},
  [CHAT_KIMI_K2] = {.system = "You are a helpful assistant<|im_end|>"},
  [CHAT_KIMI_INSTRUCT] = {.system = KIMI "\n", .has_names = true},
  [CHAT_KIMI_INSTRUCT_TIGHT] = {.system = KIMI "\n", .has_names = true, .is_tight = true},
  [CHAT_KIMI_THINKING] = {.system = KIMI, .has_names = true, .is_thinking = true, .is_tight = true},
  [CHAT_KIMI_K25] = {.has_names = true, .is_thinking = true, .is_tight = true},
};

static void put_number(chat_text *out, size_t number) {
  char text[32];
  snprintf(text, sizeof text, ":%zu", number);
  chat_text_say(out, text);
}

static status put_head(const chat_request *request, size_t index, const form *f, chat_text *out) {
  static const char *const marks[] = {"<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_system|>"};
  chat_role role = chat_message_role(request, index);
  if (role == CHAT_DEVELOPER)
    return FAIL(ERR_FORMAT, "messages[%zu].role: this model's template has no developer; hint: use system", index);
  chat_text_say(out, marks[role]);
  const json_t *name = f->has_names ? chat_message_get(request, index, "name") : NULL;
  chat_text_put(out, chat_message_span(json_string_length(name) ? name : chat_message_get(request, index, "role")));
  chat_text_say(out, "<|im_middle|>");
  return OK;
}

static status put_calls(const chat_request *request, size_t index, unsigned variant, chat_text *out) {
  chat_text_say(out, "<|tool_calls_section_begin|>");
  for (size_t i = 0; i < chat_message_calls(request, index); i++) {
    const json_t *id = json_object_get(chat_message_call(request, index, i), "id");
    const json_t *arguments = chat_message_call_arguments(request, index, i);
    chat_text_say(out, "<|tool_call_begin|>");
    if (variant == CHAT_KIMI_K2) {
      chat_text_say(out, "functions.");
      chat_text_put(out, chat_message_call_name(request, index, i));
      put_number(out, i);
    } else {
      if (id && !json_is_string(id))
        return FAIL(ERR_FORMAT, "messages[%zu].tool_calls[%zu].id: expected text", index, i);
      if (id) chat_text_put(out, chat_message_span(id));
    }
    chat_text_say(out, "<|tool_call_argument_begin|>");
    if (json_is_string(arguments) && variant != CHAT_KIMI_K2) chat_text_put(out, chat_message_span(arguments));
    else chat_text_json(out, arguments, false);
    chat_text_say(out, "<|tool_call_end|>");
  }
  chat_text_say(out, "<|tool_calls_section_end|>");
  return OK;
}

static status put_result(const chat_request *request, size_t index, unsigned variant, chat_text *out) {
  chat_text_say(out, "## Return of ");
  TRY(chat_message_print(request, index, "tool_call_id", out));
  chat_text_say(out, variant == CHAT_KIMI_K2 ? "\\n" : "\n"); /* K2's template contains the escape as literal text */
  return chat_message_print(request, index, "content", out);
}

static status put_thinking(const chat_request *request, size_t index, bool is_shown, chat_text *out) {
  chat_text_say(out, "<think>");
  if (is_shown) TRY(chat_message_print(request, index, "reasoning_content", out));
  chat_text_say(out, "</think>");
  return OK;
}

/* The number of leading messages whose thinking is dropped. */
static size_t history(const chat_request *request) {
  size_t count = request->count;
  while (count > 0 && (chat_message_role(request, count - 1) != CHAT_ASSISTANT || chat_message_calls(request, count - 1))) count--;
  return count;
}

static status put_moonlight(const chat_request *request, size_t index, chat_text *out) {
  if (chat_message_role(request, index) == CHAT_TOOL || chat_message_calls(request, index))
    return FAIL(ERR_UNSUPPORTED, "messages[%zu]: this model's template shows no calls of tools", index);
  return chat_message_print(request, index, "content", out);
}

status chat_kimi_render(const chat_request *request, unsigned variant, chat_text *out) {
  const form *f = &forms[variant];
  bool is_k25 = variant == CHAT_KIMI_K25, is_off = is_k25 && request->thinking == CHAT_OFF;
  size_t shown_from = history(request);
  if (request->tools && is_k25) /* its tokenizer's own program rewrites them in TypeScript */
    return FAIL(ERR_UNSUPPORTED, "tools: not supported for this model's template; hint: declare them in the system message");
  if (request->tools) {
    chat_text_say(out, "<|im_system|>tool_declare<|im_middle|>");
    chat_text_json(out, request->tools, f->is_tight);
    chat_text_say(out, "<|im_end|>");
  }
  if (f->system && chat_message_role(request, 0) != CHAT_SYSTEM) {
    chat_text_say(out, "<|im_system|>system<|im_middle|>");
    chat_text_say(out, f->system);
  }
  for (size_t i = 0; i < request->count; i++) {
    chat_role role = chat_message_role(request, i);
    TRY(put_head(request, i, f, out));
    if (variant == CHAT_KIMI_MOONLIGHT) TRY(put_moonlight(request, i, out));
    else if (role == CHAT_TOOL) TRY(put_result(request, i, variant, out));
    else {
      if (role == CHAT_ASSISTANT && f->is_thinking) TRY(put_thinking(request, i, i >= shown_from && !is_off, out));
      TRY(chat_message_print(request, i, "content", out));
      if (chat_message_calls(request, i)) TRY(put_calls(request, i, variant, out));
    }
    chat_text_say(out, "<|im_end|>");
  }
  if (!request->add_generation_prompt) return OK;
  chat_text_say(out, "<|im_assistant|>assistant<|im_middle|>");
  if (is_k25) chat_text_say(out, is_off ? "<think></think>" : "<think>");
  return OK;
}
