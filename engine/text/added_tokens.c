/* added_tokens.c - leftmost-longest search over a sorted list (see added_tokens.h). */
#include "text/added_tokens.h"
#include <stdlib.h>
#include <string.h>

static int compare_content(const void *a, const void *b) {
  const added_token *left = a, *right = b;
  uint32_t common = left->bytes < right->bytes ? left->bytes : right->bytes;
  int order = memcmp(left->content, right->content, common);
  if (order != 0) return order;
  return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

status added_tokens_open(added_tokens *set, const added_token *tokens, size_t count, bool is_normalized) {
  *set = (added_tokens){0};
  set->tokens = malloc((count + 1) * sizeof *set->tokens);
  if (set->tokens == NULL) return FAIL(ERR_LIMIT, "added tokens: out of memory");
  if (count > 0) memcpy(set->tokens, tokens, count * sizeof *tokens);
  qsort(set->tokens, count, sizeof *set->tokens, compare_content);
  for (size_t i = 0; i < count; i++) {
    added_token token = set->tokens[i];
    ASSERT(token.bytes > 0);
    if (i + 1 < count && compare_content(&token, &set->tokens[i + 1]) == 0)
      return FAIL(ERR_FORMAT, "added tokens: expected every content once, found \"%.*s\" twice", (int)token.bytes,
                  (const char *)token.content);
    if (token.is_normalized != is_normalized) continue;
    set->tokens[set->count++] = token; /* count <= i */
    set->is_first[token.content[0]] = 1;
    set->starts[token.content[0] + 1] = (uint32_t)set->count;
  }
  for (size_t c = 1; c <= 256; c++) set->starts[c] = max_u32(set->starts[c], set->starts[c - 1]);
  return OK;
}

void added_tokens_close(added_tokens *set) {
  free(set->tokens);
  *set = (added_tokens){0};
}

/* First index in [low, high) whose byte at depth is >= value. All these contents are longer than depth and equal before it. */
static size_t lower_bound(const added_tokens *set, size_t low, size_t high, uint32_t depth, uint32_t value) {
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (set->tokens[middle].content[depth] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* The longest content that is a prefix of text; NULL if there is none. Precondition: some content has its first byte. */
static const added_token *match_prefix(const added_tokens *set, const uint8_t *text, size_t bytes) {
  const added_token *longest = NULL;
  size_t low = set->starts[text[0]], high = set->starts[text[0] + 1];
  for (uint32_t depth = 1;; depth++) {
    if (set->tokens[low].bytes == depth) longest = &set->tokens[low++]; /* a prefix sorts before its extensions */
    if (low == high || depth == bytes) return longest;
    low = lower_bound(set, low, high, depth, text[depth]);
    high = lower_bound(set, low, high, depth, text[depth] + 1u);
    if (low == high) return longest;
  }
}

const added_token *added_tokens_find(const added_tokens *set, const uint8_t *text, size_t bytes, size_t from, size_t *start) {
  const uint8_t *is_first = set->is_first;
  for (size_t at = set->count == 0 ? bytes : from; at < bytes; at++) {
    while (bytes - at > 4 && !(is_first[text[at]] | is_first[text[at + 1]] | is_first[text[at + 2]] | is_first[text[at + 3]])) at += 4;
    if (!is_first[text[at]]) continue;
    const added_token *found = match_prefix(set, text + at, bytes - at);
    if (found == NULL) continue;
    *start = at;
    return found;
  }
  return NULL;
}
