/* serve/delta.h - the new part of a choice since its cursor, called a delta: text, and a range of tokens with their log-probabilities.
 *
 * Whole replies (a cursor at the start, everything ready) and streams (the choice's own cursor, what is ready so far) share this code, so
 * both contain the same. Knows requests and tokens, not the JSON of whole replies. Read next: serve/reply.c, serve/tokens.h. */
#ifndef VERBATIM_SERVE_DELTA_H
#define VERBATIM_SERVE_DELTA_H
#include "serve/request.h"
#include "serve/text.h"

typedef struct serve_ready { /* how far a choice has come; read under the request's mutex, or from a finished request */
  uint32_t tokens, scores;
  uint64_t text;
  bool finished;
  uint32_t delta_max; /* maximum number of tokens of prompt and answer in one delta; serve_delta_ready sets: all */
} serve_ready;

typedef struct serve_delta {
  serve_text text;     /* new UTF-8; of an answer that is read, its content */
  serve_text thought;  /* new, where it is apart */
  json_t *calls;       /* new: a list of {"index","id","name","arguments"}; NULL: none */
  uint32_t from, to;   /* new tokens of prompt and answer */
  bool first, last;    /* the choice's first delta, its last one */
  bool has_more;       /* more is ready, and left for the next delta */
} serve_delta;

serve_ready serve_delta_ready(const serve_choice *choice); /* locks the mutex */

/* Takes what is new. Advances the cursor in the text, and in the tokens except for their text offsets. The cursor holds memory of
 * answer_close. */
void serve_delta_take(const serve_model *m, const serve_choice *choice, const serve_ready *ready, serve_cursor *cursor, serve_delta *delta);
void serve_delta_close(serve_delta *delta);

/* For tokens delta->from to delta->to of a completion: {"text_offset":[...],"token_logprobs":[...],"tokens":[...],"top_logprobs":[...]}; of
 * a chat: {"content":[...]}. */
void serve_delta_logprobs(const serve_model *m, const serve_choice *choice, const serve_delta *delta, serve_cursor *cursor,
                          serve_text *out);

/* The prompt's: null, then for each token the most likely tokens by id. */
void serve_delta_prompt_logprobs(const serve_model *m, const serve_choice *choice, serve_text *out);

#endif
