/* serve/params.c - see serve/params.h. Keys are written in the order of SERVING.md. */
#include "serve/params.h"
#include "receipts/receipt.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_flag(serve_text *out, const char *key, bool value) {
  strbuf_addf(out, ",\"%s\":", key);
  serve_text_bool(out, value);
}

static void put_float(serve_text *out, const char *key, float value) {
  strbuf_addf(out, ",\"%s\":", key);
  serve_text_float(out, value);
}

static void put_double(serve_text *out, const char *key, double value) {
  strbuf_addf(out, ",\"%s\":", key);
  serve_text_double(out, value);
}

/* As a receipt has it. */
static void put_constraint(const verbatim_constraint *constraint, serve_text *out) {
  enum verbatim_constraint_kind kind;
  if (!constraint) return;
  const verbatim_text text = verbatim_constraint_text(constraint, &kind);
  strbuf_addf(out, ",\"constraint\":[\"%s\",", receipt_constraint_name(kind));
  serve_text_string(out, text.bytes, text.count);
  strbuf_addf(out, "]");
}

static void put_lists(const serve_model *m, const verbatim_request *r, serve_text *out) {
  int32_t stops[SERVE_REQUEST_STOPS_MAX];
  uint32_t stop_count = serve_request_stop_ids(m, r, stops);
  strbuf_addf(out, ",\"stop_token_ids\":");
  serve_text_ids(out, stops, stop_count);
  strbuf_addf(out, ",\"stop\":[");
  for (uint32_t i = 0; i < r->stop_text_count; i++) {
    if (i) strbuf_addf(out, ",");
    serve_text_string(out, r->stop_texts[i].bytes, r->stop_texts[i].count);
  }
  strbuf_addf(out, "],\"logit_bias\":{");
  for (uint32_t i = 0; i < r->bias_count; i++) {
    strbuf_addf(out, i ? ",\"%d\":" : "\"%d\":", (int)r->biases[i].token);
    serve_text_float(out, r->biases[i].bias);
  }
  strbuf_addf(out, "},\"allowed_token_ids\":");
  if (r->allowed_count) serve_text_ids(out, r->allowed_ids, r->allowed_count);
  else strbuf_addf(out, "null");
  put_constraint(r->constraint, out);
  strbuf_addf(out, ",\"verbatim_require\":[");
  for (uint32_t i = 0; i < r->required_count; i++) {
    if (i) strbuf_addf(out, ",");
    serve_text_string(out, r->required[i], strlen(r->required[i]));
  }
  strbuf_addf(out, "]");
}

/* The requested form of the reply; null for what was not requested. */
static void put_form(const serve_request *request, serve_text *out) {
  const serve_fields *f = &request->fields;
  bool is_chat = request->kind == SERVE_CHAT;
  strbuf_addf(out, ",\"n\":%" PRIu32, f->samples);
  if (is_chat) put_flag(out, "logprobs", f->logprobs);
  if (f->logprobs) strbuf_addf(out, ",\"%s\":%" PRIu32, is_chat ? "top_logprobs" : "logprobs", f->top_logprobs);
  else strbuf_addf(out, ",\"%s\":null", is_chat ? "top_logprobs" : "logprobs");
  if (f->prompt_logprobs) strbuf_addf(out, ",\"prompt_logprobs\":%" PRIu32, f->prompt_top);
  else strbuf_addf(out, ",\"prompt_logprobs\":null");
  if (!is_chat) put_flag(out, "echo", f->echo);
  put_flag(out, "add_special_tokens", f->add_special);
  put_flag(out, "skip_special_tokens", true);
  put_flag(out, "include_stop_str_in_output", f->include_stop);
  put_flag(out, "return_token_ids", f->return_ids);
  put_flag(out, "return_tokens_as_token_ids", f->names_as_ids);
  put_flag(out, "return_receipt", f->return_receipt);
}

static void put_params(const serve_model *m, const serve_choice *choice, serve_text *out) {
  const verbatim_request *r = &choice->engine_request;
  strbuf_addf(out, "{\"prompt_tokens\":%" PRIu32 ",\"max_tokens\":%" PRIu32 ",\"score_from\":%" PRIu32 ",\"alternatives\":%" PRIu32,
                 r->prompt_count, r->max_tokens, r->score_from, r->top_logprobs);
  put_float(out, "temperature", r->temperature);
  strbuf_addf(out, ",\"top_k\":%" PRIu32, r->top_k);
  put_double(out, "top_p", r->top_p);
  put_double(out, "min_p", r->min_p);
  put_float(out, "repetition_penalty", r->repetition_penalty);
  put_float(out, "presence_penalty", r->presence_penalty);
  put_float(out, "frequency_penalty", r->frequency_penalty);
  strbuf_addf(out, r->seed > INT64_MAX ? ",\"seed\":\"%" PRIu64 "\"" : ",\"seed\":%" PRIu64, r->seed); /* in the form that bodies use */
  strbuf_addf(out, ",\"sample_index\":%" PRIu32, r->sample_index);
  put_flag(out, "ignore_eos", r->ignore_eos);
  put_lists(m, r, out);
  put_double(out, "deadline_seconds", r->deadline_seconds);
  put_form(choice->request, out);
  strbuf_addf(out, "}");
}

/* The line's id is the choice's number, because a request's name would differ in every reply. */
static void put_receipt(const serve_model *m, const serve_choice *choice, uint32_t number, serve_text *out) {
  int32_t stops[SERVE_REQUEST_STOPS_MAX];
  uint32_t stop_count = serve_request_stop_ids(m, &choice->engine_request, stops);
  char id[16], *line = NULL;
  size_t bytes = 0;
  snprintf(id, sizeof id, "%" PRIu32, number);
  if (receipt_line(id, &choice->engine_request, stops, stop_count, &line, &bytes) != OK) {
    out->failed = true;
    return;
  }
  strbuf_add(out, line, bytes - 1); /* without its line feed */
  free(line);
}

static void put_choice(const serve_model *m, const serve_choice *choice, uint32_t number, serve_text *out) {
  const serve_fields *f = &choice->request->fields;
  strbuf_addf(out, "{\"index\":%" PRIu32 ",\"request\":", number);
  serve_text_digest(out, choice->engine_request.request_digest);
  strbuf_addf(out, ",\"chain\":");
  serve_text_digest(out, choice->engine_request.chain);
  if (*choice->tool_call_error) {
    strbuf_addf(out, ",\"tool_call_error\":");
    serve_text_string(out, choice->tool_call_error, strlen(choice->tool_call_error));
  }
  if (f->return_params) {
    strbuf_addf(out, ",\"params\":");
    put_params(m, choice, out);
  }
  if (f->return_receipt) {
    strbuf_addf(out, ",\"receipt\":");
    put_receipt(m, choice, number, out);
  }
  strbuf_addf(out, "}");
}

/* How the answers were read. */
static void put_parsers(const answer_form *form, serve_text *out) {
  strbuf_addf(out, ",\"parsers\":{\"reasoning\":");
  strbuf_addf(out, form->is_apart ? "\"%s\"" : "null", form->is_apart ? form->marks->name : "");
  strbuf_addf(out, ",\"tool_calls\":");
  strbuf_addf(out, form->grammar ? "\"%s\"}" : "null}", form->grammar ? form->grammar->name : "");
}

void serve_params_put(const serve_model *m, const serve_request *request, serve_text *out) {
  const struct { const char *key; const uint8_t *digest; } names[] = {
    {"numerics_id", m->info->numerics_id}, {"plan", m->info->plan_digest}, {"weights", m->info->weights_digest},
    {"tokenizer", m->info->tokenizer_digest}};
  strbuf_addf(out, "{");
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    strbuf_addf(out, "\"%s\":", names[i].key);
    serve_text_digest(out, names[i].digest);
    strbuf_addf(out, ",");
  }
  strbuf_addf(out, "\"ignored\":");
  if (request->fields.ignored) serve_text_json(out, request->fields.ignored);
  else strbuf_addf(out, "[]");
  if (request->is_read) put_parsers(&request->form, out);
  strbuf_addf(out, ",\"choices\":[");
  for (uint32_t i = 0; i < request->choice_count; i++) {
    if (i) strbuf_addf(out, ",");
    put_choice(m, &request->choices[i], i, out);
  }
  strbuf_addf(out, "]}");
}
