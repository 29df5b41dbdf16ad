/* chat/text.h - the text that a chat renderer makes: grows up to a bound, and values written as Python writes them.
 *
 * A failure stays: what is put after it is dropped, and chat_text_take returns it, so that renderers are not a test for every literal.
 * Strings are counted, may hold NULs and are UTF-8 (jansson sees to it). Knows nothing of messages. Allocates: it runs when a
 * conversation comes in, beside the engine. Read next: chat/message.h. */
#ifndef VERBATIM_CHAT_TEXT_H
#define VERBATIM_CHAT_TEXT_H
#include <jansson.h>
#include "base/base.h"
#include "base/strbuf.h"

#define CHAT_TEXT_DEPTH_MAX 64 /* of a value written by chat_text_json */

typedef struct chat_span { /* somebody else's bytes */
  const char *bytes;
  size_t count;
} chat_span;

typedef struct chat_text { /* zeroed: empty */
  strbuf buffer;
  status failure;
} chat_text;

void chat_text_put(chat_text *self, chat_span span);
void chat_text_say(chat_text *self, const char *literal); /* up to its NUL */

/* json.dumps(value, ensure_ascii=False): separators ", " and ": ", or "," and ":" when is_tight; keys in the order they came in. */
void chat_text_json(chat_text *self, const json_t *value, bool is_tight);

/* The text with a NUL behind it, the caller's to free; or the failure, ERR_LIMIT, and nothing. self is empty after. */
status chat_text_take(chat_text *self, char **bytes, size_t *count);
void chat_text_close(chat_text *self);

/* === Pieces of text ========================================================================================== */

chat_span chat_text_strip(chat_span span);                     /* str.strip(): white space as Python knows it */
chat_span chat_text_strip_end(chat_span span);                 /* str.rstrip() */
chat_span chat_text_trim(chat_span span, bool start, bool end); /* newlines alone: lstrip("\n"), rstrip("\n") */

/* Where `piece` begins in span, the first or the last time; -1: nowhere. */
ptrdiff_t chat_text_find(chat_span span, const char *piece);
ptrdiff_t chat_text_find_last(chat_span span, const char *piece);

/* span.split(piece)[-1] and span.split(piece)[0]. */
chat_span chat_text_after_last(chat_span span, const char *piece);
chat_span chat_text_before_first(chat_span span, const char *piece);

#endif
