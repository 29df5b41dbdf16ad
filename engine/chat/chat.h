/* chat.h - conversations to prompt text, by native renderers of known chat templates.
 *
 * A model's template (chat_template.jinja, else chat_template of tokenizer_config.json) is identified by its digest. Its renderer writes,
 * byte for byte, what Jinja and transformers' apply_chat_template produce from it (tests/data/chat holds their output); C renderers are
 * written by hand because Jinja exists for Python and C++ only and these bytes must not depend on a library's version. An unknown template
 * is refused, never guessed, and so is input that a template would silently ignore (tools, switches, tool results). Must not know HTTP or
 * tokens. Once open, a chat is read-only and usable from any number of threads. Read next: chat.c, chat/message.h. */
#ifndef VERBATIM_CHAT_H
#define VERBATIM_CHAT_H
#include <jansson.h>
#include "base/base.h"

typedef struct chat chat;

/* ERR_IO, ERR_FORMAT. A missing or unknown template is not an error: chat_name is NULL then. */
status chat_open(chat **out, const char *model_dir);

/* Opens the renderer of this name, whatever template the model has; the caller knows that it fits. ERR_USAGE: no such renderer. */
status chat_open_named(chat **out, const char *model_dir, const char *name);
void chat_close(chat *self); /* NULL is allowed */

const char *chat_name(const chat *self);    /* such as "deepseek_v3"; NULL: no known template */
const char *chat_digest(const chat *self);  /* of the model's template (chat_template_digest); NULL: it was not read */
const char *chat_refusal(const chat *self); /* why there is no renderer, and what to do; "" if there is one */

/* The digest of a template: XXH3-128, in hexadecimal, of its text with "\n" line ends and without what Jinja drops after the last tag. text
 * is modified. */
void chat_template_digest(char *text, size_t bytes, char hexadecimal[33]);
const char *chat_template_name(const char *hexadecimal); /* the renderer of that template; NULL: unknown */

/* body: the request's object. Keys read:
 *   messages                 role, content (text, or parts of type text), tool_calls, and what chat/keys.h lists
 *   tools                    a list of objects, or null
 *   add_generation_prompt    default true, or false if continue_final_message is true
 *   continue_final_message   the prompt ends where the last message's content does
 *   chat_template_kwargs     thinking, enable_thinking, clear_thinking: true or false, where the template reads them
 * ignored: see chat_keys_check. The caller frees *text; it is *bytes long, followed by a NUL, and at most TOKENIZER_TEXT_BYTES_MAX. It
 * spells special tokens, BOS included: encode it with parse_special, without add_special. An error's text begins with the path of the field
 * that is at fault, followed by ": ", unless it concerns the whole prompt. ERR_FORMAT: a wrong value; ERR_USAGE: an unknown key;
 * ERR_UNSUPPORTED: the template cannot do it, or chat_name is NULL (chat_refusal); ERR_LIMIT. */
status chat_render(const chat *self, const json_t *body, json_t *ignored, char **text, size_t *bytes);

#endif
