/* request.h - one request by itself: whether it is valid under a model, its digest, and how a result is added to it.
 *
 * Must not know other requests, slots or steps. Read next: verbatim.h (the struct), schedule.h, text/stop_text.h. */
#ifndef VERBATIM_REQUEST_H
#define VERBATIM_REQUEST_H
#include "base/base.h"
#include "base/digest.h"
#include "constrain/masks.h"
#include "kernels_src/abi.h"
#include "plan/plan.h"
#include "text/stop_text.h"
#include "text/tokenizer.h"
#include "verbatim.h"

/* What verbatim_request.engine_state holds while a request is with the engine. */
typedef struct __attribute__((may_alias)) request_state {
  verbatim_request *next; /* in the queue                                          */
  double submitted_at;    /* seconds; 0: it is not with the engine                 */
  uint32_t row_next;      /* the next position whose logits row is awaited         */
  uint32_t row_most;      /* token rows that were ever computed or reused: how far a preempted request had come */
} request_state;
_Static_assert(sizeof(request_state) == sizeof((verbatim_request *)0)->engine_state, "the engine's part of a request");

static inline request_state *request_state_of(const verbatim_request *request) {
  return (request_state *)(uintptr_t)&request->engine_state;
}

typedef struct request_model { /* what a request is valid under */
  const plan *plan;
  const uint8_t *weights_digest;   /* [DIGEST_BYTES] */
  const tokenizer *tokenizer;      /* null: no text  */
  const uint8_t *tokenizer_digest; /* [DIGEST_BYTES] */
  masks *masks;                    /* null: requests may have no constraint */
  bool logits;                     /* requests may ask for logits rows */
  bool trace;                      /* and for rows of trace points */
} request_model;

/* ERR_USAGE or ERR_LIMIT names the field and what was expected. */
status request_check(const request_model *m, const verbatim_request *request);

/* Prompt tokens that are computed: all, or all but the last when no token is generated after it. */
uint32_t request_computed(const verbatim_request *request);

/* The id at a position, of a prompt token or a generated one. */
int32_t request_token(const verbatim_request *request, uint32_t position);

/* KV pages the request needs: its last token, generated or of the prompt, is never computed. */
uint32_t request_pages(const verbatim_request *request);

/* The first prompt position whose logits row is wanted; so are those of all computed positions after it. request_computed(r) or more:
 * none. */
uint32_t request_logits_from(const verbatim_request *request);

/* Clears the outputs and starts the digest chain. */
void request_start(const request_model *m, verbatim_request *request);

/* The token list: ascending ids with their biases. list: room for TOKEN_LIST_MAX. Returns how many. */
uint32_t request_list(const verbatim_request *request, token_bias *list);

/* The sampling parameters of the logits row that gives the token at `position`; at a prompt position no token is chosen. */
sample_param request_sample(const verbatim_request *request, uint32_t position, uint32_t slot);

/* The state of the request's constraint after its generated tokens. */
uint32_t request_constrained(const request_model *m, const verbatim_request *request);

/* The token at `position` is a prompt token to be scored. */
bool request_scores(const verbatim_request *request, uint32_t position);

/* Adds one result: of the scored prompt tokens in order, then of the generated tokens. top: [TOP_LOGPROBS_MAX]. text: of the tokens
 * generated before, which the caller advances. Sets finish when the request is done. */
void request_push(const request_model *m, verbatim_request *request, const stop_text *text, const sample_result *result,
                  const top_logprob *top, uint64_t logits_digest);

/* Ends a request whose logits are not finite. op: the op of the plan that made the first such number, UINT32_MAX when none was found again;
 * position: of its token. */
void request_break(const request_model *m, verbatim_request *request, uint32_t op, uint32_t position);

/* Whether it still has this finish and so many tokens: a callback may cancel a request and submit it again. */
bool request_is_at(const verbatim_request *request, enum verbatim_finish finish, uint32_t token_count);

/* Emits the text that the newest token makes certain, or, without one (made false), the rest of what was held back. */
void request_show(const request_model *m, verbatim_request *request, stop_text *text, bool made);

/* Restores the text state of a request that resumes after a preemption; nothing is emitted twice. */
void request_repeat_text(const request_model *m, const verbatim_request *request, stop_text *text);

/* top_p * 2^32 rounded to nearest, at least 1. */
uint64_t request_top_p_fixed(double top_p);

/* The bits of a number; -0 has those of +0. */
uint32_t request_bits(float value);
uint64_t request_wide_bits(double value);

/* The ids that stop the request, ascending, without repeats: the model's own (unless ignored) and the given ones.
 * ids: room for EOS_MAX + VERBATIM_STOP_IDS_MAX. Returns how many. */
uint32_t request_stop_ids(const plan *p, const verbatim_request *request, int32_t *ids);

#endif
