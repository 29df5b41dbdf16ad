/* common/conversation.h - a conversation as a prompt: its messages, rendered by the model's template, as token ids.
 *
 * Knows no requests. Read next: chat/chat.h, cli/chat.c. */
#ifndef VERBATIM_CLI_CONVERSATION_H
#define VERBATIM_CLI_CONVERSATION_H
#include "base/base.h"
#include "chat/chat.h"
#include "text/tokenizer.h"

#define CLI_CONVERSATION_HELP \
  "  --chat-template FILE  a Jinja template in place of the model's own\n"

/* Opens the template: of `file`, or if NULL of the model. ERR_UNSUPPORTED: there is none that can be used. */
status cli_conversation_open(chat **out, const char *model_dir, const char *file);

/* Appends a message. ERR_FORMAT: the text is not UTF-8; ERR_LIMIT: no memory. */
status cli_conversation_add(json_t *messages, const char *role, const char *text, size_t bytes);

/* The ids of the prompt that asks for the next answer. The caller frees *ids. The errors of chat_render and tokenizer_encode. */
status cli_conversation_encode(const chat *templates, tokenizer *t, json_t *messages, int32_t **ids, uint32_t *count);

#endif
