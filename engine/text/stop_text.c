/* stop_text.c - see stop_text.h. A token is decoded and searched in pieces of a fixed size. */
#include "text/stop_text.h"
#include <string.h>

#define PIECE_BYTES 64u                        /* of a token, decoded at once */
#define PIECE_TEXT_MAX (3u * (PIECE_BYTES + 3)) /* the limit of detokenizer.h for them */

typedef struct window { /* the tail followed by new text */
  char text[STOP_TEXT_TAIL + PIECE_TEXT_MAX];
  size_t old, count;
  uint64_t first; /* position of text[0] in the whole text */
} window;

/* Decodes the next piece after the tail, which is not updated yet. */
static void open_window(stop_text *self, const uint8_t *bytes, size_t count, window *w) {
  size_t added = 0;
  memcpy(w->text, self->tail, self->tail_bytes);
  w->old = self->tail_bytes;
  w->first = self->bytes - self->tail_bytes;
  status result = detokenizer_push_bytes(&self->decoder, bytes, count, w->text + w->old, sizeof w->text - w->old, &added);
  ASSERT(result == OK);
  w->count = w->old + added;
}

static void close_window(stop_text *self, const window *w) {
  size_t kept = w->count < STOP_TEXT_TAIL ? w->count : STOP_TEXT_TAIL;
  memcpy(self->tail, w->text + w->count - kept, kept);
  self->tail_bytes = (uint32_t)kept;
  self->bytes += w->count - w->old;
}

static const uint8_t *text_of(const tokenizer *t, int32_t id, size_t *bytes) {
  *bytes = 0;
  return tokenizer_is_special(t, id) ? NULL : tokenizer_token_bytes(t, id, bytes);
}

static void find_in(const window *w, stop_text_set set, stop_text_match *best) {
  for (size_t end = w->old + 1; end <= w->count; end++)
    for (uint32_t i = 0; i < set.count; i++) {
      size_t length = set.texts[i].count;
      if (length > end || memcmp(w->text + end - length, set.texts[i].bytes, length) != 0) continue;
      uint64_t at = w->first + end - length;
      if (best->index == STOP_TEXT_NONE || at < best->at || (at == best->at && i < best->index))
        *best = (stop_text_match){.index = i, .at = at};
    }
}

stop_text_match stop_text_find(const stop_text *self, const tokenizer *t, stop_text_set set, int32_t id) {
  stop_text_match best = {.index = STOP_TEXT_NONE, .at = UINT64_MAX};
  stop_text probe = *self;
  size_t bytes = 0;
  const uint8_t *token = text_of(t, id, &bytes);
  for (size_t at = 0; token && at < bytes; at += PIECE_BYTES) {
    window w;
    open_window(&probe, token + at, bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES, &w);
    find_in(&w, set, &best);
    close_window(&probe, &w);
  }
  return best;
}

/* Length of the longest proper prefix of a stop text that ends the text. */
static size_t uncertain(const window *w, stop_text_set set) {
  size_t longest = 0;
  for (uint32_t i = 0; i < set.count; i++) {
    size_t length = set.texts[i].count - 1 < w->count ? set.texts[i].count - 1 : w->count;
    while (length > longest && memcmp(w->text + w->count - length, set.texts[i].bytes, length) != 0) length--;
    if (length > longest) longest = length;
  }
  return longest;
}

static void show_until(stop_text *self, const window *w, uint64_t end, stop_text_show *show, void *context) {
  if (end <= self->shown) return;
  ASSERT(self->shown >= w->first && end <= w->first + w->count);
  if (show) show(context, w->text + (self->shown - w->first), (size_t)(end - self->shown));
  self->shown = end;
}

void stop_text_push(stop_text *self, const tokenizer *t, stop_text_set set, int32_t id, uint64_t end, stop_text_show *show,
                    void *context) {
  size_t bytes = 0;
  const uint8_t *token = text_of(t, id, &bytes);
  for (size_t at = 0; token && at < bytes; at += PIECE_BYTES) {
    window w;
    open_window(self, token + at, bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES, &w);
    uint64_t all = w.first + w.count, certain = end == UINT64_MAX ? all - uncertain(&w, set) : end < all ? end : all;
    show_until(self, &w, certain, show, context);
    close_window(self, &w);
  }
}

void stop_text_flush(stop_text *self, stop_text_show *show, void *context) {
  window w;
  size_t added = 0;
  open_window(self, NULL, 0, &w);
  status result = detokenizer_flush(&self->decoder, w.text + w.count, sizeof w.text - w.count, &added);
  ASSERT(result == OK);
  w.count += added;
  show_until(self, &w, w.first + w.count, show, context);
  close_window(self, &w);
}
