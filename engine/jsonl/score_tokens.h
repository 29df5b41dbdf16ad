/* score_tokens.h - from an item to the token lists that the engine scores, by the rules of lm-evaluation-harness.
 *
 * A pair of texts: white space that ends the context moves to the front of the continuation. The context's ids are those that the tokenizer
 * puts before a text (unless bos is false, or the context spells the prefix token first), then those of the context. The continuation's
 * ids are those of context and continuation encoded as one text, without as many as the context alone has. A context without any ids
 * becomes the prefix token, which the continuation may spell itself.
 * A whole text: the prefix token, then the text's ids; all but the prefix token are scored: the harness with
 * add_bos_token=False, as it would score a BOS behind the BOS otherwise.
 * The prefix token is the tokenizer's BOS, or else its EOS. Ids are taken as they are. Spelled special tokens are special.
 * A list too long for a sequence is cut into windows that score every token once. Read next: score_items.h, tokenizer.h. */
#ifndef VERBATIM_SCORE_TOKENS_H
#define VERBATIM_SCORE_TOKENS_H
#include "base/base.h"
#include "jsonl/score_items.h"
#include "text/tokenizer.h"

typedef struct score_tokens { /* ids[from .. count) are scored, each by all before it; 1 <= from < count */
  int32_t *ids;
  uint32_t count, from;
} score_tokens;

/* The lists of an item with a context, one for each part: lists[part_count], zeroed before, to be closed also after an error. t may be
 * null for ids. Errors name the line and the continuation. */
status score_tokens_pairs(const tokenizer *t, bool bos, const score_item *item, score_tokens *lists);

/* The list of an item that is scored whole. */
status score_tokens_whole(const tokenizer *t, const score_item *item, score_tokens *list);
void score_tokens_close(score_tokens *list);

typedef struct score_window { /* ids[first .. first + count) of a list, of which those from `from` are scored */
  uint32_t first, count, from;
} score_window;

/* The windows of a whole text's list of count ids, in a sequence of max_len, at least 2: each scores the max_len - 1 tokens behind those of
 * the one before, and has one token before them; the last has as many before them as fit. */
uint32_t score_tokens_window_count(uint32_t count, uint32_t max_len);
score_window score_tokens_window(uint32_t count, uint32_t max_len, uint32_t index);

/* Bytes of a continuation that a normalised log-probability is divided by: without the white space at its front, which only separates
 * it from the context, unless there is nothing else. */
uint64_t score_tokens_bytes(const score_part *continuation);

/* Words of a text, as word perplexities count them: runs of white space, and one. */
uint64_t score_tokens_words(const score_part *text);

#endif
