/* chat.h - conversations to prompt text, by the model's own chat template.
 *
 * The template is interpreted (engine/jinja) and gives, byte for byte, what Jinja and transformers' apply_chat_template produce from it.
 * Input that it would silently ignore (tools, switches, results of tools, members of messages) is refused. Must not know HTTP or tokens.
 * Once open, a chat is read-only and usable from any number of threads. Read next: chat.c, chat/message.h, chat/keys.h. */
#ifndef VERBATIM_CHAT_H
#define VERBATIM_CHAT_H
#include <jansson.h>
#include "base/base.h"

typedef struct chat chat;

/* The template: of `file`, a Jinja text; if NULL, of the model: chat_template.jinja (with additional_chat_templates/tool_use.jinja), else
 * chat_template of tokenizer_config.json, else that of chat_template.json. Of a list of named ones, "default" is it, and "tool_use" serves
 * conversations with tools. ERR_IO, ERR_FORMAT. A missing template, or one that cannot be interpreted, is not an error unless `file` names
 * it: chat_name is NULL then. */
status chat_open(chat **out, const char *model_dir, const char *file);
void chat_close(chat *self); /* NULL is allowed */

const char *chat_name(const chat *self);    /* "jinja", or "deepseek_v32" (chat/deepseek_v32.h); NULL: no template */
const char *chat_digest(const chat *self);  /* XXH3-128 of the template, in hexadecimal; NULL: there is none */
const char *chat_given(const chat *self);   /* the text of `file`; NULL: the template is the model's own */
const char *chat_text(const chat *self, bool has_tools); /* the template for conversations with tools or without; NULL: there is none */
const char *chat_refusal(const chat *self); /* why there is no template, and what to do; "" if there is one */

/* body: the request's object. Keys read:
 *   messages                 role, content (text, or parts of type text), tool_calls, and what chat/keys.h lists
 *   tools                    a list of objects, or null
 *   add_generation_prompt    default true, or false if continue_final_message is true
 *   continue_final_message   the prompt ends where the last message's content does
 *   chat_template_kwargs     variables of the template, such as enable_thinking; null: not given. strftime_now is the date that the
 *                            template is shown, as "2025-07-31"
 * ignored: see chat_keys_check. The caller frees *text; it is *bytes long, followed by a NUL, and at most TOKENIZER_TEXT_BYTES_MAX. It
 * spells special tokens, BOS included: encode it with parse_special, without add_special. An error's text begins with the path of the field
 * that is at fault, followed by ": ", unless it concerns the whole prompt. ERR_FORMAT: a wrong value, or the template refuses;
 * ERR_USAGE: an unknown key; ERR_UNSUPPORTED: the template cannot do it, or chat_name is NULL (chat_refusal); ERR_LIMIT. */
status chat_render(const chat *self, const json_t *body, json_t *ignored, char **text, size_t *bytes);

#endif
