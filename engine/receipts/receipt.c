/* receipt.c - see receipt.h. Every line passes through `put`, which digests what it writes; of the lines of requests the digests are
 * added up, so that their order is nothing. */
#include "receipts/receipt.h"
#include "requests/request.h"
#include "base/utf8.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
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

/* After a failed write nothing more is written: a receipt with a hole must not end in a digest line. */
static void put_bytes(receipt *self, const char *text, size_t bytes) {
  digest_add(&self->line, text, bytes);
  if (self->file && !self->failed && fwrite(text, 1, bytes, self->file) != bytes) self->failed = true;
}

static void put(receipt *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(receipt *self, const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  int bytes = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  ASSERT(bytes >= 0 && (size_t)bytes < sizeof text);
  put_bytes(self, text, (size_t)bytes);
}

static void put_digest(receipt *self, const char *key, const uint8_t *bytes) {
  char text[DIGEST_TEXT_BYTES];
  if (bytes) put(self, "\"%s\":\"%s\"", key, digest_text(bytes, text));
  else put(self, "\"%s\":null", key);
}

/* A JSON string: what must be escaped is, as \u00xx; other bytes stay. In text that is not UTF-8, as an error may quote it, no byte above
 * 0x7f does: a receipt can always be read. */
static void put_string(receipt *self, const char *text, size_t bytes) {
  bool is_utf8 = utf8_valid_bytes((const uint8_t *)text, bytes) == bytes;
  put_bytes(self, "\"", 1);
  for (size_t i = 0; i < bytes; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f || (c > 0x7f && !is_utf8)) put(self, "\\u%04x", c);
    else put_bytes(self, &text[i], 1);
  }
  put_bytes(self, "\"", 1);
}

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

static void put_machine(receipt *self, const verbatim_info *info) {
  const char *device = info->device ? info->device : "";
  put(self, "{\"machine\":{");
  put_digest(self, "plan", info->plan_digest);
  put(self, ",\"version\":\"%s\",\"device\":", VERBATIM_VERSION);
  put_string(self, device, strlen(device));
  put(self, ",\"driver\":%" PRIu32 ",\"nvrtc\":%" PRIu32 ",\"cublaslt\":%" PRIu64 ",\"kernels\":[", info->driver_version,
      info->nvrtc_version, info->cublaslt_version);
  for (uint32_t i = 0; i < info->kernel_count; i++) {
    char text[DIGEST_TEXT_BYTES];
    put(self, "%s[", i ? "," : "");
    put_string(self, info->kernels[i].name, strlen(info->kernels[i].name));
    put(self, ",\"%s\"]", digest_text(info->kernels[i].digest, text));
  }
  put(self, "]}}\n");
}

status receipt_begin(receipt *self, const char *path, const receipt_source *source) {
  const verbatim_info *info = source->info;
  *self = (receipt){.path = path};
  digest_start(&self->line);
  if (path && !(self->file = fopen(path, "wb"))) return FAIL(ERR_IO, "receipt %s: cannot be written: %s", path, strerror(errno));
  put(self, "{\"verbatim_receipt\":%u,", RECEIPT_VERSION);
  put_digest(self, "numerics_id", info->numerics_id);
  put(self, ",");
  put_digest(self, "config", info->config_digest);
  put(self, ",");
  put_digest(self, "weights", info->weights_digest);
  put(self, ",");
  put_digest(self, "tokenizer", source->tokenizer_digest);
  put(self, "}\n");
  self->head = self->line;
  put_machine(self, info);
  return OK;
}

/* === Requests =============================================================================================================== */

static void put_stops(receipt *self, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count) {
  put(self, ",\"stop_ids\":[");
  for (uint32_t i = 0; i < stop_count; i++) put(self, "%s%" PRId32, i ? "," : "", stop_ids[i]);
  put(self, "],\"stop_texts\":[");
  for (uint32_t i = 0; i < r->stop_text_count; i++) {
    put(self, "%s", i ? "," : "");
    put_string(self, r->stop_texts[i].bytes, r->stop_texts[i].count);
  }
  put(self, "]");
}

static void put_list(receipt *self, const verbatim_request *r) {
  token_bias list[TOKEN_LIST_MAX];
  uint32_t count = request_list(r, list);
  put(self, ",\"list\":[");
  for (uint32_t i = 0; i < count; i++) put(self, "%s[%" PRId32 ",\"%08" PRIx32 "\"]", i ? "," : "", list[i].token, bits_of(list[i].bias));
  put(self, "],\"list_only\":%s", r->allowed_count ? "true" : "false");
}

static void put_inputs(receipt *self, const char *id, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count) {
  put(self, "{\"id\":");
  put_string(self, id, strlen(id));
  put(self, ",\"prompt_count\":%" PRIu32 ",\"prompt\":[", r->prompt_count);
  for (uint32_t i = 0; i < r->prompt_count; i++) put(self, "%s%" PRId32, i ? "," : "", r->prompt[i]);
  put(self, "],\"max_tokens\":%" PRIu32 ",\"score_from\":%" PRIu32 ",\"top_logprobs\":%" PRIu32, r->max_tokens, r->score_from,
      r->top_logprobs);
  put(self, ",\"temperature\":\"%08" PRIx32 "\",\"top_k\":%" PRIu32 ",\"top_p\":\"%09" PRIx64 "\",\"min_p\":\"%016" PRIx64 "\"",
      request_bits(r->temperature), r->top_k, request_top_p_fixed(r->top_p), request_wide_bits(r->min_p));
  put(self, ",\"repetition_penalty\":\"%08" PRIx32 "\",\"presence_penalty\":\"%08" PRIx32 "\",\"frequency_penalty\":\"%08" PRIx32 "\"",
      request_bits(r->repetition_penalty), request_bits(r->presence_penalty), request_bits(r->frequency_penalty));
  put_list(self, r);
  put(self, ",\"seed\":\"%016" PRIx64 "\",\"sample_index\":%" PRIu32, r->seed, r->sample_index);
  put_stops(self, r, stop_ids, stop_count);
  put(self, ",");
  put_digest(self, "request", r->request_digest);
}

static void put_alternatives(receipt *self, const verbatim_alternative *list, uint32_t count, uint32_t each) {
  put(self, "],\"alternatives\":[");
  for (uint32_t i = 0; i < count && each; i++) {
    put(self, "%s[", i ? "," : "");
    for (uint32_t k = 0; k < each; k++, list++)
      put(self, "%s[%" PRId32 ",\"%08" PRIx32 "\"]", k ? "," : "", list->id, bits_of(list->logprob));
    put(self, "]");
  }
}

static void put_tokens(receipt *self, const char *key, const verbatim_token *list, uint32_t count, const verbatim_alternative *alternatives,
                       uint32_t each) {
  put(self, ",\"%s\":{\"tokens\":[", key);
  for (uint32_t i = 0; i < count; i++) put(self, "%s%" PRId32, i ? "," : "", list[i].id);
  put(self, "],\"logprobs\":[");
  for (uint32_t i = 0; i < count; i++) put(self, "%s\"%08" PRIx32 "\"", i ? "," : "", bits_of(list[i].logprob));
  put(self, "],\"ranks\":[");
  for (uint32_t i = 0; i < count; i++) put(self, "%s%" PRIu32, i ? "," : "", list[i].rank);
  put(self, "],\"logits\":[");
  for (uint32_t i = 0; i < count; i++) put(self, "%s\"%016" PRIx64 "\"", i ? "," : "", list[i].digest);
  put_alternatives(self, alternatives, count, each);
  put(self, "]}");
}

/* Where NaN or Inf began. */
static void put_fault(receipt *self, const verbatim_request *r) {
  const char *op = r->fault_op ? r->fault_op : "";
  if (r->finish != VERBATIM_NONFINITE) {
    put(self, ",\"fault\":null");
    return;
  }
  put(self, ",\"fault\":{\"op\":");
  put_string(self, op, strlen(op));
  if (r->fault_layer == UINT32_MAX) put(self, ",\"layer\":null");
  else put(self, ",\"layer\":%" PRIu32, r->fault_layer);
  put(self, ",\"position\":%" PRIu32 "}", r->fault_position);
}

static void put_request(receipt *self, const char *id, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count) {
  const verbatim_alternative *made = r->top_logprobs ? r->alternatives + (uint64_t)r->score_count * r->top_logprobs : NULL;
  put_inputs(self, id, r, stop_ids, stop_count);
  put(self, ",\"finish\":\"%s\",\"stop_index\":%" PRIu32 ",\"text_bytes\":%" PRIu64, receipt_finish_name(r->finish), r->stop_index,
      r->text_bytes);
  put_fault(self, r);
  put_tokens(self, "scored", r->scores, r->score_count, r->alternatives, r->top_logprobs);
  put_tokens(self, "made", r->tokens, r->token_count, made, r->top_logprobs);
  put(self, ",");
  put_digest(self, "chain", r->chain);
  put(self, "}\n");
}

void receipt_add(receipt *self, const char *id, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count) {
  digest_start(&self->line);
  put_request(self, id, r, stop_ids, stop_count);
  digest line = digest_end(&self->line);
  receipt_sum_add(&self->sum, &line);
  if (self->file && fflush(self->file) != 0) self->failed = true;
}

status receipt_line(const char *id, const verbatim_request *r, const int32_t *stop_ids, uint32_t stop_count, char **line, size_t *bytes) {
  char *text = NULL;
  size_t size = 0;
  receipt one = {.file = open_memstream(&text, &size)};
  digest_start(&one.line);
  if (one.file) put_request(&one, id, r, stop_ids, stop_count);
  if (one.file && fclose(one.file) == 0 && !one.failed) {
    *line = text;
    *bytes = size;
    return OK;
  }
  free(text);
  return FAIL(ERR_LIMIT, "receipt: no memory for a line");
}

/* === End ==================================================================================================================== */

void receipt_fault(receipt *self, const char *what) {
  if (!self->file) return;
  put(self, "{\"fault\":");
  put_string(self, what, strlen(what));
  put(self, "}\n");
  fflush(self->file);
}

void receipt_abandon(receipt *self, const char *what) {
  receipt_fault(self, what);
  if (self->file) fclose(self->file);
  self->file = NULL;
}

status receipt_end(receipt *self, digest *result) {
  *result = receipt_sum_end(&self->sum, &self->head);
  if (!self->file) return OK;
  char text[DIGEST_TEXT_BYTES];
  if (!self->failed && fprintf(self->file, "{\"digest\":\"%s\"}\n", digest_text(result->bytes, text)) < 0) self->failed = true;
  if (fclose(self->file) != 0) self->failed = true;
  self->file = NULL;
  return self->failed ? FAIL(ERR_IO, "receipt %s: could not be written completely; hint: is the disk full?", self->path) : OK;
}
