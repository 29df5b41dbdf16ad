/* detokenizer.h - token ids to text, one token at a time, never half a character.
 *
 * A token's bytes may end inside a UTF-8 sequence; those are held back until the sequence is complete or known to be ill-formed. Each
 * maximal ill-formed part becomes one U+FFFD, as with Python's errors="replace". So the texts of all pushes and the flush, joined, equal
 * the decoding of all bytes at once. Owned by value, no allocation. Read next: utf8.h. */
#ifndef VERBATIM_DETOKENIZER_H
#define VERBATIM_DETOKENIZER_H
#include "base/base.h"
#include "text/tokenizer.h"

typedef struct detokenizer {
  uint8_t pending[4]; /* a proper prefix of one UTF-8 sequence */
  uint8_t pending_bytes; /* 0..3; a zeroed detokenizer is ready */
} detokenizer;

/* Writes the text completed by bytes[0..count) to out[0..out_max), without a NUL, and its size (possibly 0) to out_bytes. ERR_LIMIT if
 * out_max is too small, with d and out_bytes untouched: 3 * (count + 3) is always enough. */
status detokenizer_push_bytes(detokenizer *d, const uint8_t *bytes, size_t count, char *out, size_t out_max, size_t *out_bytes);

/* The same for the bytes of a token. Ids that are not tokens of t add nothing. */
status detokenizer_push(const tokenizer *t, detokenizer *d, int32_t id, char *out, size_t out_max, size_t *out_bytes);

/* Writes the replacement of an incomplete sequence at the end (one U+FFFD of 3 bytes, or nothing) and resets d. */
status detokenizer_flush(detokenizer *d, char *out, size_t out_max, size_t *out_bytes);

#endif
