/* added_tokens.h - finds the tokens that stand outside the vocabulary ("<|user|>") in text.
 *
 * At each position from the left the longest content that matches there wins, and the search goes on behind it. The
 * tokens are kept sorted by content; matching narrows the sorted range byte by byte, so that a position costs at most
 * content length times log2(count) steps and no memory.
 * Knows nothing of JSON or merging. Read next: tokenizer_json.h. */
#ifndef VERBATIM_ADDED_TOKENS_H
#define VERBATIM_ADDED_TOKENS_H
#include "base/base.h"

#define ADDED_TOKEN_BYTES_MAX 512u

typedef struct added_token {
  const uint8_t *content;  /* [bytes] UTF-8, not empty; caller's, must outlive the set */
  uint32_t bytes;
  int32_t id;
  bool is_special;         /* left out of the text that is shown */
  bool is_control;         /* found only where the caller allows it; as a rule the special ones */
  bool is_normalized;      /* searched in a second pass, in what the first left */
  bool strips_left;        /* takes the white space before it along */
  bool strips_right;       /* ... and behind it */
} added_token;

typedef struct added_tokens {
  added_token *tokens;     /* [count] ascending by content */
  size_t count;
  uint32_t starts[257];    /* contents that begin with byte c are tokens[starts[c]] .. tokens[starts[c + 1]] */
  uint8_t is_first[256];   /* 1: there is one */
} added_tokens;

/* Copies the tokens whose is_normalized equals the argument. ERR_FORMAT when any two have the same content. */
status added_tokens_open(added_tokens *set, const added_token *tokens, size_t count, bool is_normalized);
void added_tokens_close(added_tokens *set); /* a zeroed set is allowed */

/* The first match at or behind from; NULL when there is none. start: its offset in text. */
const added_token *added_tokens_find(const added_tokens *set, const uint8_t *text, size_t bytes, size_t from, size_t *start);

#endif
