/* chat/keys.h - the keys of messages, their parts, their calls and tools: read by the template, without effect, or refused.
 *
 * What a template has not looked at cannot be in its prompt. Such a key is refused if it says what nothing else in the conversation
 * says: a content, a speaker's name, thinking, a message to be continued. If it only repeats what the order of the messages says (the id
 * of a call, the name of a result's function), it is reported as ignored. null is removed: it means not given. A value that asks for
 * nothing (false, an empty text, list or object) is accepted for every known key. Read next: chat/message.h. */
#ifndef VERBATIM_CHAT_KEYS_H
#define VERBATIM_CHAT_KEYS_H
#include "jinja/value.h"

/* Copies the messages as far as they may be changed, without the members that are null and empty lists of calls. thought: the name that the
 * template has for reasoning_content. NULL: no memory. */
json_t *chat_keys_copy(const json_t *messages, const char *thought);

/* ignored: a list to which the paths of keys without effect are added, such as "messages[2].tool_call_id"; NULL: these keys are refused,
 * too. ERR_USAGE: an unknown key; ERR_UNSUPPORTED: one that the template does not show; the text begins with the key's path. */
status chat_keys_check_parts(const json_t *messages, json_t *ignored); /* before parts are joined */

/* After rendering: the values of these messages or tools, with what was read of them. */
status chat_keys_check(const json_t *messages, jinja_value values, json_t *ignored);
status chat_keys_check_tools(const json_t *tools, jinja_value values, json_t *ignored);

#endif
