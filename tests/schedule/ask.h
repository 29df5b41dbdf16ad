/* ask.h - one request of a case as the engine takes it, with the memory for all it yields, and the comparison of two of them.
 *
 * Outputs are filled with a pattern before a request is submitted, so that what the engine leaves out is not taken for what it wrote.
 * Read next: case.h, engine/verbatim.h. */
#ifndef VERBATIM_ASK_H
#define VERBATIM_ASK_H
#include "case.h"
#include "engine/base/digest.h"
#include "engine/verbatim.h"

#define ASK_LISTS_MAX 64u
#define ASK_TEXTS_MAX 8u
#define ASK_WHAT_MAX 512u

typedef struct ask {
  verbatim_request request; /* first: callbacks find the ask by it */
  verbatim *engine;         /* where it is submitted */
  const case_request *from;
  uint32_t number;
  int32_t *prompt;
  verbatim_token *outputs;  /* [prompt_count + max_tokens] scores, then tokens */
  verbatim_alternative *alternatives;
  uint64_t alternative_count;
  verbatim_bias biases[ASK_LISTS_MAX];
  int32_t allowed[ASK_LISTS_MAX], stops[ASK_LISTS_MAX];
  verbatim_text texts[ASK_TEXTS_MAX];
  char letters[ASK_TEXTS_MAX][4];
  digest_state text, rows;  /* what on_text and on_logits were given */
  uint64_t text_bytes;
  uint32_t row_count, calls;
  char problem[128];        /* seen by a callback; "": none */
} ask;

/* Takes prompt, which ask_free frees; it holds at least one id and leaves room for max_tokens in len. */
void ask_make(ask *self, const case_request *from, uint32_t number, int32_t *prompt, uint32_t prompt_count, uint32_t len, uint32_t vocab);
void ask_free(ask *self);

/* Clears what was yielded, sets the callbacks and submits it. is_alone: no cancelling itself, no deadline. */
int ask_submit(ask *self, verbatim *engine, bool is_alone);

/* Whether found, which ended in a schedule, is what it must be by `alone`, which ran alone. May it have been ended by others (a
 * cancellation), then what it yielded must be the beginning. Else writes what differs first to what. */
bool ask_agrees(const ask *found, const ask *alone, bool may_be_cancelled, char what[ASK_WHAT_MAX]);

#endif
