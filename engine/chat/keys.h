/* chat/keys.h - the keys of messages, their parts, their calls and tools: known to the template, without effect, or refused.
 *
 * A key that the template does not show is refused if it says what nothing else in the conversation says: a speaker's name, thinking, a
 * message to be continued. If it only repeats what the order of the messages says (the id of a call, the name of a result's function), it
 * is reported as ignored. null is removed: it means not given. A value that asks for nothing (false, an empty text, list or object) is
 * accepted for every known key. Must not know how a template renders. Read next: chat/message.h. */
#ifndef VERBATIM_CHAT_KEYS_H
#define VERBATIM_CHAT_KEYS_H
#include <jansson.h>
#include "base/base.h"

enum { /* what a template shows besides role, content and the functions of calls */
  CHAT_SHOWS_NAME = 1,
  CHAT_SHOWS_REASONING = 2, /* reasoning_content */
  CHAT_SHOWS_PREFIX = 4,
  CHAT_SHOWS_RESULT_ID = 8, /* tool_call_id */
  CHAT_SHOWS_CALL_ID = 16,
  CHAT_SHOWS_CALL_TYPE = 32,
  CHAT_SHOWS_TOOLS = 64,    /* the functions of tools */
  CHAT_SHOWS_WHOLE_TOOLS = 128, /* every key of a tool */
  CHAT_SHOWS_STRICT = 256,  /* the member strict of a tool's function */
};

/* Copies the messages as far as they may be changed, without the members that are null and empty lists of calls. NULL: no memory. */
json_t *chat_keys_copy(const json_t *messages);

/* shows: of the enum above. ignored: a list to which the paths of keys without effect are added, such as "messages[2].tool_call_id"; NULL:
 * these keys are refused, too. What has the wrong type is passed over. ERR_USAGE: an unknown key; ERR_UNSUPPORTED: one that the template
 * does not show; the text begins with the key's path. */
status chat_keys_check(const json_t *messages, unsigned shows, json_t *ignored);
status chat_keys_check_tools(const json_t *tools, unsigned shows, json_t *ignored);

#endif
