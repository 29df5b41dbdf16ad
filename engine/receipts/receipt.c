/* receipt.c - see receipt.h. Each line is built in memory, written at once and then added to the digests. The digests of the request lines
 * are summed, so their order does not matter. */
#include "receipts/receipt.h"
#include "base/sha256.h"
#include "base/whole_file.h"
#include "requests/request.h"
#include "base/strbuf.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* === Digest ================================================================================================================= */

void receipt_sum_add(receipt_sum *self, const digest *line) {
  uint32_t carry = 0;
  for (uint32_t i = DIGEST_BYTES; i > 0; i--) {
    carry += (uint32_t)self->total[i - 1] + line->bytes[i - 1];
    self->total[i - 1] = (uint8_t)carry;
    carry >>= 8;
  }
  self->lines++;
}

digest receipt_sum_end(const receipt_sum *self, const digest_state *head) {
  digest_state whole = *head;
  digest_add(&whole, &self->lines, sizeof self->lines);
  digest_add(&whole, self->total, sizeof self->total);
  return digest_end(&whole);
}

/* === Text =================================================================================================================== */

/* Writes the line whole or not at all. state: a digest that it is then added to, or NULL. */
static status write_line(receipt *self, strbuf *line, digest_state *state) {
  status result = line->failed ? FAIL(ERR_LIMIT, "receipt: no memory for a line") : OK;
  if (result == OK && self->file) result = whole_file_append(fileno(self->file), self->path, line->bytes, line->count);
  if (result == OK) digest_add(&self->written, line->bytes, line->count), self->bytes += line->count;
  if (result == OK && state) digest_add(state, line->bytes, line->count);
  strbuf_close(line);
  return result;
}

static void put_digest(strbuf *to, const char *key, const uint8_t *bytes) {
  char text[DIGEST_TEXT_BYTES];
  if (bytes) strbuf_addf(to, "\"%s\":\"%s\"", key, digest_text(bytes, text));
  else strbuf_addf(to, "\"%s\":null", key);
}

static void put_sha256(strbuf *to, const char *key, const uint8_t *bytes) {
  char text[SHA256_TEXT_BYTES];
  if (sha256_is_none(bytes)) strbuf_addf(to, "\"%s\":null", key);
  else strbuf_addf(to, "\"%s\":\"%s\"", key, sha256_text(bytes, text));
}

static void put_string(strbuf *to, const char *text, size_t bytes) { strbuf_json(to, text, bytes, STRBUF_JSON_HEX); }

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

const char *receipt_finish_name(enum verbatim_finish finish) {
  static const char *const names[] = {"running", "stop", "length", "nonfinite", "stop_text", "cancelled", "deadline"};
  return names[finish];
}

/* === First lines ============================================================================================================ */

static void put_machine(strbuf *to, const verbatim_info *info) {
  const char *device = info->device ? info->device : "";
  strbuf_addf(to, "{\"machine\":{");
  put_digest(to, "plan", info->plan_digest);
  strbuf_addf(to, ",\"version\":\"%s\",\"device\":", VERBATIM_VERSION);
  put_string(to, device, strlen(device));
  strbuf_addf(to, ",\"ranks\":%" PRIu32 ",\"driver\":%" PRIu32 ",\"nvrtc\":%" PRIu32 ",\"cublaslt\":%" PRIu64 ",\"kernels\":[", info->ranks,
              info->driver_version, info->nvrtc_version, info->cublaslt_version);
  for (uint32_t i = 0; i < info->kernel_count; i++) {
    char text[DIGEST_TEXT_BYTES];
    strbuf_addf(to, "%s[", i ? "," : "");
    put_string(to, info->kernels[i].name, strlen(info->kernels[i].name));
    strbuf_addf(to, ",\"%s\"]", digest_text(info->kernels[i].digest, text));
  }
  strbuf_addf(to, "],\"sha256\":{");
  put_sha256(to, "plan", info->plan_sha256);
  strbuf_addf(to, ",");
  put_sha256(to, "config", info->config_sha256);
  strbuf_addf(to, ",");
  put_sha256(to, "weights", info->weights_sha256);
  strbuf_addf(to, "}}}\n");
}

static void close_file(receipt *self) {
  if (self->file) fclose(self->file);
  self->file = NULL;
}

status receipt_begin(receipt *self, const char *path, const receipt_source *source) {
  const verbatim_info *info = source->info;
  strbuf line = {0}, *to = &line;
  *self = (receipt){.path = path};
  digest_start(&self->head);
  digest_start(&self->written);
  if (path && !(self->file = fopen(path, "wb"))) return FAIL(ERR_IO, "receipt %s: cannot be written: %s", path, strerror(errno));
  strbuf_addf(to, "{\"verbatim_receipt\":%u,", RECEIPT_VERSION);
  put_digest(to, "numerics_id", info->numerics_id);
  strbuf_addf(to, ",");
  put_digest(to, "config", info->config_digest);
  strbuf_addf(to, ",");
  put_digest(to, "weights", info->weights_digest);
  strbuf_addf(to, ",");
  put_digest(to, "tokenizer", source->tokenizer_digest);
  strbuf_addf(to, "}\n");
  status result = write_line(self, to, &self->head);
  if (result == OK) {
    put_machine(to, info);
    result = write_line(self, to, NULL);
  }
  if (result != OK) close_file(self);
  return result;
}

/* === Requests =============================================================================================================== */

static void put_stops(strbuf *to, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count) {
  strbuf_addf(to, ",\"stop_ids\":[");
  for (uint32_t i = 0; i < stop_count; i++) strbuf_addf(to, "%s%" PRId32, i ? "," : "", stop_ids[i]);
  strbuf_addf(to, "],\"stop_texts\":[");
  for (uint32_t i = 0; i < r->stop_text_count; i++) {
    strbuf_addf(to, "%s", i ? "," : "");
    put_string(to, r->stop_texts[i].bytes, r->stop_texts[i].count);
  }
  strbuf_addf(to, "]");
}

static void put_list(strbuf *to, const verbatim_request *r) {
  token_bias list[TOKEN_LIST_MAX];
  uint32_t count = request_list(r, list);
  strbuf_addf(to, ",\"list\":[");
  for (uint32_t i = 0; i < count; i++)
    strbuf_addf(to, "%s[%" PRId32 ",\"%08" PRIx32 "\"]", i ? "," : "", list[i].token, bits_of(list[i].bias));
  strbuf_addf(to, "],\"list_only\":%s", r->allowed_count ? "true" : "false");
}

const char *receipt_constraint_name(enum verbatim_constraint_kind kind) {
  switch (kind) {
    case VERBATIM_CHOICE: return "choice";
    case VERBATIM_REGEX: return "regex";
    case VERBATIM_JSON_OBJECT: return "json_object";
    case VERBATIM_JSON_SCHEMA: return "json_schema";
    case VERBATIM_PARTS: return "parts";
  }
  return "";
}

static void put_constraint(strbuf *to, const verbatim_constraint *constraint) {
  enum verbatim_constraint_kind kind;
  if (!constraint) return;
  const verbatim_text text = verbatim_constraint_text(constraint, &kind);
  strbuf_addf(to, ",\"constraint\":[\"%s\",", receipt_constraint_name(kind));
  put_string(to, text.bytes, text.count);
  strbuf_addf(to, "]");
}

static void put_inputs(strbuf *to, const char *id, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count) {
  strbuf_addf(to, "{\"id\":");
  put_string(to, id, strlen(id));
  strbuf_addf(to, ",\"prompt_count\":%" PRIu32 ",\"prompt\":[", r->prompt_count);
  for (uint32_t i = 0; i < r->prompt_count; i++) strbuf_addf(to, "%s%" PRId32, i ? "," : "", r->prompt[i]);
  strbuf_addf(to, "],\"max_tokens\":%" PRIu32 ",\"score_from\":%" PRIu32 ",\"top_logprobs\":%" PRIu32, r->max_tokens, r->score_from,
      r->top_logprobs);
  strbuf_addf(to, ",\"temperature\":\"%08" PRIx32 "\",\"top_k\":%" PRIu32 ",\"top_p\":\"%09" PRIx64 "\",\"min_p\":\"%016" PRIx64 "\"",
      request_bits(r->temperature), r->top_k, request_top_p_fixed(r->top_p), request_wide_bits(r->min_p));
  strbuf_addf(to, ",\"repetition_penalty\":\"%08" PRIx32 "\",\"presence_penalty\":\"%08" PRIx32 "\",\"frequency_penalty\":\"%08" PRIx32
                  "\"", request_bits(r->repetition_penalty), request_bits(r->presence_penalty), request_bits(r->frequency_penalty));
  put_list(to, r);
  put_constraint(to, r->constraint);
  strbuf_addf(to, ",\"seed\":\"%016" PRIx64 "\",\"sample_index\":%" PRIu32, r->seed, r->sample_index);
  put_stops(to, r, stop_ids, stop_count);
  strbuf_addf(to, ",");
  put_digest(to, "request", r->request_digest);
}

static void put_alternatives(strbuf *to, const verbatim_alternative *list, uint32_t count, uint32_t each) {
  strbuf_addf(to, "],\"alternatives\":[");
  for (uint32_t i = 0; i < count && each; i++) {
    strbuf_addf(to, "%s[", i ? "," : "");
    for (uint32_t k = 0; k < each; k++, list++)
      strbuf_addf(to, "%s[%" PRId32 ",\"%08" PRIx32 "\"]", k ? "," : "", list->id, bits_of(list->logprob));
    strbuf_addf(to, "]");
  }
}

static void put_tokens(strbuf *to, const char *key, const verbatim_token *list, uint32_t count, const verbatim_alternative *alternatives,
                       uint32_t each) {
  strbuf_addf(to, ",\"%s\":{\"tokens\":[", key);
  for (uint32_t i = 0; i < count; i++) strbuf_addf(to, "%s%" PRId32, i ? "," : "", list[i].id);
  strbuf_addf(to, "],\"logprobs\":[");
  for (uint32_t i = 0; i < count; i++) strbuf_addf(to, "%s\"%08" PRIx32 "\"", i ? "," : "", bits_of(list[i].logprob));
  strbuf_addf(to, "],\"ranks\":[");
  for (uint32_t i = 0; i < count; i++) strbuf_addf(to, "%s%" PRIu32, i ? "," : "", list[i].rank);
  strbuf_addf(to, "],\"logits\":[");
  for (uint32_t i = 0; i < count; i++) strbuf_addf(to, "%s\"%016" PRIx64 "\"", i ? "," : "", list[i].digest);
  put_alternatives(to, alternatives, count, each);
  strbuf_addf(to, "]}");
}

/* Where NaN or Inf began. */
static void put_fault(strbuf *to, const verbatim_request *r) {
  const char *op = r->fault_op ? r->fault_op : "";
  if (r->finish != VERBATIM_NONFINITE) {
    strbuf_addf(to, ",\"fault\":null");
    return;
  }
  strbuf_addf(to, ",\"fault\":{\"op\":");
  put_string(to, op, strlen(op));
  if (r->fault_layer == UINT32_MAX) strbuf_addf(to, ",\"layer\":null");
  else strbuf_addf(to, ",\"layer\":%" PRIu32, r->fault_layer);
  strbuf_addf(to, ",\"position\":%" PRIu32 "}", r->fault_position);
}

static void put_request(strbuf *to, const char *id, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count) {
  const verbatim_alternative *generated = r->top_logprobs ? r->alternatives + (uint64_t)r->score_count * r->top_logprobs : NULL;
  put_inputs(to, id, r, stop_ids, stop_count);
  strbuf_addf(to, ",\"finish\":\"%s\",\"stop_index\":%" PRIu32 ",\"text_bytes\":%" PRIu64, receipt_finish_name(r->finish), r->stop_index,
      r->text_bytes);
  put_fault(to, r);
  put_tokens(to, "scored", r->scores, r->score_count, r->alternatives, r->top_logprobs);
  put_tokens(to, "made", r->tokens, r->token_count, generated, r->top_logprobs);
  strbuf_addf(to, ",");
  put_digest(to, "chain", r->chain);
  strbuf_addf(to, "}\n");
}

status receipt_add(receipt *self, const char *id, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count) {
  strbuf line = {0};
  digest_state state;
  digest_start(&state);
  put_request(&line, id, r, stop_ids, stop_count);
  TRY(write_line(self, &line, &state));
  digest whole = digest_end(&state);
  receipt_sum_add(&self->sum, &whole);
  return OK;
}

status receipt_line(const char *id, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count, char **line, size_t *bytes) {
  strbuf text = {0};
  put_request(&text, id, r, stop_ids, stop_count);
  return strbuf_take(&text, line, bytes);
}

/* === End ==================================================================================================================== */

void receipt_fault(receipt *self, const char *what) {
  if (!self->file) return;
  strbuf line = {0};
  strbuf_adds(&line, "{\"fault\":");
  put_string(&line, what, strlen(what));
  strbuf_adds(&line, "}\n");
  (void)write_line(self, &line, NULL); /* the run has failed, which its caller reports */
}

void receipt_abandon(receipt *self, const char *what) {
  receipt_fault(self, what);
  close_file(self);
}

status receipt_end(receipt *self, digest *result) {
  strbuf line = {0};
  *result = receipt_sum_end(&self->sum, &self->head);
  if (!self->file) return OK;
  strbuf_adds(&line, "{");
  put_digest(&line, "digest", result->bytes);
  strbuf_adds(&line, "}\n");
  status ended = write_line(self, &line, NULL);
  if (fclose(self->file) != 0 && ended == OK) ended = FAIL(ERR_IO, "receipt %s: cannot be written: %s", self->path, strerror(errno));
  self->file = NULL;
  return ended;
}
