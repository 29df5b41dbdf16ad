/* chat/text.h - the text that a chat renderer builds: bounded growth, and values written as Python writes them.
 *
 * A failure is remembered: later text is dropped, and chat_text_take returns the failure, so renderers need no test after every literal.
 * Strings are counted, may contain NULs and are UTF-8 (checked by jansson). Knows nothing of messages. Allocates: it runs when a
 * conversation arrives, next to the engine. Read next: chat/message.h, base/strbuf.h. */
#ifndef VERBATIM_CHAT_TEXT_H
#define VERBATIM_CHAT_TEXT_H
#include <jansson.h>
#include "base/base.h"
#include "base/strbuf.h"

#define CHAT_TEXT_DEPTH_MAX 64 /* nesting of a value written by chat_text_json */

typedef struct chat_span { /* borrowed bytes */
  const char *bytes;
  size_t count;
} chat_span;

typedef struct chat_text { /* zeroed: empty */
  strbuf buffer;
  status failure;
} chat_text;

void chat_text_put(chat_text *self, chat_span span);
void chat_text_say(chat_text *self, const char *literal); /* up to its NUL */

/* json.dumps(value, ensure_ascii=False), with separators ", " and ": ", or "," and ":" if is_tight; keys keep their order. */
void chat_text_json(chat_text *self, const json_t *value, bool is_tight);

/* Gives the text, followed by a NUL, to the caller, who frees it; or returns the failure, ERR_LIMIT. self is empty after. */
status chat_text_take(chat_text *self, char **bytes, size_t *count);
void chat_text_close(chat_text *self);

/* === Pieces of text ========================================================================================== */

chat_span chat_text_strip(chat_span span);                     /* str.strip(), with Python's white space */
chat_span chat_text_strip_end(chat_span span);                 /* str.rstrip() */
chat_span chat_text_trim(chat_span span, bool start, bool end); /* newlines only: lstrip("\n"), rstrip("\n") */

/* Offset of the first or the last occurrence of `piece` in span; -1: none. */
ptrdiff_t chat_text_find(chat_span span, const char *piece);
ptrdiff_t chat_text_find_last(chat_span span, const char *piece);

/* span.split(piece)[-1] and span.split(piece)[0]. */
chat_span chat_text_after_last(chat_span span, const char *piece);
chat_span chat_text_before_first(chat_span span, const char *piece);

#endif
