/* added_tokens.h - finds in a text the tokens that are defined outside the vocabulary ("<|user|>").
 *
 * At each position from the left the longest matching content wins, and the search continues after it. The tokens are sorted by content;
 * matching narrows the sorted range byte by byte, so a position costs at most content length times log2(count) steps and no memory. Knows
 * nothing of JSON or merging. Read next: tokenizer_json.h. */
#ifndef VERBATIM_ADDED_TOKENS_H
#define VERBATIM_ADDED_TOKENS_H
#include "base/base.h"

#define ADDED_TOKEN_BYTES_MAX 512u

typedef struct added_token {
  const uint8_t *content;  /* [bytes] UTF-8, not empty; owned by the caller, must outlive the set */
  uint32_t bytes;
  int32_t id;
  bool is_special;         /* not shown in decoded text */
  bool is_control;         /* found only where the caller allows it; usually the special ones */
  bool is_normalized;      /* searched in a second pass, in the text that the first left */
  bool strips_left;        /* includes the white space before it */
  bool strips_right;       /* includes the white space after it */
} added_token;

typedef struct added_tokens {
  added_token *tokens;     /* [count] ascending by content */
  size_t count;
  uint32_t starts[257];    /* contents that begin with byte c are tokens[starts[c]] .. tokens[starts[c + 1] - 1] */
  uint8_t is_first[256];   /* 1: some content begins with this byte */
} added_tokens;

/* Copies the tokens whose is_normalized equals the argument. ERR_FORMAT if two have the same content. */
status added_tokens_open(added_tokens *set, const added_token *tokens, size_t count, bool is_normalized);
void added_tokens_close(added_tokens *set); /* may be zeroed */

/* The first match at or after `from`; NULL if there is none. start: its offset in text. */
const added_token *added_tokens_find(const added_tokens *set, const uint8_t *text, size_t bytes, size_t from, size_t *start);

#endif
