/* request.c - see request.h. Checks, then the inputs of the device, then the digest chain and the results. */
#include "requests/request.h"
#include "plan/guarantee.h"
#include "base/trig.h"
#include "base/utf8.h"
#include "requests/stop_ids.h"
#include <math.h>
#include <string.h>

#define TEMPERATURE_MIN 1e-3f
#define TEMPERATURE_MAX 100.0f
#define MIN_P_MIN 1e-30
#define REPETITION_MIN 0.0625f
#define REPETITION_MAX 16.0f
#define PENALTY_MAX 16.0f
#define BIAS_MAX 1000.0f
#define DEADLINE_SECONDS_MAX 1e9

_Static_assert(VERBATIM_BIASES_MAX == TOKEN_LIST_MAX && VERBATIM_TOP_LOGPROBS_MAX == TOP_LOGPROBS_MAX, "one limit");

/* === Checks ================================================================================================================= */

uint32_t request_computed(const verbatim_request *r) { return r->max_tokens ? r->prompt_count : r->prompt_count - 1; }

int32_t request_token(const verbatim_request *r, uint32_t position) {
  return position < r->prompt_count ? r->prompt[position] : r->tokens[position - r->prompt_count].id;
}

uint32_t request_pages(const verbatim_request *r) {
  return (uint32_t)div_up((uint64_t)r->prompt_count + r->max_tokens - 1, PAGE_TOKENS);
}

static uint32_t score_total(const verbatim_request *r) { return r->score ? r->prompt_count - r->score_from : 0; }

static status check_sizes(const plan *p, const verbatim_request *r) {
  const plan_limits *limits = &p->header->limits;
  if (!r->prompt || r->prompt_count == 0) return FAIL(ERR_USAGE, "request: the prompt is empty; expected at least one token");
  if (r->max_tokens == 0 && !r->score) return FAIL(ERR_USAGE, "request: max_tokens: expected 1 or more, found 0");
  if (r->score && (r->score_from == 0 || r->score_from >= r->prompt_count))
    return FAIL(ERR_USAGE, "request: score_from: expected 1 or more and less than the prompt's %u tokens, found %u", r->prompt_count,
                r->score_from);
  if (!r->score && r->score_from) return FAIL(ERR_USAGE, "request: score_from: expected 0 without score, found %u", r->score_from);
  uint32_t most = min_u32(VERBATIM_TOP_LOGPROBS_MAX, p->header->model.vocab);
  if (r->top_logprobs > most) return FAIL(ERR_USAGE, "request: top_logprobs: expected 0 to %u, found %u", most, r->top_logprobs);
  if ((r->max_tokens && !r->tokens) || (r->score && !r->scores) || (r->top_logprobs && !r->alternatives))
    return FAIL(ERR_USAGE, "request: no memory for its outputs");
  if ((uint64_t)r->prompt_count + r->max_tokens > limits->max_len)
    return FAIL(ERR_LIMIT, "request: %u prompt tokens and max_tokens %u exceed the plan's max-model-len %u; hint: shorten it, or plan "
                "with a larger max-model-len", r->prompt_count, r->max_tokens, limits->max_len);
  if (request_pages(r) > limits->kv_pages)
    return FAIL(ERR_LIMIT, "request: it needs %u KV pages, the plan has %u; hint: plan with a larger kv-pages", request_pages(r),
                limits->kv_pages);
  return OK;
}

static status check_count(const char *what, uint32_t count, uint32_t most, const void *items) {
  if (count > most) return FAIL(ERR_LIMIT, "request: %u %s, at most %u are allowed", count, what, most);
  return count && !items ? FAIL(ERR_USAGE, "request: %u %s, but no list of them", count, what) : OK;
}

static status check_id(const char *what, uint32_t index, int32_t id, uint32_t vocab) {
  if (id >= 0 && (uint32_t)id < vocab) return OK;
  return FAIL(ERR_USAGE, "request: %s %u: expected a token id of 0 to %u, found %d", what, index, vocab - 1, id);
}

static status check_ids(const char *what, const int32_t *ids, uint32_t count, uint32_t vocab) {
  for (uint32_t i = 0; i < count; i++) TRY(check_id(what, i, ids[i], vocab));
  return OK;
}

static status check_range(const char *what, double value, double least, double most) {
  if (value >= least && value <= most) return OK; /* not NaN */
  return FAIL(ERR_USAGE, "request: %s: expected %g to %g, found %g", what, least, most, value);
}

static status check_choice(const verbatim_request *r) {
  if (!(r->temperature == 0.0f || (r->temperature >= TEMPERATURE_MIN && r->temperature <= TEMPERATURE_MAX)))
    return FAIL(ERR_USAGE, "request: temperature: expected 0 or %g to %g, found %g", (double)TEMPERATURE_MIN,
                (double)TEMPERATURE_MAX, (double)r->temperature);
  if (!(r->top_p > 0.0 && r->top_p <= 1.0))
    return FAIL(ERR_USAGE, "request: top_p: expected more than 0 and at most 1, found %g", r->top_p);
  if (!(r->min_p == 0.0 || (r->min_p >= MIN_P_MIN && r->min_p <= 1.0)))
    return FAIL(ERR_USAGE, "request: min_p: expected 0 or %g to 1, found %g", MIN_P_MIN, r->min_p);
  TRY(check_range("repetition_penalty", (double)r->repetition_penalty, (double)REPETITION_MIN, (double)REPETITION_MAX));
  TRY(check_range("presence_penalty", (double)r->presence_penalty, -(double)PENALTY_MAX, (double)PENALTY_MAX));
  return check_range("frequency_penalty", (double)r->frequency_penalty, -(double)PENALTY_MAX, (double)PENALTY_MAX);
}

static status check_lists(const verbatim_request *r, uint32_t vocab) {
  TRY(check_count("biases", r->bias_count, VERBATIM_BIASES_MAX, r->biases));
  for (uint32_t i = 0; i < r->bias_count; i++) {
    TRY(check_id("bias", i, r->biases[i].token, vocab));
    TRY(check_range("bias", (double)r->biases[i].bias, -(double)BIAS_MAX, (double)BIAS_MAX));
    for (uint32_t j = 0; j < i; j++)
      if (r->biases[j].token == r->biases[i].token) return FAIL(ERR_USAGE, "request: two biases of token %d", r->biases[i].token);
  }
  TRY(check_count("allowed ids", r->allowed_count, VERBATIM_BIASES_MAX, r->allowed_ids));
  TRY(check_ids("allowed id", r->allowed_ids, r->allowed_count, vocab));
  for (uint32_t i = 0; i < r->allowed_count; i++)
    for (uint32_t j = 0; j < i; j++)
      if (r->allowed_ids[j] == r->allowed_ids[i]) return FAIL(ERR_USAGE, "request: token %d is allowed twice", r->allowed_ids[i]);
  return OK;
}

static status check_constraint(const request_model *m, const verbatim_request *r) {
  int32_t stops[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  if (!r->constraint) return OK;
  if (!m->tokenizer) return FAIL(ERR_USAGE, "request: it has a constraint, the engine was opened without text");
  if (!m->masks)
    return FAIL(ERR_UNSUPPORTED, "request: it has a constraint, for which the plan has no room; hint: plan with structured-outputs: on");
  if (r->allowed_count) return FAIL(ERR_USAGE, "request: expected allowed ids or a constraint, found both");
  if (request_stop_ids(m->plan, r, stops) == 0)
    return FAIL(ERR_USAGE, "request: a constraint needs a stop id, which ends the answer; hint: no ignore_eos, or stop ids");
  return vocabulary_check(&m->masks->vocabulary, &r->constraint->automaton);
}

/* A stop text that is not UTF-8 would never be found in output, which is. */
static status check_stops(const request_model *m, const verbatim_request *r) {
  TRY(check_count("stop ids", r->stop_count, VERBATIM_STOP_IDS_MAX, r->stop_ids));
  TRY(check_ids("stop id", r->stop_ids, r->stop_count, m->plan->header->model.vocab));
  TRY(check_count("stop texts", r->stop_text_count, VERBATIM_STOP_TEXTS_MAX, r->stop_texts));
  for (uint32_t i = 0; i < r->stop_text_count; i++) {
    const verbatim_text *text = &r->stop_texts[i];
    if (text->count == 0 || text->count > VERBATIM_STOP_TEXT_BYTES_MAX)
      return FAIL(ERR_USAGE, "request: stop text %u: expected 1 to %u bytes, found %zu", i, VERBATIM_STOP_TEXT_BYTES_MAX, text->count);
    if (!text->bytes) return FAIL(ERR_USAGE, "request: stop text %u: expected text, found a null pointer", i);
    if (utf8_valid_bytes((const uint8_t *)text->bytes, text->count) != text->count)
      return FAIL(ERR_USAGE, "request: stop text %u: expected UTF-8", i);
  }
  if (r->stop_text_count && !m->tokenizer) return FAIL(ERR_USAGE, "request: it has stop texts, the engine was opened without text");
  if (r->on_text && !m->tokenizer) return FAIL(ERR_USAGE, "request: it wants text of an engine opened without it");
  return OK;
}

status request_check(const request_model *m, const verbatim_request *r) {
  uint32_t vocab = m->plan->header->model.vocab;
  TRY(check_sizes(m->plan, r));
  TRY(check_ids("prompt token", r->prompt, r->prompt_count, vocab));
  TRY(check_choice(r));
  TRY(check_lists(r, vocab));
  TRY(check_stops(m, r));
  TRY(check_constraint(m, r));
  if (r->on_logits && !m->logits) return FAIL(ERR_USAGE, "request: it wants logits of an engine opened without them");
  if ((r->on_trace || r->on_values) && !m->trace) return FAIL(ERR_USAGE, "request: it wants the rows of an engine opened without trace");
  if (!r->on_values != !r->wants_values) return FAIL(ERR_USAGE, "request: on_values and wants_values: expected both or neither");
  if (!(r->deadline_seconds >= 0 && r->deadline_seconds <= DEADLINE_SECONDS_MAX))
    return FAIL(ERR_USAGE, "request: deadline_seconds: expected 0 to %g, found %g", DEADLINE_SECONDS_MAX, r->deadline_seconds);
  return guarantee_check(m->plan, r->required, r->required_count);
}

/* === What is asked for ====================================================================================================== */

uint64_t request_top_p_fixed(double top_p) {
  uint64_t fixed = (uint64_t)(top_p * 4294967296.0 + 0.5);
  return fixed ? fixed : 1;
}

uint32_t request_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return value == 0.0f ? 0 : bits;
}

uint64_t request_wide_bits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return value == 0.0 ? 0 : bits;
}

static float plain(float value) { return value == 0.0f ? 0.0f : value; } /* -0 and +0 mean the same */

uint32_t request_stop_ids(const plan *p, const verbatim_request *r, int32_t *ids) {
  return stop_ids_join(p->header->model.eos, r->ignore_eos ? 0 : p->header->model.eos_count, r->stop_ids, r->stop_count, ids);
}

static float bias_of(const verbatim_request *r, int32_t id) {
  for (uint32_t i = 0; i < r->bias_count; i++)
    if (r->biases[i].token == id) return plain(r->biases[i].bias);
  return 0.0f;
}

static uint32_t list_count(const verbatim_request *r) { return r->allowed_count ? r->allowed_count : r->bias_count; }

uint32_t request_list(const verbatim_request *r, token_bias *list) {
  uint32_t count = list_count(r);
  for (uint32_t i = 0; i < count; i++) {
    int32_t id = r->allowed_count ? r->allowed_ids[i] : r->biases[i].token;
    uint32_t at = i;
    for (; at > 0 && list[at - 1].token > id; at--) list[at] = list[at - 1];
    list[at] = (token_bias){.token = id, .bias = bias_of(r, id)};
  }
  return count;
}

uint32_t request_constrained(const request_model *m, const verbatim_request *r) {
  uint32_t state = AUTOMATON_START;
  for (uint32_t i = 0; i < r->token_count; i++)
    state = vocabulary_advance(&m->masks->vocabulary, &r->constraint->automaton, state, r->tokens[i].id);
  return state;
}

bool request_scores(const verbatim_request *r, uint32_t position) {
  return r->score && position >= r->score_from && position < r->prompt_count;
}

uint32_t request_logits_from(const verbatim_request *r) {
  if (r->on_logits) return 0;
  return r->score ? r->score_from - 1 : r->prompt_count - 1;
}

/* How far below the largest logit a token is min_p times as likely as the likeliest. */
static float min_p_bound(const verbatim_request *r) {
  if (r->min_p == 0.0 || r->temperature == 0.0f) return -INFINITY;
  return (float)((double)r->temperature * trig_log(r->min_p));
}

sample_param request_sample(const verbatim_request *r, uint32_t position, uint32_t slot) {
  if (position < r->prompt_count)
    return (sample_param){.top_p_fixed = 1ull << 32, .min_p_bound = -INFINITY, .repetition = 1, .position = position, .slot = slot,
                          .prompt_count = r->prompt_count, .target = r->prompt[position],
                          .top_count = request_scores(r, position) ? r->top_logprobs : 0};
  bool is_penalised = r->repetition_penalty != 1.0f || r->presence_penalty != 0.0f || r->frequency_penalty != 0.0f;
  return (sample_param){.seed = r->seed, .top_p_fixed = request_top_p_fixed(r->top_p), .temperature = plain(r->temperature),
                        .min_p_bound = min_p_bound(r), .repetition = r->repetition_penalty, .presence = plain(r->presence_penalty),
                        .frequency = plain(r->frequency_penalty), .top_k = r->top_k, .position = position,
                        .sample_index = r->sample_index, .slot = slot, .prompt_count = r->prompt_count, .target = -1,
                        .top_count = r->top_logprobs, .adjusted = is_penalised || list_count(r), .list_count = list_count(r),
                        .list_only = r->allowed_count != 0};
}

/* === Digests ================================================================================================================ */

static void add_stop_texts(digest_state *state, const verbatim_request *r) {
  for (uint32_t i = 0; i < r->stop_text_count; i++) {
    uint32_t bytes = (uint32_t)r->stop_texts[i].count;
    digest_add(state, &bytes, sizeof bytes);
    digest_add(state, r->stop_texts[i].bytes, bytes);
  }
}

void request_start(const request_model *m, verbatim_request *r) {
  static const uint8_t none[DIGEST_BYTES];
  int32_t stops[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  token_bias list[TOKEN_LIST_MAX];
  const struct {
    uint32_t prompt_count, max_tokens, score_from, top_logprobs, top_k, sample_index;
    uint32_t stop_count, stop_text_count, list_count, list_only;
    uint32_t temperature, repetition, presence, frequency;
    uint64_t top_p_fixed, min_p, seed;
  } fields = {.prompt_count = r->prompt_count, .max_tokens = r->max_tokens, .score_from = r->score_from,
              .top_logprobs = r->top_logprobs, .top_k = r->top_k, .sample_index = r->sample_index,
              .stop_count = request_stop_ids(m->plan, r, stops), .stop_text_count = r->stop_text_count,
              .list_count = request_list(r, list), .list_only = r->allowed_count != 0, .temperature = request_bits(r->temperature),
              .repetition = request_bits(r->repetition_penalty), .presence = request_bits(r->presence_penalty),
              .frequency = request_bits(r->frequency_penalty), .top_p_fixed = request_top_p_fixed(r->top_p),
              .min_p = request_wide_bits(r->min_p), .seed = r->seed};
  digest_state state;
  digest_start(&state);
  digest_add(&state, m->plan->header->numerics_id, DIGEST_BYTES);
  digest_add(&state, m->weights_digest, DIGEST_BYTES);
  digest_add(&state, r->stop_text_count || r->constraint ? m->tokenizer_digest : none, DIGEST_BYTES);
  digest_add(&state, &fields, sizeof fields);
  digest_add(&state, stops, fields.stop_count * sizeof *stops);
  digest_add(&state, list, fields.list_count * sizeof *list);
  add_stop_texts(&state, r);
  digest_add(&state, r->prompt, r->prompt_count * sizeof *r->prompt);
  if (r->constraint) digest_add(&state, r->constraint->identity.bytes, DIGEST_BYTES);
  digest start = digest_end(&state);
  memcpy(r->request_digest, start.bytes, DIGEST_BYTES);
  memcpy(r->chain, start.bytes, DIGEST_BYTES);
  r->score_count = r->token_count = r->stop_index = 0;
  r->drafted_count = r->accepted_count = 0;
  r->waited_seconds = -1;
  r->text_bytes = 0;
  r->finish = VERBATIM_RUNNING;
  r->fault_op = "";
  r->fault_layer = UINT32_MAX;
  r->fault_position = request_state_of(r)->row_most = 0;
  request_state_of(r)->row_next = request_logits_from(r);
}

static void extend_chain(verbatim_request *r, uint32_t position, const verbatim_token *token, const verbatim_alternative *alternatives) {
  struct {
    uint8_t previous[DIGEST_BYTES];
    uint32_t position;
    int32_t token;
    float logprob;
    uint32_t rank;
    uint64_t logits;
    uint8_t alternatives[DIGEST_BYTES];
  } link = {.position = position, .token = token->id, .logprob = token->logprob, .rank = token->rank, .logits = token->digest};
  memcpy(link.previous, r->chain, DIGEST_BYTES);
  if (r->top_logprobs) {
    digest all = digest_of(alternatives, r->top_logprobs * sizeof *alternatives);
    memcpy(link.alternatives, all.bytes, DIGEST_BYTES);
  }
  digest next = digest_of(&link, sizeof link);
  memcpy(r->chain, next.bytes, DIGEST_BYTES);
}

/* === Results ================================================================================================================ */

static stop_text_set stop_texts(const verbatim_request *r) {
  return (stop_text_set){.texts = r->stop_texts, .count = r->stop_text_count};
}

/* Whether the newest token ended it. A stop id has no text. */
static void finish_made(const request_model *m, verbatim_request *r, const stop_text *text) {
  int32_t stops[EOS_MAX + VERBATIM_STOP_IDS_MAX], id = r->tokens[r->token_count - 1].id;
  uint32_t stop_count = request_stop_ids(m->plan, r, stops);
  if (r->token_count == r->max_tokens) r->finish = VERBATIM_LENGTH;
  for (uint32_t i = 0; i < stop_count; i++)
    if (stops[i] == id) r->finish = VERBATIM_STOP;
  if (r->stop_text_count == 0 || r->finish == VERBATIM_STOP) return;
  stop_text_match match = stop_text_find(text, m->tokenizer, stop_texts(r), id);
  if (match.index == STOP_TEXT_NONE) return;
  r->finish = VERBATIM_STOP_TEXT;
  r->stop_index = match.index;
  r->text_bytes = match.at;
}

void request_push(const request_model *m, verbatim_request *r, const stop_text *text, const sample_result *result,
                  const top_logprob *top, uint64_t logits_digest) {
  bool is_score = r->score_count < score_total(r);
  ASSERT(r->finish == VERBATIM_RUNNING && !result->nonfinite && (is_score || r->token_count < r->max_tokens));
  uint64_t index = (uint64_t)r->score_count + r->token_count;
  verbatim_token *token = is_score ? &r->scores[r->score_count] : &r->tokens[r->token_count];
  verbatim_alternative *alternatives = r->top_logprobs ? r->alternatives + index * r->top_logprobs : NULL;
  *token = (verbatim_token){.id = result->token, .logprob = result->logprob, .rank = result->rank, .logit = result->logit,
                            .digest = logits_digest};
  for (uint32_t i = 0; i < r->top_logprobs; i++) alternatives[i] = (verbatim_alternative){.id = top[i].token, .logprob = top[i].logprob};
  extend_chain(r, is_score ? r->score_from + r->score_count : r->prompt_count + r->token_count, token, alternatives);
  if (!is_score) {
    r->token_count++;
    finish_made(m, r, text);
  } else if (++r->score_count == score_total(r) && r->max_tokens == 0) {
    r->finish = VERBATIM_LENGTH;
  }
}

void request_break(const request_model *m, verbatim_request *r, uint32_t op, uint32_t position) {
  r->finish = VERBATIM_NONFINITE;
  r->fault_op = op == UINT32_MAX ? "not found again" : plan_string(m->plan, m->plan->ops[op].name);
  r->fault_layer = op == UINT32_MAX ? UINT32_MAX : m->plan->ops[op].layer;
  r->fault_position = position;
}

bool request_is_at(const verbatim_request *r, enum verbatim_finish finish, uint32_t token_count) {
  return r->finish == finish && r->token_count == token_count;
}

typedef struct shown {
  verbatim_request *request;
  enum verbatim_finish finish;
  uint32_t token_count;
} shown;

static void show(void *context, const char *text, size_t bytes) {
  const shown *now = context;
  if (bytes && request_is_at(now->request, now->finish, now->token_count)) now->request->on_text(now->request, text, bytes);
}

void request_show(const request_model *m, verbatim_request *r, stop_text *text, bool made) {
  shown now = {.request = r, .finish = r->finish, .token_count = r->token_count};
  enum verbatim_finish finish = r->finish;
  if (!r->on_text && r->stop_text_count == 0) return;
  if (made && finish != VERBATIM_STOP) {
    uint64_t end = finish == VERBATIM_STOP_TEXT ? r->text_bytes : UINT64_MAX;
    stop_text_push(text, m->tokenizer, stop_texts(r), r->tokens[r->token_count - 1].id, end, r->on_text ? show : NULL, &now);
  }
  if (finish != VERBATIM_RUNNING && finish != VERBATIM_STOP_TEXT) stop_text_flush(text, r->on_text ? show : NULL, &now);
}

void request_repeat_text(const request_model *m, const verbatim_request *r, stop_text *text) {
  if (!r->on_text && r->stop_text_count == 0) return;
  for (uint32_t i = 0; i < r->token_count; i++) stop_text_push(text, m->tokenizer, stop_texts(r), r->tokens[i].id, UINT64_MAX, NULL, NULL);
}
