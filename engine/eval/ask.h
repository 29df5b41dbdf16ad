/* eval/ask.h - what the engine is asked for an item: token ids first, then requests with room for what comes out.
 *
 * EVALUATION.md, "Requests", is normative. A choice becomes a scored request for each text, a perplexity one for each window, a generation
 * one for each sample. Tokens are those of `verbatim run` and `verbatim score`. Knows no engine: who opens one submits the requests. Read
 * next: eval/items.h, score_tokens.h, eval/results.h. */
#ifndef VERBATIM_EVAL_ASK_H
#define VERBATIM_EVAL_ASK_H
#include "base/base.h"
#include "chat/chat.h"
#include "eval/items.h"
#include "eval/task.h"
#include "jsonl/items.h"
#include "jsonl/score_tokens.h"
#include "text/tokenizer.h"
#include "verbatim.h"

#define EVAL_ASK_TOP 2u        /* alternatives of every token: how close it was */

/* A task's sampling parameters, in memory of `out`, which items_close releases. "task NAME: generation: ..." */
status eval_ask_params(const eval_task *task, items *out);

typedef struct eval_ask { /* an item's; zeroed: empty */
  score_tokens *lists;         /* [list_count]: generate and perplexity one, choice one for each text */
  uint32_t list_count, request_count;
  verbatim_request *requests;  /* [request_count], null until opened */
} eval_ask;

/* The ids, and how many requests there will be. params: null unless the task generates; c: null unless it
 * is a chat. */
status eval_ask_encode(const eval_task *task, const eval_item *of, const item_params *params, const tokenizer *t, const chat *c,
                       eval_ask *out);

/* No request is longer than max_len. ERR_LIMIT with a hint. */
status eval_ask_check(const eval_task *task, const eval_ask *self, const item_params *params, uint32_t max_len);

/* Makes the requests; their context is `context`. */
status eval_ask_open(eval_ask *self, const eval_task *task, const item_params *params, void *context);
void eval_ask_release(eval_ask *self); /* the requests and the ids */

/* The item as score_items.h has it, its texts borrowed: for its bytes and words. parts are to be freed. */
status eval_ask_view(const eval_task *task, const eval_item *of, score_item *out);

#endif
