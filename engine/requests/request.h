/* request.h - one request by itself: is it valid under a model, what is its digest, how a result is added to it.
 *
 * Knows nothing of other requests, slots or steps. Read next: verbatim.h (the struct), schedule.h, receipt.h, stop_text.h. */
#ifndef VERBATIM_REQUEST_H
#define VERBATIM_REQUEST_H
#include "base/base.h"
#include "base/digest.h"
#include "kernels_src/abi.h"
#include "plan/plan.h"
#include "text/stop_text.h"
#include "text/tokenizer.h"
#include "verbatim.h"

typedef struct request_model { /* what requests are made to */
  const plan *plan;
  const uint8_t *weights_digest;   /* [DIGEST_BYTES] */
  const tokenizer *tokenizer;      /* null: no text  */
  const uint8_t *tokenizer_digest; /* [DIGEST_BYTES] */
  bool logits;                     /* rows can be had */
  bool trace;                      /* and rows of points */
} request_model;

/* ERR_USAGE or ERR_LIMIT names the field and what was expected. */
status request_check(const request_model *m, const verbatim_request *request);

/* Prompt tokens that are fed: all, or all but the last when nothing is made after it. */
uint32_t request_fed(const verbatim_request *request);

/* The id at a position of the prompt, or of a token made. */
int32_t request_token(const verbatim_request *request, uint32_t position);

/* KV pages the request needs: the last token, made or of the prompt, is never fed. */
uint32_t request_pages(const verbatim_request *request);

/* The first prompt position whose logits row is wanted; from there on all that are fed. request_fed(r) or more: none. */
uint32_t request_logits_from(const verbatim_request *request);

/* Clears the outputs and starts the digest chain. */
void request_start(const request_model *m, verbatim_request *request);

/* The token list: ascending ids with their biases. list: room for TOKEN_LIST_MAX. Returns how many. */
uint32_t request_list(const verbatim_request *request, token_bias *list);

/* What the device needs to know of the logits row that gives the token at `position`: a prompt position means that no token is chosen. */
sample_param request_sample(const verbatim_request *request, uint32_t position, uint32_t slot);

/* The token at `position` is one of the prompt, and to be scored. */
bool request_scores(const verbatim_request *request, uint32_t position);

/* Adds one result: of the scored prompt tokens in order, then of the tokens made. top: [TOP_LOGPROBS_MAX]. text: of the tokens made
 * before, which the caller moves on. Sets finish when the request is done. */
void request_push(const request_model *m, verbatim_request *request, const stop_text *text, const sample_result *result,
                  const top_logprob *top, uint64_t logits_digest);

/* Ends a request whose logits are not finite: the op of the plan that made the first number that is not, UINT32_MAX when none was found
 * again, and the token it belongs to. */
void request_break(const request_model *m, verbatim_request *request, uint32_t op, uint32_t position);

/* Still as it was with this finish and so many tokens: a callback may cancel a request, and submit it again. */
bool request_is_at(const verbatim_request *request, enum verbatim_finish finish, uint32_t token_count);

/* Shows the text that the token made last makes certain, or, without one (made false), the rest of what was held back. */
void request_show(const request_model *m, verbatim_request *request, stop_text *text, bool made);

/* Brings the text of a request that goes on after a preemption to where it was; what was shown is not shown again. */
void request_repeat_text(const request_model *m, const verbatim_request *request, stop_text *text);

/* top_p * 2^32 rounded to nearest, at least 1. */
uint64_t request_top_p_fixed(double top_p);

/* The bits of a number, of either zero those of +0. */
uint32_t request_bits(float value);
uint64_t request_wide_bits(double value);

/* The ids that stop the request, ascending, without repeats: the model's own (unless ignored) and the given ones.
 * ids: room for EOS_MAX + VERBATIM_STOP_IDS_MAX. Returns how many. */
uint32_t request_stop_ids(const plan *p, const verbatim_request *request, int32_t *ids);

#endif
