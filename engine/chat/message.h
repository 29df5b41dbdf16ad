/* chat/message.h - a conversation as renderers see it: messages checked once, and their fields with the messages that refusals need.
 *
 * Every message is an object with a known role; a content is text, null or absent (lists of text parts are made one text before);
 * tool_calls is null, absent or a list of calls with a function, its name as text and its arguments as text or object. Everything else
 * was refused by chat_message_check. What is absent and what is null differ: templates tell them apart.
 * Read next: chat.c, and one of the renderers chat_*.c. */
#ifndef VERBATIM_CHAT_MESSAGE_H
#define VERBATIM_CHAT_MESSAGE_H
#include "chat/text.h"

#define CHAT_MESSAGES_MAX 65536u

typedef enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL, CHAT_DEVELOPER } chat_role;
typedef enum chat_switch { CHAT_UNSAID, CHAT_OFF, CHAT_ON } chat_switch;

typedef struct chat_ask {      /* what a renderer is asked for */
  json_t *messages;            /* checked */
  size_t count;
  const json_t *tools;         /* null: none; else a list of objects that is not empty */
  chat_switch thinking, enable_thinking, clear_thinking;
  bool add_generation_prompt;
  chat_span bos, eos;          /* the model's, "": it states none */
} chat_ask;

/* Writes the prompt to out. variant: of the family, see the enum of its header. ERR_FORMAT names the message. */
typedef status chat_renderer(const chat_ask *ask, unsigned variant, chat_text *out);

/* What contents in parts become: their texts with `between` between them. Messages are changed in place. ERR_FORMAT, ERR_LIMIT;
 * ERR_UNSUPPORTED: parts that are not text. */
status chat_message_check(json_t *messages, const char *between);

chat_role chat_message_role(const chat_ask *ask, size_t index);
const json_t *chat_message_get(const chat_ask *ask, size_t index, const char *key); /* null: absent */
bool chat_message_is_null(const chat_ask *ask, size_t index, const char *key);      /* said to be null */

/* Text, or ERR_FORMAT: as a template's "+" does it. */
status chat_message_text(const chat_ask *ask, size_t index, const char *key, chat_span *out);

/* As a template's {{ }} prints it: absent is nothing, null is "None". ERR_FORMAT: neither these nor text. */
status chat_message_print(const chat_ask *ask, size_t index, const char *key, chat_text *out);
status chat_message_shown(const chat_ask *ask, size_t index, const char *key, chat_span *out);

/* The calls of a message, 0 where there are none; and of one of them: the function, its name, its arguments as text. */
size_t chat_message_calls(const chat_ask *ask, size_t index);
const json_t *chat_message_call(const chat_ask *ask, size_t index, size_t call);
chat_span chat_message_call_name(const chat_ask *ask, size_t index, size_t call);
const json_t *chat_message_call_arguments(const chat_ask *ask, size_t index, size_t call);
status chat_message_call_text(const chat_ask *ask, size_t index, size_t call, chat_span *out);

/* The arguments as an object, which is the caller's to release: parsed where they are text. ERR_FORMAT. */
status chat_message_call_object(const chat_ask *ask, size_t index, size_t call, json_t **out);

chat_span chat_message_span(const json_t *string);

#endif
