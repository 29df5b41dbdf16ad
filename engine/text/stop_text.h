/* stop_text.h - the text that a request makes, token by token: where a stop text ends it, and what of it is certain.
 *
 * Text is as detokenizer.h makes it; special tokens add none. Text that may still become part of a stop text is held back, so that what was
 * shown never has to be taken back. A piece of text is looked at with the last bytes before it, so tokens may have any length.
 * Owned by value, no allocation. Must not know requests. Read next: detokenizer.h, request.h. */
#ifndef VERBATIM_STOP_TEXT_H
#define VERBATIM_STOP_TEXT_H
#include "base/base.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "verbatim.h"

#define STOP_TEXT_TAIL (VERBATIM_STOP_TEXT_BYTES_MAX - 1) /* what a stop text can have before the byte that completes it */
#define STOP_TEXT_NONE UINT32_MAX

typedef struct stop_text { /* zeroed: no text yet */
  detokenizer decoder;
  uint64_t bytes, shown; /* of text so far; of which handed to show */
  uint32_t tail_bytes;
  char tail[STOP_TEXT_TAIL]; /* the last bytes of the text */
} stop_text;

typedef struct stop_text_set {
  const verbatim_text *texts; /* [count], 1 .. VERBATIM_STOP_TEXT_BYTES_MAX bytes each */
  uint32_t count;
} stop_text_set;

typedef struct stop_text_match {
  uint32_t index; /* of the stop text, or STOP_TEXT_NONE          */
  uint64_t at;    /* where it begins: bytes of text before it     */
} stop_text_match;

/* Takes text that is certain, in order. */
typedef void stop_text_show(void *context, const char *text, size_t bytes);

/* Of the stop texts that the token would complete, the one that begins first; of several that begin there, the first of the set. */
stop_text_match stop_text_find(const stop_text *self, const tokenizer *t, stop_text_set set, int32_t id);

/* Adds the token's text and shows what is certain now: text in front of `end` (of a match; UINT64_MAX: there is none) that no stop text can
 * begin in. After a match nothing may be added. show null: nobody looks. */
void stop_text_push(stop_text *self, const tokenizer *t, stop_text_set set, int32_t id, uint64_t end, stop_text_show *show, void *context);

/* No token follows and no stop text was found: shows the rest. */
void stop_text_flush(stop_text *self, stop_text_show *show, void *context);

#endif
