/* serve/part.h - what of a choice is new since its cursor: text, and a range of tokens with their log-probabilities.
 *
 * One way for whole replies (a cursor at the start, everything ready) and for streams (the choice's own cursor, what is ready so far),
 * so that both hold the same. Knows requests and tokens, no JSON of whole replies. Read next: serve/reply.c, serve/tokens.h. */
#ifndef VERBATIM_SERVE_PART_H
#define VERBATIM_SERVE_PART_H
#include "serve/ask.h"
#include "serve/text.h"

typedef struct serve_ready { /* how far a choice has come: read under the ask's mutex, or of a finished request */
  uint32_t tokens, scores;
  uint64_t text;
  bool finished;
  uint32_t part_max; /* most tokens of prompt and answer that one part takes; serve_part_ready: all */
} serve_ready;

typedef struct serve_part {
  serve_text text;     /* UTF-8, new */
  uint32_t from, to;   /* tokens of prompt and answer, new */
  bool first, last;    /* the choice's first part, its last one */
  bool has_more;       /* is ready, and left for the next part */
} serve_part;

serve_ready serve_part_ready(const serve_choice *choice); /* takes the mutex */

/* What is new; moves the text's side of the cursor on, and its tokens' but for where they stand in the text. */
void serve_part_take(const serve_model *m, const serve_choice *choice, const serve_ready *ready, serve_cursor *cursor, serve_part *part);
void serve_part_close(serve_part *part);

/* Of tokens part->from to part->to of a completion, {"text_offset":[...],"token_logprobs":[...],"tokens":[...],"top_logprobs":[...]}; of a
 * chat {"content":[...]}. */
void serve_part_logprobs(const serve_model *m, const serve_choice *choice, const serve_part *part, serve_cursor *cursor, serve_text *out);

/* The prompt's: null, then of each token its likeliest by id. */
void serve_part_prompt_logprobs(const serve_model *m, const serve_choice *choice, serve_text *out);

#endif
