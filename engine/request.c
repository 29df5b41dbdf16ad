/* request.c - see request.h. */
#include "request.h"
#include <math.h>
#include <string.h>

#define TEMPERATURE_MIN 1e-3f
#define TEMPERATURE_MAX 100.0f

uint32_t request_pages(const verbatim_request *request) {
  return (uint32_t)div_up((uint64_t)request->prompt_count + request->max_tokens - 1, PAGE_TOKENS);
}

uint64_t request_top_p_fixed(double top_p) {
  uint64_t fixed = (uint64_t)(top_p * 4294967296.0 + 0.5);
  return fixed ? fixed : 1;
}

static status check_sizes(const plan *p, const verbatim_request *r) {
  const plan_limits *limits = &p->header->limits;
  if (!r->prompt || r->prompt_count == 0) return FAIL(ERR_USAGE, "request: the prompt is empty; expected at least one token");
  if (r->max_tokens == 0) return FAIL(ERR_USAGE, "request: max_tokens: expected 1 or more, found 0");
  if (!r->tokens || !r->logprobs || !r->digests) return FAIL(ERR_USAGE, "request: no memory for its outputs");
  if ((uint64_t)r->prompt_count + r->max_tokens > limits->max_len)
    return FAIL(ERR_LIMIT, "request: %u prompt tokens and max_tokens %u exceed the plan's max_len %u, hint: shorten it, or plan "
                "with a larger max_len", r->prompt_count, r->max_tokens, limits->max_len);
  if (request_pages(r) > limits->kv_pages)
    return FAIL(ERR_LIMIT, "request: it needs %u KV pages, the plan has %u, hint: plan with a larger kv_pages", request_pages(r),
                limits->kv_pages);
  return OK;
}

static status check_ids(const char *what, const int32_t *ids, uint32_t count, uint32_t vocab) {
  for (uint32_t i = 0; i < count; i++)
    if (ids[i] < 0 || (uint32_t)ids[i] >= vocab)
      return FAIL(ERR_USAGE, "request: %s %u: expected a token id of 0 to %u, found %d", what, i, vocab - 1, ids[i]);
  return OK;
}

status request_check(const plan *p, const verbatim_request *r, bool logits_on) {
  TRY(check_sizes(p, r));
  TRY(check_ids("prompt token", r->prompt, r->prompt_count, p->header->model.vocab));
  if (r->stop_count > VERBATIM_STOP_IDS_MAX)
    return FAIL(ERR_LIMIT, "request: %u stop ids, at most %u are allowed", r->stop_count, VERBATIM_STOP_IDS_MAX);
  TRY(check_ids("stop id", r->stop_ids, r->stop_count, p->header->model.vocab));
  if (!(r->temperature == 0.0f || (r->temperature >= TEMPERATURE_MIN && r->temperature <= TEMPERATURE_MAX)))
    return FAIL(ERR_USAGE, "request: temperature: expected 0 or %g to %g, found %g", (double)TEMPERATURE_MIN,
                (double)TEMPERATURE_MAX, (double)r->temperature);
  if (!(r->top_p > 0.0 && r->top_p <= 1.0))
    return FAIL(ERR_USAGE, "request: top_p: expected more than 0 and at most 1, found %g", r->top_p);
  if (r->on_logits && !logits_on) return FAIL(ERR_USAGE, "request: it wants logits of an engine opened without them");
  return OK;
}

uint32_t request_stop_ids(const plan *p, const verbatim_request *r, int32_t *ids) {
  uint32_t count = 0, own = r->ignore_eos ? 0 : p->header->model.eos_count;
  for (uint32_t i = 0; i < own + r->stop_count; i++) {
    int32_t id = i < own ? (int32_t)p->header->model.eos[i] : r->stop_ids[i - own];
    uint32_t at = count;
    while (at > 0 && ids[at - 1] > id) at--;
    if (at > 0 && ids[at - 1] == id) continue;
    memmove(ids + at + 1, ids + at, (count - at) * sizeof *ids);
    ids[at] = id;
    count++;
  }
  return count;
}

/* -0 and +0 ask for the same. */
static float plain_temperature(const verbatim_request *r) { return r->temperature == 0.0f ? 0.0f : r->temperature; }

void request_start(const plan *p, const uint8_t weights[DIGEST_BYTES], verbatim_request *r) {
  int32_t stops[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  const struct { uint32_t prompt_count, max_tokens, top_k, stop_count; uint64_t top_p_fixed, seed; float temperature; uint32_t pad; }
      fields = {.prompt_count = r->prompt_count, .max_tokens = r->max_tokens, .top_k = r->top_k,
                .stop_count = request_stop_ids(p, r, stops), .top_p_fixed = request_top_p_fixed(r->top_p), .seed = r->seed,
                .temperature = plain_temperature(r)};
  digest_state state;
  digest_start(&state);
  digest_add(&state, p->header->numerics_id, DIGEST_BYTES);
  digest_add(&state, weights, DIGEST_BYTES);
  digest_add(&state, &fields, sizeof fields);
  digest_add(&state, stops, fields.stop_count * sizeof *stops);
  digest_add(&state, r->prompt, r->prompt_count * sizeof *r->prompt);
  digest start = digest_end(&state);
  memcpy(r->request_digest, start.bytes, DIGEST_BYTES);
  memcpy(r->chain, start.bytes, DIGEST_BYTES);
  r->token_count = 0;
  r->finish = VERBATIM_RUNNING;
}

sample_param request_sample(const verbatim_request *r, uint32_t index, uint32_t slot) {
  return (sample_param){.seed = r->seed, .top_p_fixed = request_top_p_fixed(r->top_p), .temperature = plain_temperature(r),
                        .top_k = r->top_k, .position = r->prompt_count + index, .sample_index = 0, .slot = slot};
}

void request_push(const plan *p, verbatim_request *r, const sample_result *result, uint64_t logits_digest) {
  ASSERT(r->finish == VERBATIM_RUNNING && r->token_count < r->max_tokens);
  if (result->nonfinite) {
    r->finish = VERBATIM_NONFINITE;
    return;
  }
  uint32_t index = r->token_count;
  r->tokens[index] = result->token;
  r->logprobs[index] = result->logprob;
  r->digests[index] = logits_digest;
  struct { uint8_t previous[DIGEST_BYTES]; uint32_t position; int32_t token; float logprob; uint32_t zero; uint64_t logits; } link = {
    .position = r->prompt_count + index, .token = result->token, .logprob = result->logprob, .logits = logits_digest};
  memcpy(link.previous, r->chain, DIGEST_BYTES);
  digest next = digest_of(&link, sizeof link);
  memcpy(r->chain, next.bytes, DIGEST_BYTES);
  r->token_count = index + 1;
  int32_t stops[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  uint32_t stop_count = request_stop_ids(p, r, stops);
  for (uint32_t i = 0; i < stop_count; i++)
    if (stops[i] == result->token) r->finish = VERBATIM_STOP;
  if (r->finish == VERBATIM_RUNNING && r->token_count == r->max_tokens) r->finish = VERBATIM_LENGTH;
}
