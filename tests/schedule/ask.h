/* ask.h - one request of a case in the form that the engine takes, with the memory for all its results, and the comparison of two of them.
 *
 * Outputs are filled with a pattern before a request is submitted, so that a value the engine failed to write cannot look like a result.
 * Read next: case.h, engine/verbatim.h. */
#ifndef VERBATIM_ASK_H
#define VERBATIM_ASK_H
#include "case.h"
#include "engine/base/digest.h"
#include "engine/verbatim.h"

#define ASK_LISTS_MAX 64u
#define ASK_TEXTS_MAX 8u
#define ASK_WHAT_MAX 512u

/* Who guesses a request's tokens: nobody but the engine; one that is always right, always wrong, right every other time; one that guesses a
 * stop id after a right token; one that names ids that do not exist after a right token. */
enum ask_drafter { ASK_NOBODY, ASK_RIGHT, ASK_WRONG, ASK_HALF, ASK_STOPS, ASK_INVALID, ASK_DRAFTERS };

typedef struct ask {
  verbatim_request request; /* first: callbacks get the ask from its address */
  verbatim *engine;         /* the engine it is submitted to */
  const case_request *from;
  const struct ask *truth;  /* the request alone, from which a drafter knows what is right; null: no drafter */
  uint32_t number, vocab;
  int32_t *prompt;
  verbatim_token *outputs;  /* [prompt_count + max_tokens] scores, then tokens */
  verbatim_alternative *alternatives;
  uint64_t alternative_count;
  verbatim_bias biases[ASK_LISTS_MAX];
  int32_t allowed[ASK_LISTS_MAX], stops[ASK_LISTS_MAX];
  verbatim_text texts[ASK_TEXTS_MAX];
  char letters[ASK_TEXTS_MAX][4];
  digest_state text, rows;  /* everything that on_text and on_logits received */
  uint64_t text_bytes;
  uint32_t row_count, calls;
  char problem[128];        /* noticed by a callback; "": none */
} ask;

/* Takes ownership of prompt, which ask_free frees; it holds at least one id and leaves room for max_tokens in len. */
void ask_make(ask *self, const case_request *from, uint32_t number, int32_t *prompt, uint32_t prompt_count, uint32_t len, uint32_t vocab);
void ask_free(ask *self);

/* Clears the results, sets the callbacks and submits the request. is_alone: it does not cancel itself and has no deadline. */
int ask_submit(ask *self, verbatim *engine, bool is_alone);

/* Whether `found`, which ended in a schedule, equals `alone`, which ran alone. If it may have been ended early (by a cancellation), its
 * results must be a prefix of those. Otherwise writes the first difference to `what`. */
bool ask_agrees(const ask *found, const ask *alone, bool may_be_cancelled, char what[ASK_WHAT_MAX]);

#endif
