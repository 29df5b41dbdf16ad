/* fuzz_jsonl.c - a line of prompts, as `verbatim run --jsonl` reads it. An accepted line has values in the stated ranges, gives the same
 * item with its keys in another order, and is accepted or refused by the check that every request passes; an error adds nothing. */
#include "engine/jsonl/items.h"
#include "engine/jsonl/json_line.h"
#include "engine/requests/request.h"
#include "engine/base/utf8.h"
#include "fuzz.h"
#include <jansson.h>
#include <math.h>

static void check_item(const item *i) {
  const item_params *p = &i->params;
  ASSERT(i->id && !i->prompt == (i->ids != NULL));
  ASSERT(!i->prompt || utf8_valid_bytes((const uint8_t *)i->prompt, i->prompt_bytes) == i->prompt_bytes);
  for (uint32_t n = 0; n < i->id_count; n++) ASSERT(i->ids[n] >= 0);
  ASSERT(p->samples >= 1 && p->samples <= ITEMS_SAMPLES_MAX && p->top_logprobs <= VERBATIM_TOP_LOGPROBS_MAX);
  ASSERT(p->stop_count <= VERBATIM_STOP_IDS_MAX && p->stop_text_count <= VERBATIM_STOP_TEXTS_MAX);
  ASSERT(p->bias_count <= VERBATIM_BIASES_MAX && p->allowed_count <= VERBATIM_BIASES_MAX);
  for (uint32_t n = 0; n < p->stop_count; n++) ASSERT(p->stop_ids[n] >= 0);
  for (uint32_t n = 0; n < p->allowed_count; n++) ASSERT(p->allowed_ids[n] >= 0);
  for (uint32_t n = 0; n < p->bias_count; n++) ASSERT(p->biases[n].token >= 0 && !isnan(p->biases[n].bias));
  ASSERT(p->deadline_seconds >= 0 && !isinf(p->deadline_seconds) && p->required_count <= VERBATIM_REQUIRED_MAX);
  for (uint32_t n = 0; n < p->required_count; n++) ASSERT(strlen(p->required[n]) < JSON_LINE_BYTES_MAX);
  for (uint32_t n = 0; n < p->stop_text_count; n++) {
    const verbatim_text *text = &p->stop_texts[n];
    ASSERT(text->count >= 1 && text->count <= VERBATIM_STOP_TEXT_BYTES_MAX);
    ASSERT(utf8_valid_bytes((const uint8_t *)text->bytes, text->count) == text->count);
  }
  json_t *echo = i->echo ? json_loads(i->echo, JSON_ALLOW_NUL, NULL) : NULL;
  ASSERT(!i->echo || json_object_size(echo) > 0);
  json_decref(echo);
}

/* An item as a request of a plan. */
static void check_request(const item *i) {
  static const int32_t prompt[1] = {0};
  static plan_header header = {.model = {.vocab = 1000}, .limits = {.max_len = 4096, .kv_pages = 64}};
  static verbatim_token tokens[1]; /* the request is checked, not run */
  static verbatim_alternative alternatives[1];
  const plan view = {.header = &header};
  const request_model model = {.plan = &view};
  const item_params *p = &i->params;
  verbatim_request r = VERBATIM_REQUEST_DEFAULTS;
  r.prompt = i->id_count ? i->ids : prompt;
  r.prompt_count = i->id_count ? i->id_count : 1;
  r.max_tokens = p->max_tokens, r.top_k = p->top_k, r.top_logprobs = p->top_logprobs, r.top_p = p->top_p, r.min_p = p->min_p;
  r.temperature = p->temperature, r.repetition_penalty = p->repetition_penalty, r.presence_penalty = p->presence_penalty;
  r.frequency_penalty = p->frequency_penalty, r.biases = p->biases, r.bias_count = p->bias_count, r.allowed_ids = p->allowed_ids;
  r.allowed_count = p->allowed_count, r.stop_ids = p->stop_ids, r.stop_count = p->stop_count, r.stop_texts = p->stop_texts;
  r.stop_text_count = p->stop_text_count, r.tokens = r.scores = tokens, r.alternatives = alternatives;
  r.deadline_seconds = p->deadline_seconds, r.required = p->required, r.required_count = p->required_count;
  if (!fuzz_is_ok(request_check(&model, &r))) return;
  token_bias list[TOKEN_LIST_MAX];
  uint32_t count = request_list(&r, list);
  ASSERT(count <= TOKEN_LIST_MAX);
  for (uint32_t n = 1; n < count; n++) ASSERT(list[n - 1].token < list[n].token);
  const sample_param sample = request_sample(&r, r.prompt_count, 0);
  ASSERT(sample.top_p_fixed >= 1 && sample.top_p_fixed <= UINT64_C(1) << 32 && sample.min_p_bound <= 0 && sample.list_count == count);
}

/* The same keys, sorted, in another layout. */
static void check_order(const char *line, size_t bytes, const item *first) {
  const item_params defaults = ITEMS_DEFAULTS;
  items again = {0};
  json_t *root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  char *sorted = json_dumps(root, JSON_SORT_KEYS);
  ASSERT(sorted != NULL);
  ASSERT(items_add_json(&again, sorted, strlen(sorted), 1, &defaults) == OK);
  const item *second = &again.list[0];
  const item_params *a = &first->params, *b = &second->params;
  ASSERT(strcmp(first->id, second->id) == 0 && first->prompt_bytes == second->prompt_bytes && first->id_count == second->id_count);
  ASSERT(!first->prompt || memcmp(first->prompt, second->prompt, first->prompt_bytes) == 0);
  ASSERT(!first->ids || memcmp(first->ids, second->ids, first->id_count * sizeof *first->ids) == 0);
  ASSERT(a->max_tokens == b->max_tokens && a->samples == b->samples && a->top_k == b->top_k && a->top_logprobs == b->top_logprobs);
  ASSERT(a->seed == b->seed && a->ignore_eos == b->ignore_eos && memcmp(&a->top_p, &b->top_p, 2 * sizeof a->top_p) == 0);
  ASSERT(memcmp(&a->temperature, &b->temperature, 4 * sizeof a->temperature) == 0);
  ASSERT(a->stop_count == b->stop_count && a->bias_count == b->bias_count && a->allowed_count == b->allowed_count);
  ASSERT(!first->echo == !second->echo);
  items_close(&again);
  free(sorted);
  json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const char *line = (const char *)data;
  const item_params defaults = ITEMS_DEFAULTS;
  items list = {0};
  fail_clear();
  if (!fuzz_is_ok(items_add_json(&list, line, bytes, 1, &defaults))) {
    ASSERT(list.count == 0);
    items_close(&list);
    return 0;
  }
  ASSERT(list.count == 1);
  check_item(&list.list[0]);
  check_order(line, bytes, &list.list[0]);
  check_request(&list.list[0]);
  items_close(&list);
  return 0;
}
