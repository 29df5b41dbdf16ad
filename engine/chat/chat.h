/* chat.h - conversations to prompt text, by native renderers of known templates.
 *
 * A model's template (chat_template.jinja, else chat_template of tokenizer_config.json) is known by its digest: a renderer writes, byte
 * for byte, what Jinja and transformers' apply_chat_template make of that text (tests/data/chat holds what they made). A template that is
 * not known is never guessed at. What a template would pass over in silence (tools, switches, results of tools) is refused.
 * Must not know of HTTP or tokens. A chat is only read once it is open, by any number of threads. Read next: chat.c, chat/message.h. */
#ifndef VERBATIM_CHAT_H
#define VERBATIM_CHAT_H
#include <jansson.h>
#include "base/base.h"

typedef struct chat chat;

/* ERR_IO, ERR_FORMAT; no template or an unknown one is not an error: chat_name is null then. */
status chat_open(chat **out, const char *model_dir);

/* The renderer of this name, whatever template the model has, for one who knows that it is the right one. ERR_USAGE: there is none. */
status chat_open_named(chat **out, const char *model_dir, const char *name);
void chat_close(chat *self); /* NULL is allowed */

const char *chat_name(const chat *self);    /* "deepseek_v3" ...; null: none known */
const char *chat_digest(const chat *self);  /* what the model's template is known by (chat_template_digest); null: it was not looked at */
const char *chat_refusal(const chat *self); /* why there is none, with the way out; "" where there is one */

/* What a template is known by: XXH3-128 of its text with "\n" as the end of lines and without what Jinja drops behind the last tag, in
 * hexadecimal. text is changed. */
void chat_template_digest(char *text, size_t bytes, char hexadecimal[33]);
const char *chat_template_name(const char *hexadecimal); /* the renderer of that template; null: it is not known */

/* body: the request's object. It reads
 *   messages                 role, content (text, or parts of type text), tool_calls, tool_call_id, name, reasoning_content, prefix: as
 *                            the template does
 *   tools                    a list of objects, or null
 *   add_generation_prompt    true unless it says otherwise or continue_final_message is true
 *   continue_final_message   the prompt ends where the last message's content does
 *   chat_template_kwargs     thinking, enable_thinking, clear_thinking: true or false, where the template reads them
 * text is the caller's to free, *bytes long, a NUL behind it; at most TOKENIZER_TEXT_BYTES_MAX. It spells special tokens, BOS among
 * them: encode it with parse_special, without add_special. ERR_FORMAT says what is wrong with which message; ERR_UNSUPPORTED what this
 * template does not do, or, where chat_name is null, chat_refusal; ERR_LIMIT. */
status chat_render(const chat *self, const json_t *body, char **text, size_t *bytes);

#endif
