/* serve/request_log.c - see serve/request_log.h. */
#include "serve/request_log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/digest.h"
#include "base/utf8.h"
#include "jsonl/json_line.h"
#include "receipts/receipt.h"

static const char *const PATHS[] = {[SERVE_COMPLETION] = "/v1/completions", [SERVE_CHAT] = "/v1/chat/completions"};

/* === Writing ================================================================================================================ */

static void put_choice(const verbatim_request *r, serve_text *out) {
  char request[DIGEST_TEXT_BYTES], chain[DIGEST_TEXT_BYTES];
  strbuf_addf(out, "{\"request\":\"%s\",\"chain\":\"%s\",\"finish\":\"%s\",\"tokens\":%" PRIu32 "}", digest_text(r->request_digest,
                                                                                                                 request),
              digest_text(r->chain, chain), receipt_finish_name(r->finish), r->token_count);
}

void serve_request_log_write(const serve_request_log_entry *entry, serve_text *out) {
  char numerics[DIGEST_TEXT_BYTES];
  bool is_text = utf8_valid_bytes((const uint8_t *)entry->body, (size_t)entry->body_bytes) == entry->body_bytes;
  strbuf_addf(out, "{\"time\":%.6f,\"id\":\"%s\",\"path\":\"%s\",\"status\":%u,\"model\":", entry->time, entry->id, entry->path,
              entry->http_status);
  serve_text_string(out, entry->model->name, strlen(entry->model->name));
  strbuf_addf(out, ",\"numerics_id\":\"%s\",\"body\":", digest_text(entry->model->info->numerics_id, numerics));
  if (is_text) strbuf_json(out, entry->body, (size_t)entry->body_bytes, STRBUF_JSON_SHORT);
  else strbuf_adds(out, "null");
  if (entry->request) strbuf_adds(out, ",\"results\":[");
  for (uint32_t i = 0; entry->request && i < entry->request->choice_count; i++) {
    if (i) strbuf_adds(out, ",");
    put_choice(&entry->request->choices[i].engine_request, out);
  }
  strbuf_adds(out, entry->request ? "]}\n" : "}\n");
}

/* === Reading ================================================================================================================ */

static status wrong(uint32_t number, const char *key) {
  return FAIL(ERR_FORMAT, "line %u: \"%s\": expected what `verbatim serve --request-log` writes", number, key);
}

static bool is_digest(const json_t *value) {
  const char *text = json_string_value(value);
  return text && json_string_length(value) == DIGEST_TEXT_BYTES - 1 && strspn(text, "0123456789abcdef") == DIGEST_TEXT_BYTES - 1;
}

static status read_results(uint32_t number, serve_request_log_line *self) {
  const json_t *list = json_object_get(self->object, "results");
  if (list && !json_is_array(list)) return wrong(number, "results");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *one = json_array_get(list, i);
    bool is_good = is_digest(json_object_get(one, "request")) && is_digest(json_object_get(one, "chain")) &&
                   json_is_string(json_object_get(one, "finish")) && json_is_integer(json_object_get(one, "tokens"));
    if (!is_good) return wrong(number, "results");
  }
  self->results = list;
  return OK;
}

static status read_fields(uint32_t number, serve_request_log_line *self) {
  const json_t *body = json_object_get(self->object, "body"), *code = json_object_get(self->object, "status");
  const json_t *id = json_object_get(self->object, "id"), *model = json_object_get(self->object, "model");
  const char *path = json_string_value(json_object_get(self->object, "path"));
  size_t kind = 0;
  while (path && kind < ARRAY_LEN(PATHS) && strcmp(PATHS[kind], path) != 0) kind++;
  if (!path || kind == ARRAY_LEN(PATHS)) return wrong(number, "path");
  if (!json_is_string(id) || json_string_length(id) == 0 || json_string_length(id) >= SERVE_REQUEST_ID_BYTES ||
      strlen(json_string_value(id)) != json_string_length(id)) return wrong(number, "id");
  if (!json_is_string(body) && !json_is_null(body)) return wrong(number, "body");
  if (!json_is_string(model) || strlen(json_string_value(model)) != json_string_length(model)) return wrong(number, "model");
  if (!is_digest(json_object_get(self->object, "numerics_id"))) return wrong(number, "numerics_id");
  if (!json_is_integer(code) || json_integer_value(code) < 100 || json_integer_value(code) > 999) return wrong(number, "status");
  self->id = json_string_value(id);
  self->body = json_string_value(body);
  self->body_bytes = json_string_length(body);
  self->model = json_string_value(model);
  self->numerics_id = json_string_value(json_object_get(self->object, "numerics_id"));
  self->kind = (enum serve_kind)kind;
  self->http_status = (unsigned)json_integer_value(code);
  return read_results(number, self);
}

status serve_request_log_read(const char *line, size_t bytes, uint32_t number, serve_request_log_line *out) {
  serve_request_log_line made = {.object = NULL};
  TRY(json_line_parse(line, bytes, number, &made.object));
  status result = read_fields(number, &made);
  if (result == OK) *out = made;
  else json_decref(made.object);
  return result;
}

void serve_request_log_close(serve_request_log_line *self) {
  json_decref(self->object);
  *self = (serve_request_log_line){.object = NULL};
}

/* === Comparing ============================================================================================================== */

static bool has_ended(const char *finish) {
  return strcmp(finish, receipt_finish_name(VERBATIM_CANCELLED)) != 0 && strcmp(finish, receipt_finish_name(VERBATIM_DEADLINE)) != 0;
}

serve_request_log_verdict serve_request_log_compare(const serve_request_log_line *line, const serve_choice *choice, uint32_t index,
                                                    char text[SERVE_REQUEST_LOG_TEXT_BYTES]) {
  const verbatim_request *r = &choice->engine_request;
  const json_t *recorded = json_array_get(line->results, index);
  const char *finish = json_string_value(json_object_get(recorded, "finish")), *again = receipt_finish_name(r->finish);
  char request[DIGEST_TEXT_BYTES], chain[DIGEST_TEXT_BYTES];
  const struct { const char *key, *now; } parts[] = {
    {"request", digest_text(r->request_digest, request)}, {"finish", again}, {"chain", digest_text(r->chain, chain)}};
  *text = 0;
  if (!finish) {
    snprintf(text, SERVE_REQUEST_LOG_TEXT_BYTES, "it has no recorded result");
    return SERVE_LOG_DIFFERS;
  }
  if (!has_ended(finish) || !has_ended(again)) return SERVE_LOG_UNFINISHED;
  for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
    const char *before = json_string_value(json_object_get(recorded, parts[i].key));
    if (strcmp(before, parts[i].now) == 0) continue;
    snprintf(text, SERVE_REQUEST_LOG_TEXT_BYTES, "%s: recorded %.40s, again %.40s", parts[i].key, before, parts[i].now);
    return SERVE_LOG_DIFFERS;
  }
  json_int_t tokens = json_integer_value(json_object_get(recorded, "tokens"));
  if (tokens == (json_int_t)r->token_count) return SERVE_LOG_EQUAL;
  snprintf(text, SERVE_REQUEST_LOG_TEXT_BYTES, "tokens: recorded %" JSON_INTEGER_FORMAT ", again %" PRIu32, tokens, r->token_count);
  return SERVE_LOG_DIFFERS;
}
