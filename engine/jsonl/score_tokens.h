/* score_tokens.h - from an item to the token lists that the engine scores, by the rules of lm-evaluation-harness.
 *
 * A pair of texts: white space at the end of the context moves to the front of the continuation. The context's ids are the tokenizer's
 * prefix ids (unless bos is false, or the context itself spells the prefix token first), then those of its text. The continuation's ids are
 * those of context and continuation encoded as one text, without the first n ids, where n is the length of the context alone. A context
 * without ids becomes the prefix token, which the continuation may itself spell. A whole text: the prefix token, then the text's ids; all
 * but the prefix token are scored, as the harness does with add_bos_token=False; otherwise it would score a second BOS. The prefix token is
 * the tokenizer's BOS, or else its EOS. Ids are used unchanged. Special tokens that a text spells are special. A list too long for a
 * sequence is split into windows that score every token once. Read next: score_items.h, tokenizer.h. */
#ifndef VERBATIM_SCORE_TOKENS_H
#define VERBATIM_SCORE_TOKENS_H
#include "base/base.h"
#include "jsonl/score_items.h"
#include "text/tokenizer.h"

typedef struct score_tokens { /* ids[from .. count) are scored, each given all ids before it; 1 <= from < count */
  int32_t *ids;
  uint32_t count, from;
} score_tokens;

/* The lists of an item with a context, one per part: lists[part_count], zeroed by the caller and closed by it also after an error. t may be
 * NULL for ids. Errors name the line and the continuation. */
status score_tokens_pairs(const tokenizer *t, bool bos, const score_item *item, score_tokens *lists);

/* The list of an item that is scored whole. */
status score_tokens_whole(const tokenizer *t, const score_item *item, score_tokens *list);
void score_tokens_close(score_tokens *list);

typedef struct score_window { /* ids[first .. first + count) of a list; those from `from` on are scored */
  uint32_t first, count, from;
} score_window;

/* The windows of a whole text's `count` ids in a sequence of max_len, at least 2: each scores the max_len - 1 tokens after those of the
 * previous window, given one token before them; the last is given as many before them as fit. */
uint32_t score_tokens_window_count(uint32_t count, uint32_t max_len);
score_window score_tokens_window(uint32_t count, uint32_t max_len, uint32_t index);

/* The bytes of a continuation that its log-probability is normalised by: without leading white space, which only separates it from the
 * context, unless it is all white space. */
uint64_t score_tokens_bytes(const score_part *continuation);

/* What acc_norm divides by: these bytes, or the characters among them. */
uint64_t score_tokens_norm(const score_part *continuation);

/* Words of a text, as word perplexity counts them: the runs of white space plus one. */
uint64_t score_tokens_words(const score_part *text);

#endif
