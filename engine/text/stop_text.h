/* stop_text.h - the text of a request, token by token: finds stop texts and shows only what is final.
 *
 * Text is detokenizer.h's; special tokens add none. Text that may still become part of a stop text is held back, so that shown text is
 * never withdrawn. New text is searched together with the last bytes before it, so tokens may have any length. Owned by value, no
 * allocation. Must not know requests. Read next: detokenizer.h, request.h. */
#ifndef VERBATIM_STOP_TEXT_H
#define VERBATIM_STOP_TEXT_H
#include "base/base.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "verbatim.h"

#define STOP_TEXT_TAIL (VERBATIM_STOP_TEXT_BYTES_MAX - 1) /* the most a stop text can have before the byte that completes it */
#define STOP_TEXT_NONE UINT32_MAX

typedef struct stop_text { /* zeroed: no text yet */
  detokenizer decoder;
  uint64_t bytes, shown; /* bytes of text so far; of these, passed to show */
  uint32_t tail_bytes;
  char tail[STOP_TEXT_TAIL]; /* the last bytes of the text */
} stop_text;

typedef struct stop_text_set {
  const verbatim_text *texts; /* [count], 1 .. VERBATIM_STOP_TEXT_BYTES_MAX bytes each */
  uint32_t count;
} stop_text_set;

typedef struct stop_text_match {
  uint32_t index; /* of the stop text in the set, or STOP_TEXT_NONE */
  uint64_t at;    /* where it begins: bytes of text before it     */
} stop_text_match;

/* Receives final text, in order. */
typedef void stop_text_show(void *context, const char *text, size_t bytes);

/* Finds, among the stop texts that the token would complete, the one that begins first; if several begin there, the first of the set. */
stop_text_match stop_text_find(const stop_text *self, const tokenizer *t, stop_text_set set, int32_t id);

/* Adds the token's text and shows what is final now: text before `end` (of a match; UINT64_MAX: none) in which no stop text can begin.
 * After a match nothing may be added. show NULL: shows nothing. */
void stop_text_push(stop_text *self, const tokenizer *t, stop_text_set set, int32_t id, uint64_t end, stop_text_show *show, void *context);

/* Shows the rest; for a text without a stop text, after its last token. */
void stop_text_flush(stop_text *self, stop_text_show *show, void *context);

#endif
