/* fuzz_receipt.c - receipts, as `verbatim verify` reads them. Every request of an accepted receipt has values in the stated ranges and,
 * written again, is read as the same, to the byte; it passes the check that every request passes or is refused by name, and then stops at
 * the ids that the receipt states. */
#include "engine/plan/plan.h"
#include "engine/receipts/receipt.h"
#include "engine/receipts/compare.h"
#include "engine/receipts/read.h"
#include "engine/requests/request.h"
#include "fuzz.h"
#include <math.h>

static void check_ranges(const receipt_record *record) {
  const verbatim_request *r = &record->request;
  ASSERT(record->id && record->line && record->line[record->line_bytes] == 0);
  ASSERT(r->prompt_count >= 1 && r->prompt_count <= LENGTH_MAX && r->score_from < r->prompt_count && r->score == (r->score_from != 0));
  ASSERT((r->max_tokens || r->score) && r->token_count <= r->max_tokens && r->score_count <= r->prompt_count - r->score_from);
  ASSERT(r->top_logprobs <= VERBATIM_TOP_LOGPROBS_MAX && r->top_p > 0 && r->top_p <= 1 && isfinite(r->min_p) && isfinite(r->temperature));
  ASSERT(r->bias_count <= VERBATIM_BIASES_MAX && (r->allowed_count == 0 || r->allowed_count == r->bias_count));
  ASSERT(r->stop_text_count <= VERBATIM_STOP_TEXTS_MAX && r->stop_count <= EOS_MAX + VERBATIM_STOP_IDS_MAX);
  ASSERT(r->finish > VERBATIM_RUNNING && r->finish <= VERBATIM_DEADLINE);
  for (uint32_t i = 0; i < r->prompt_count; i++) ASSERT(r->prompt[i] >= 0);
  for (uint32_t i = 0; i < r->token_count; i++) ASSERT(r->tokens[i].id >= 0);
  for (uint32_t i = 1; i < r->stop_count; i++) ASSERT(r->stop_ids[i - 1] < r->stop_ids[i]);
  for (uint32_t i = 0; i < (r->score_count + r->token_count) * r->top_logprobs; i++) ASSERT(r->alternatives[i].id >= 0);
}

/* Written, read and written again. */
static void check_round(const receipt_record *record) {
  const verbatim_request *r = &record->request;
  char *lines[2];
  size_t bytes[2];
  receipt_record again;
  receipt_difference difference;
  ASSERT(receipt_line(record->id, r, r->stop_ids, r->stop_count, &lines[0], &bytes[0]) == OK);
  ASSERT(receipt_read_line(lines[0], bytes[0], 1, &again) == OK);
  ASSERT(strcmp(record->id, again.id) == 0 && !receipt_compare(r, &again.request, true, &difference));
  ASSERT(receipt_line(again.id, &again.request, again.request.stop_ids, again.request.stop_count, &lines[1], &bytes[1]) == OK);
  ASSERT(bytes[0] == bytes[1] && memcmp(lines[0], lines[1], bytes[0]) == 0);
  receipt_read_drop(&again);
  free(lines[0]);
  free(lines[1]);
}

/* As a request of a plan; overwrites the record's stop ids. */
static void check_request(receipt_record *record) {
  static const plan_header header = {.model = {.vocab = 1000, .eos_count = 2, .eos = {1, 7}}, .limits = {.max_len = 4096, .kv_pages = 64}};
  static verbatim_token tokens[1]; /* the request is checked, not run */
  const plan view = {.header = &header};
  const request_model model = {.plan = &view};
  int32_t recorded[EOS_MAX + VERBATIM_STOP_IDS_MAX], found[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  verbatim_request *r = &record->request;
  uint32_t count = r->stop_count;
  memcpy(recorded, r->stop_ids, count * sizeof *recorded);
  receipt_read_stops(record, header.model.eos, header.model.eos_count);
  verbatim_request again = *r;
  again.tokens = again.scores = tokens;
  again.stop_text_count = 0; /* they need a tokenizer */
  if (!fuzz_is_ok(request_check(&model, &again))) return;
  ASSERT(request_stop_ids(&view, &again, found) == count && memcmp(recorded, found, count * sizeof *found) == 0);
  token_bias list[TOKEN_LIST_MAX];
  ASSERT(request_list(&again, list) == again.bias_count);
  for (uint32_t i = 0; i < again.bias_count; i++) ASSERT(list[i].token == again.biases[i].token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  receipt_read r = {0};
  FILE *file = bytes ? fmemopen((void *)(uintptr_t)data, bytes, "rb") : NULL;
  if (!file) return 0;
  fail_clear();
  if (fuzz_is_ok(receipt_read_start(&r, file))) {
    ASSERT(r.machine.device && r.machine.version && !(r.complete && r.fault));
    for (uint32_t i = r.count; i > 0; i--) {
      receipt_record record;
      ASSERT(receipt_read_get(&r, i - 1, &record) == OK);
      check_ranges(&record);
      check_round(&record);
      fail_clear();
      check_request(&record);
      receipt_read_drop(&record);
    }
  }
  receipt_read_close(&r);
  return 0;
}
