/* chat/message.h - a conversation as renderers see it: messages that are checked once, and access to their fields with error messages.
 *
 * Every message is an object with a known role. Its content is text (lists of text parts were joined), and absent only next to calls.
 * tool_calls is absent or a list of at least one call, each with a function whose name is text and whose arguments are text or an object.
 * No member is null. chat_message_check refuses everything else. Read next: chat/keys.h, chat.c, and one of the renderers. */
#ifndef VERBATIM_CHAT_MESSAGE_H
#define VERBATIM_CHAT_MESSAGE_H
#include "chat/text.h"

#define CHAT_MESSAGES_MAX 65536u

typedef enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL, CHAT_DEVELOPER } chat_role;
typedef enum chat_switch { CHAT_UNSAID, CHAT_OFF, CHAT_ON } chat_switch;

typedef struct chat_request {      /* the input of a renderer */
  json_t *messages;            /* have passed chat_message_check */
  size_t count;
  const json_t *tools;         /* NULL: none; else a non-empty list of objects */
  chat_switch thinking, enable_thinking, clear_thinking;
  bool add_generation_prompt;
  chat_span bos, eos;          /* the model's; "": it has none */
} chat_request;

/* Writes the prompt to out. variant: of the family, see the enum in its header. ERR_FORMAT names the message. */
typedef status chat_renderer(const chat_request *request, unsigned variant, chat_text *out);

/* Checks messages that chat_keys_copy has made, and changes them in place: the text parts of a content are joined with `between`.
 * ERR_FORMAT, ERR_LIMIT; ERR_UNSUPPORTED: parts that are not text. */
status chat_message_check(json_t *messages, const char *between);

chat_role chat_message_role(const chat_request *request, size_t index);
const json_t *chat_message_get(const chat_request *request, size_t index, const char *key); /* NULL: absent */

/* The text, or ERR_FORMAT: the operand of a template's "+". */
status chat_message_text(const chat_request *request, size_t index, const char *key, chat_span *out);

/* The text, or nothing if absent. ERR_FORMAT: not text. */
status chat_message_print(const chat_request *request, size_t index, const char *key, chat_text *out);
status chat_message_shown(const chat_request *request, size_t index, const char *key, chat_span *out);

/* The number of calls of a message, 0 if it has none; and for one call: the function, its name, its arguments as text. */
size_t chat_message_calls(const chat_request *request, size_t index);
const json_t *chat_message_call(const chat_request *request, size_t index, size_t call);
chat_span chat_message_call_name(const chat_request *request, size_t index, size_t call);
const json_t *chat_message_call_arguments(const chat_request *request, size_t index, size_t call);
status chat_message_call_text(const chat_request *request, size_t index, size_t call, chat_span *out);

/* The arguments as an object, parsed if they are text; the caller releases it. ERR_FORMAT. */
status chat_message_call_object(const chat_request *request, size_t index, size_t call, json_t **out);

chat_span chat_message_span(const json_t *string);

#endif
