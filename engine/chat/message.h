/* chat/message.h - the messages of a conversation, checked and brought into the form that templates expect.
 *
 * After chat_message_check every message is an object with a known role. Its content is text, or a list of text parts where the template
 * takes those; it is absent only next to calls. tool_calls is absent or a list of at least one call, each with a function whose name is
 * text and whose arguments are text or an object. No member is null. Read next: chat/keys.h, chat.c. */
#ifndef VERBATIM_CHAT_MESSAGE_H
#define VERBATIM_CHAT_MESSAGE_H
#include <jansson.h>
#include "base/base.h"

#define CHAT_MESSAGES_MAX 65536u

typedef struct chat_message_form { /* what the template's text says it can show */
  bool takes_parts;                /* a content as a list of parts; else they become one text, each part on its own line */
  bool shows_developer, shows_results;
} chat_message_form;

/* Checks messages that chat_keys_copy has made, and changes them in place. continues: the last content becomes text, and `tag` is appended
 * to it. ERR_FORMAT, ERR_LIMIT; ERR_UNSUPPORTED: parts that are not text, a result that the template does not show. */
status chat_message_check(json_t *messages, const chat_message_form *form, const char *tag);

/* Parses arguments of calls that are text. ERR_FORMAT: not the text of an object. */
status chat_message_parse_arguments(json_t *messages);

#endif
