/* request.h - one request by itself: is it valid under a plan, what is its digest, how a result is added to it.
 *
 * Knows nothing of other requests, slots or steps. Read next: verbatim.h (the struct), schedule.h, receipt.h. */
#ifndef VERBATIM_REQUEST_H
#define VERBATIM_REQUEST_H
#include "base.h"
#include "digest.h"
#include "kernels_src/abi.h"
#include "plan.h"
#include "verbatim.h"

/* ERR_USAGE or ERR_LIMIT names the field and what was expected. */
status request_check(const plan *p, const verbatim_request *request, bool logits_on);

/* KV pages the request needs: the last token made is never fed back. */
uint32_t request_pages(const verbatim_request *request);

/* Clears the outputs and starts the digest chain. weights: digest of the weights in use. */
void request_start(const plan *p, const uint8_t weights[DIGEST_BYTES], verbatim_request *request);

/* What the device needs to choose token number `index` of the request. */
sample_param request_sample(const verbatim_request *request, uint32_t index, uint32_t slot);

/* Adds one result (token, log-probability, digest of its logits row); sets finish when the request is done. */
void request_push(const plan *p, verbatim_request *request, const sample_result *result, uint64_t logits_digest);

/* top_p * 2^32 rounded to nearest, at least 1. */
uint64_t request_top_p_fixed(double top_p);

/* The ids that stop the request, ascending, without repeats: the model's own (unless ignored) and the given ones.
 * ids: room for EOS_MAX + VERBATIM_STOP_IDS_MAX. Returns how many. */
uint32_t request_stop_ids(const plan *p, const verbatim_request *request, int32_t *ids);

#endif
