/* eval/request.h - turns an item into requests: its token ids first, then requests with room for their outputs.
 *
 * EVALUATION.md, "Requests", is normative. A choice item becomes a scored request per text, a perplexity item one per window, a generation
 * item one per sample. Tokens are those of `verbatim run` and `verbatim score`. Knows no engine: the caller that opens one submits the
 * requests. Read next: eval/items.h, score_tokens.h, eval/results.h. */
#ifndef VERBATIM_EVAL_REQUEST_H
#define VERBATIM_EVAL_REQUEST_H
#include "base/base.h"
#include "chat/chat.h"
#include "eval/items.h"
#include "eval/task.h"
#include "jsonl/items.h"
#include "jsonl/score_tokens.h"
#include "text/tokenizer.h"
#include "verbatim.h"

#define EVAL_REQUEST_TOP 2u        /* alternatives of every token: needed for margins */

/* A task's sampling parameters, in memory of `out`, which items_close releases. Errors begin with "task NAME: generation: ". */
status eval_request_params(const eval_task *task, items *out);

typedef struct eval_request { /* of one item; zeroed: empty */
  score_tokens *lists;         /* [list_count]: one for generate and perplexity, one per text for choice */
  uint32_t list_count, request_count;
  uint32_t dropped;            /* most tokens that were cut from the left of a list */
  bool is_skipped;             /* too long: there are no requests */
  verbatim_request *requests;  /* [request_count]; NULL until opened */
} eval_request;

/* Encodes the ids and counts the requests. params: NULL unless the task generates; c: NULL unless it is a chat. */
status eval_request_encode(const eval_task *task, const eval_item *of, const item_params *params, const tokenizer *t, const chat *c,
                       eval_request *out);

/* Makes an item that is too long for max_len what its task says: it is skipped, or cut from the left behind the tokens that the tokenizer
 * puts before a text. ERR_LIMIT, without a hint: it is refused, or there is not enough to cut. */
status eval_request_fit(const eval_task *task, eval_request *self, const item_params *params, const tokenizer *t, uint32_t max_len);

/* Builds the requests; their context is `context`. */
status eval_request_open(eval_request *self, const eval_task *task, const item_params *params, void *context);
void eval_request_release(eval_request *self); /* frees the requests and the ids */

/* The item in the form of score_items.h, for its bytes and words. Texts are borrowed; the caller frees parts. */
status eval_request_view(const eval_task *task, const eval_item *of, score_item *out);

#endif
