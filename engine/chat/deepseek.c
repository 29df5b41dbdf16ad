/* chat/deepseek.c - see chat/deepseek.h. The templates are loops with a few variables that live across messages; `state` holds them under
 * the templates' own names. */
#include "chat/deepseek.h"

#define USER "<｜User｜>"
#define ASSISTANT "<｜Assistant｜>"
#define EOS "<｜end▁of▁sentence｜>"
#define CALLS_BEGIN "<｜tool▁calls▁begin｜>"
#define CALLS_END "<｜tool▁calls▁end｜>"
#define CALL_BEGIN "<｜tool▁call▁begin｜>"
#define CALL_END "<｜tool▁call▁end｜>"
#define SEPARATOR "<｜tool▁sep｜>"
#define OUTPUTS_BEGIN "<｜tool▁outputs▁begin｜>"
#define OUTPUTS_END "<｜tool▁outputs▁end｜>"
#define OUTPUT_BEGIN "<｜tool▁output▁begin｜>"
#define OUTPUT_END "<｜tool▁output▁end｜>"

typedef struct state {
  bool is_first;       /* a call has been written */
  bool is_tool;        /* the last message was a tool's */
  bool is_output_first; /* no tool output has been written */
  bool is_last_user, is_only_sys, is_prefix;
} state;

static status no_developer(const chat_request *request) {
  for (size_t i = 0; i < request->count; i++)
    if (chat_message_role(request, i) == CHAT_DEVELOPER)
      return FAIL(ERR_FORMAT, "messages[%zu].role: this model's template has no developer; hint: use system", i);
  return OK;
}

/* === V2 ====================================================================================================== */

status chat_deepseek_v2(const chat_request *request, unsigned variant, chat_text *out) {
  (void)variant;
  TRY(no_developer(request));
  chat_text_put(out, request->bos);
  for (size_t i = 0; i < request->count; i++) {
    chat_role role = chat_message_role(request, i);
    if (role == CHAT_TOOL || chat_message_calls(request, i))
      return FAIL(ERR_UNSUPPORTED, "messages[%zu]: this model's template shows no calls of tools", i);
    chat_span content = {0};
    TRY(chat_message_text(request, i, "content", &content));
    if (role == CHAT_ASSISTANT && !request->eos.count)
      return FAIL(ERR_FORMAT, "messages: expected an eos_token in tokenizer_config.json, found none");
    chat_text_say(out, role == CHAT_USER ? "User: " : role == CHAT_ASSISTANT ? "Assistant: " : "");
    chat_text_put(out, content);
    if (role == CHAT_ASSISTANT) chat_text_put(out, request->eos);
    else chat_text_say(out, "\n\n");
  }
  if (request->add_generation_prompt) chat_text_say(out, "Assistant:");
  return OK;
}

/* === V2.5, V3 and R1 ========================================================================================= */

/* All system messages come before the first turn. V2.5 writes only the last one, and for each of them, before the BOS, the eight spaces in
 * the template's branch that reads it. */
static status put_system(const chat_request *request, bool is_v25, chat_text *out) {
  chat_span content = {0};
  bool is_first = true;
  for (size_t i = 0; is_v25 && i < request->count; i++) {
    if (chat_message_role(request, i) != CHAT_SYSTEM) continue;
    chat_text_say(out, "        ");
    TRY(chat_message_shown(request, i, "content", &content));
  }
  chat_text_put(out, request->bos);
  chat_text_put(out, content);
  for (size_t i = 0; !is_v25 && i < request->count; i++) {
    if (chat_message_role(request, i) != CHAT_SYSTEM) continue;
    if (!is_first) chat_text_say(out, "\n\n");
    TRY(chat_message_text(request, i, "content", &content));
    chat_text_put(out, content);
    is_first = false;
  }
  return OK;
}

static status put_call(const chat_request *request, size_t index, size_t call, chat_text *out) {
  const json_t *type = json_object_get(chat_message_call(request, index, call), "type");
  chat_span arguments = {0};
  if (!json_is_string(type)) return FAIL(ERR_FORMAT, "messages[%zu].tool_calls[%zu].type: expected text", index, call);
  TRY(chat_message_call_text(request, index, call, &arguments));
  chat_text_say(out, CALL_BEGIN);
  chat_text_put(out, chat_message_span(type));
  chat_text_say(out, SEPARATOR);
  chat_text_put(out, chat_message_call_name(request, index, call));
  chat_text_say(out, "\n```json\n");
  chat_text_put(out, arguments);
  chat_text_say(out, "\n```" CALL_END);
  return OK;
}

/* The content is read only where it is written: before the first call that the template's variable knows of. */
static status put_calls(const chat_request *request, size_t index, bool is_closed, bool is_0528, state *s, chat_text *out) {
  chat_span content = {0};
  s->is_tool = false;
  for (size_t i = 0; i < chat_message_calls(request, index); i++) {
    bool is_first = !s->is_first;
    if (is_first) TRY(chat_message_shown(request, index, "content", &content));
    if (is_first && !is_0528) chat_text_say(out, ASSISTANT);
    if (is_first) chat_text_put(out, is_0528 ? chat_text_after_last(content, "</think>") : content);
    chat_text_say(out, is_first ? CALLS_BEGIN : "\n");
    TRY(put_call(request, index, i, out));
    if (!is_first && !is_closed) chat_text_say(out, CALLS_END EOS);
    s->is_first = true;
  }
  if (is_closed) chat_text_say(out, CALLS_END EOS);
  return OK;
}

static void put_output(state *s, const char *between, chat_span content, chat_text *out) {
  s->is_tool = true;
  chat_text_say(out, s->is_output_first ? OUTPUTS_BEGIN : between);
  chat_text_say(out, OUTPUT_BEGIN);
  chat_text_put(out, content);
  chat_text_say(out, OUTPUT_END);
  s->is_output_first = false;
}

static status put_assistant(const chat_request *request, size_t index, unsigned variant, state *s, chat_text *out) {
  bool is_r1 = variant >= CHAT_DEEPSEEK_R1;
  chat_span content = {0};
  TRY(chat_message_shown(request, index, "content", &content));
  if (chat_message_calls(request, index)) {
    if (!is_r1 && content.count)
      return FAIL(ERR_UNSUPPORTED, "messages[%zu].tool_calls: this model's template shows no calls next to a content", index);
    return put_calls(request, index, is_r1, false, s, out);
  }
  TRY(chat_message_text(request, index, "content", &content));
  if (s->is_tool) chat_text_say(out, OUTPUTS_END);
  else chat_text_say(out, ASSISTANT);
  chat_text_put(out, is_r1 && !s->is_tool ? chat_text_after_last(content, "</think>") : content);
  chat_text_say(out, EOS);
  s->is_tool = false;
  return OK;
}

status chat_deepseek_v3(const chat_request *request, unsigned variant, chat_text *out) {
  state s = {.is_output_first = true};
  TRY(no_developer(request));
  TRY(put_system(request, variant == CHAT_DEEPSEEK_V25, out));
  for (size_t i = 0; i < request->count; i++) {
    chat_role role = chat_message_role(request, i);
    chat_span content = {0};
    if (role == CHAT_ASSISTANT) TRY(put_assistant(request, i, variant, &s, out));
    if (role != CHAT_USER && role != CHAT_TOOL) continue;
    TRY(chat_message_text(request, i, "content", &content));
    if (role == CHAT_TOOL) {
      put_output(&s, variant >= CHAT_DEEPSEEK_R1 ? "" : "\n", content, out);
      continue;
    }
    s.is_tool = false;
    chat_text_say(out, USER);
    chat_text_put(out, content);
  }
  if (s.is_tool) chat_text_say(out, OUTPUTS_END);
  if (request->add_generation_prompt && !s.is_tool)
    chat_text_say(out, variant == CHAT_DEEPSEEK_R1_THINK ? ASSISTANT "<think>\n" : ASSISTANT);
  return OK;
}

/* === R1-0528 ================================================================================================= */

static status put_turn_0528(const chat_request *request, size_t index, state *s, chat_text *out) {
  chat_role role = chat_message_role(request, index);
  chat_span content = {0};
  if (role == CHAT_SYSTEM) return OK;
  TRY(chat_message_shown(request, index, "content", &content));
  s->is_last_user = role == CHAT_USER;
  if (role == CHAT_USER) {
    s->is_tool = s->is_first = false;
    chat_text_say(out, USER);
    chat_text_put(out, content);
    chat_text_say(out, ASSISTANT);
    return OK;
  }
  if (role == CHAT_TOOL) {
    put_output(s, "\n", content, out);
    return OK;
  }
  if (s->is_tool) chat_text_say(out, OUTPUTS_END);
  if (chat_message_calls(request, index)) {
    s->is_first = false;
    s->is_output_first = true;
    return put_calls(request, index, true, true, s, out);
  }
  chat_text_put(out, chat_text_after_last(content, "</think>"));
  chat_text_say(out, EOS);
  s->is_tool = false;
  return OK;
}

status chat_deepseek_r1_0528(const chat_request *request, unsigned variant, chat_text *out) {
  (void)variant;
  state s = {.is_output_first = true};
  TRY(no_developer(request));
  TRY(put_system(request, false, out));
  for (size_t i = 0; i < request->count; i++) TRY(put_turn_0528(request, i, &s, out));
  if (s.is_tool) chat_text_say(out, OUTPUTS_END);
  else if (request->add_generation_prompt && !s.is_last_user) chat_text_say(out, ASSISTANT);
  return OK;
}

/* === V3.1 ==================================================================================================== */

static status put_calls_v31(const chat_request *request, size_t index, state *s, chat_text *out) {
  chat_span content = {0}, arguments = {0};
  if (s->is_last_user || s->is_only_sys) chat_text_say(out, ASSISTANT "</think>");
  s->is_last_user = s->is_tool = false;
  for (size_t i = 0; i < chat_message_calls(request, index); i++) {
    if (i == 0) {
      TRY(chat_message_shown(request, index, "content", &content));
      chat_text_put(out, content);
      chat_text_say(out, CALLS_BEGIN);
    }
    TRY(chat_message_call_text(request, index, i, &arguments));
    chat_text_say(out, CALL_BEGIN);
    chat_text_put(out, chat_message_call_name(request, index, i));
    chat_text_say(out, SEPARATOR);
    chat_text_put(out, arguments);
    chat_text_say(out, CALL_END);
  }
  chat_text_say(out, CALLS_END EOS);
  return OK;
}

static status put_assistant_v31(const chat_request *request, size_t index, bool is_thinking, state *s, chat_text *out) {
  chat_span content = {0};
  if (chat_message_calls(request, index)) return put_calls_v31(request, index, s, out);
  TRY(chat_message_text(request, index, "content", &content));
  bool is_prefix = json_is_true(chat_message_get(request, index, "prefix"));
  if (s->is_last_user) chat_text_say(out, is_prefix && is_thinking ? ASSISTANT "<think>" : ASSISTANT "</think>");
  if (is_prefix) s->is_prefix = true;
  ptrdiff_t thought = s->is_tool ? -1 : chat_text_find(content, "</think>");
  if (thought >= 0) content = (chat_span){content.bytes + thought + 8, content.count - (size_t)thought - 8};
  chat_text_put(out, content);
  chat_text_say(out, EOS);
  s->is_last_user = s->is_tool = false;
  return OK;
}

status chat_deepseek_v31(const chat_request *request, unsigned variant, chat_text *out) {
  bool is_terminus = variant == CHAT_DEEPSEEK_TERMINUS, is_thinking = request->thinking == CHAT_ON;
  state s = {0};
  TRY(no_developer(request));
  TRY(put_system(request, false, out));
  for (size_t i = 0; i < request->count; i++) s.is_only_sys |= is_terminus && chat_message_role(request, i) == CHAT_SYSTEM;
  for (size_t i = 0; i < request->count; i++) {
    chat_role role = chat_message_role(request, i);
    chat_span content = {0};
    if (role == CHAT_SYSTEM) continue;
    if (role == CHAT_ASSISTANT) TRY(put_assistant_v31(request, i, is_thinking, &s, out));
    else TRY(chat_message_text(request, i, "content", &content));
    if (role == CHAT_USER) {
      s.is_tool = false;
      s.is_last_user = true;
      chat_text_say(out, USER);
      chat_text_put(out, content);
    } else if (role == CHAT_TOOL) {
      s.is_last_user = false;
      s.is_tool = true;
      chat_text_say(out, OUTPUT_BEGIN);
      chat_text_put(out, content);
      chat_text_say(out, OUTPUT_END);
    }
    s.is_only_sys = false;
  }
  bool is_turn = is_terminus ? s.is_last_user || s.is_only_sys || !s.is_prefix : s.is_last_user;
  if (request->add_generation_prompt && !s.is_tool && is_turn) chat_text_say(out, is_thinking ? ASSISTANT "<think>" : ASSISTANT "</think>");
  return OK;
}
