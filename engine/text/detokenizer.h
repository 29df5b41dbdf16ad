/* detokenizer.h - token ids to text, one at a time, never half a character.
 *
 * A token's bytes may end inside a UTF-8 sequence; those are held back until the sequence is whole or known to be broken.
 * Each maximal ill-formed part becomes one U+FFFD, as in Python's errors="replace". So the texts of all pushes and the flush, joined,
 * are what decoding all bytes at once gives.
 * Owned by value, no allocation. Read next: utf8.h. */
#ifndef VERBATIM_DETOKENIZER_H
#define VERBATIM_DETOKENIZER_H
#include "base/base.h"
#include "text/tokenizer.h"

typedef struct detokenizer {
  uint8_t pending[4]; /* a proper prefix of one UTF-8 sequence */
  uint8_t pending_bytes; /* 0..3; a zeroed detokenizer is ready */
} detokenizer;

/* Writes the text that bytes[0..count) complete to out[0..out_max), without a NUL, and its size (possibly 0) to out_bytes. ERR_LIMIT when
 * out_max is too small, with d and out_bytes untouched: 3 * (count + 3) is always enough. */
status detokenizer_push_bytes(detokenizer *d, const uint8_t *bytes, size_t count, char *out, size_t out_max, size_t *out_bytes);

/* The same for the bytes of a token. Ids that are no token of t add nothing. */
status detokenizer_push(const tokenizer *t, detokenizer *d, int32_t id, char *out, size_t out_max, size_t *out_bytes);

/* Writes what an incomplete sequence at the end becomes (one U+FFFD: 3 bytes, or nothing) and makes d ready again. */
status detokenizer_flush(detokenizer *d, char *out, size_t out_max, size_t *out_bytes);

#endif
