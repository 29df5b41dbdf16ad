/* fuzz_tokens.h - what must be true of every tokenizer that opens, for the fuzz targets of tokenizer files.
 *
 * Ids are in the vocabulary, no text has more of them than it has bytes, the bytes of the ids are the text again, shown text is UTF-8, and
 * a second encoding gives the same ids. */
#ifndef VERBATIM_FUZZ_TOKENS_H
#define VERBATIM_FUZZ_TOKENS_H
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/base/utf8.h"
#include "fuzz.h"

#define FUZZ_TOKENS_TEXT_MAX 4096u

static inline void fuzz_tokens_check_vocabulary(const tokenizer *t) {
  uint32_t count = tokenizer_vocab_size(t);
  const int32_t *lead;
  size_t bytes = 0, leads = tokenizer_lead(t, &lead);
  ASSERT(count > 0 && tokenizer_bos(t) < (int32_t)count && tokenizer_eos(t) < (int32_t)count && leads <= 4);
  for (size_t i = 0; i < leads; i++) ASSERT(lead[i] >= 0 && lead[i] < (int32_t)count);
  volatile uint8_t sum = 0;
  for (uint32_t id = 0; id < count; id++) {
    const uint8_t *token = tokenizer_token_bytes(t, (int32_t)id, &bytes);
    for (size_t i = 0; token && i < bytes; i++) sum = (uint8_t)(sum + token[i]);
    (void)tokenizer_is_special(t, (int32_t)id);
  }
  ASSERT(tokenizer_token_bytes(t, (int32_t)count, &bytes) == NULL && tokenizer_token_bytes(t, -1, &bytes) == NULL);
}

/* Bytes to text like Python's errors="replace", computed from the table of well-formed sequences; out: room for 3 * bytes. */
static inline size_t fuzz_tokens_replace(const uint8_t *in, size_t bytes, char *out) {
  size_t used = 0;
  for (size_t at = 0; at < bytes;) {
    uint8_t lead = in[at], low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    size_t whole = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0, found = 1;
    for (; found < whole && at + found < bytes && in[at + found] >= low && in[at + found] <= high; found++) low = 0x80, high = 0xBF;
    memcpy(out + used, found == whole ? (const char *)in + at : "\xef\xbf\xbd", found == whole ? whole : 3);
    used += found == whole ? whole : 3;
    at += found;
  }
  return used;
}

/* The ids as bytes, and as shown text. */
static inline size_t fuzz_tokens_decode(const tokenizer *t, const int32_t *ids, size_t count, char *out, size_t room) {
  size_t used = 0, shown = 0, added = 0, bytes = 0;
  static char text[3 * FUZZ_TOKENS_TEXT_MAX * 8], expected[sizeof text];
  bool is_whole = true; /* there was room for everything */
  detokenizer d = {0};
  for (size_t i = 0; i < count; i++) {
    const uint8_t *token = tokenizer_token_bytes(t, ids[i], &bytes);
    ASSERT(token != NULL);
    if (bytes <= room - used) memcpy(out + used, token, bytes), used += bytes;
    else is_whole = false;
    if (detokenizer_push(t, &d, ids[i], text + shown, sizeof text - shown, &added) == OK) shown += added;
    else fail_clear(), is_whole = false;
  }
  if (detokenizer_flush(&d, text + shown, sizeof text - shown, &added) == OK) shown += added;
  ASSERT(utf8_valid_bytes((const uint8_t *)text, shown) == shown);
  ASSERT(!is_whole || used > sizeof expected / 3 ||
         (fuzz_tokens_replace((const uint8_t *)out, used, expected) == shown && memcmp(text, expected, shown) == 0));
  return used;
}

/* strips: added tokens may drop white space next to them. Text that is not UTF-8 must be refused. */
static inline void fuzz_tokens_check_text(const tokenizer *t, const char *text, size_t bytes, bool strips) {
  static int32_t ids[FUZZ_TOKENS_TEXT_MAX + 8], again[FUZZ_TOKENS_TEXT_MAX + 8];
  static char back[FUZZ_TOKENS_TEXT_MAX + 1024];
  ASSERT(bytes <= FUZZ_TOKENS_TEXT_MAX);
  bool is_text = utf8_valid_bytes((const uint8_t *)text, bytes) == bytes;
  for (unsigned flags = 0; flags < 4; flags++) {
    size_t count = 0, same = 0;
    fail_clear();
    status result = tokenizer_encode(t, text, bytes, flags & 1, flags & 2, ids, bytes + 8, &count);
    ASSERT(is_text || result == ERR_FORMAT);
    ASSERT(result == OK || !is_text || result == ERR_LIMIT); /* of a split pattern's match */
    if (!fuzz_is_ok(result)) return;
    ASSERT(tokenizer_encode(t, text, bytes, flags & 1, flags & 2, again, bytes + 8, &same) == OK);
    ASSERT(same == count && memcmp(ids, again, count * sizeof *ids) == 0);
    for (size_t i = 0; i < count; i++) ASSERT(ids[i] >= 0 && ids[i] < (int32_t)tokenizer_vocab_size(t));
    size_t used = fuzz_tokens_decode(t, ids, count, back, sizeof back);
    if ((flags & 1) == 0 && !strips) ASSERT(used == bytes && memcmp(back, text, bytes) == 0);
  }
}

static inline void fuzz_tokens_check(const tokenizer *t, bool strips) {
  static const char *const TEXTS[] = {"", "ab1 abc<s></s> [BOS]", "  Hello, it's 2024!\r\n\r\n\tx", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                      "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xe4\xb8\xad\xe6\x96\x87", "\x01\x7f\xef\xbf\xbd\xed\x9f\xbf"};
  char low[128];
  for (size_t i = 0; i < sizeof low; i++) low[i] = (char)i; /* NUL, too */
  fuzz_tokens_check_vocabulary(t);
  for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) fuzz_tokens_check_text(t, TEXTS[i], strlen(TEXTS[i]), strips);
  fuzz_tokens_check_text(t, low, sizeof low, strips);
  fuzz_tokens_check_text(t, "a\xff", 2, strips);
}

#endif
