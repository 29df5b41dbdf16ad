/* serve/reply.c - see serve/reply.h. Whole replies first, then events. */
#include "serve/reply.h"
#include "jsonl/nonfinite.h"
#include "serve/params.h"
#include "serve/delta.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STREAM_BYTES 65536u     /* approximate limit of one call */
#define STREAM_ROW_BYTES 64u    /* typical size of a token's log-probability or an alternative's */
#define STREAM_TEXT_BYTES 1024u /* of a token's text; nearly all have less */

void serve_reply_fault(const serve_fault *fault, serve_text *out) {
  const char *const optional[] = {fault->param, fault->code};
  strbuf_addf(out, "{\"error\":{\"message\":");
  serve_text_string(out, fault->message, strlen(fault->message));
  strbuf_addf(out, ",\"type\":\"%s\"", fault->type);
  for (size_t i = 0; i < ARRAY_LEN(optional); i++) {
    strbuf_addf(out, i ? ",\"code\":" : ",\"param\":");
    if (optional[i][0]) serve_text_string(out, optional[i], strlen(optional[i]));
    else strbuf_addf(out, "null");
  }
  strbuf_addf(out, "}}");
}

/* === Endings ================================================================================================================ */

static bool is_good(enum verbatim_finish finish) {
  return finish == VERBATIM_STOP || finish == VERBATIM_LENGTH || finish == VERBATIM_STOP_TEXT;
}

/* An incomplete answer is an error, because a part could be mistaken for the whole. */
static void fault_of(const serve_choice *choice, serve_fault *fault) {
  const verbatim_request *r = &choice->engine_request;
  char text[NONFINITE_TEXT_BYTES];
  if (r->finish == VERBATIM_NONFINITE) {
    *fault = (serve_fault){.http_status = 500, .type = "server_error", .code = "nonfinite_logits"};
    snprintf(fault->message, sizeof fault->message, "the logits of choice %td hold NaN or Inf%s", choice - choice->request->choices,
             nonfinite_text(r, text));
  } else if (r->finish == VERBATIM_DEADLINE) {
    *fault = (serve_fault){.http_status = 504, .type = "timeout_error", .param = "deadline_seconds", .code = "deadline_exceeded"};
    snprintf(fault->message, sizeof fault->message, "choice %td was not finished within deadline_seconds",
             choice - choice->request->choices);
  } else {
    *fault = (serve_fault){.http_status = 503, .type = "server_error", .code = "cancelled",
                           .message = "the request was cancelled before it was finished"};
  }
}

static bool is_own_eos(const serve_model *m, const verbatim_request *r, int32_t id) {
  for (uint32_t i = 0; i < m->info->eos_count && !r->ignore_eos; i++)
    if ((int32_t)m->info->eos[i] == id) return true;
  return false;
}

static void put_finish(const serve_model *m, const verbatim_request *r, bool is_last, serve_text *out) {
  const verbatim_text *stop = is_last && r->finish == VERBATIM_STOP_TEXT ? &r->stop_texts[r->stop_index] : NULL;
  int32_t id = is_last && r->finish == VERBATIM_STOP ? r->tokens[r->token_count - 1].id : -1;
  strbuf_addf(out, ",\"finish_reason\":%s,\"stop_reason\":",
                 !is_last ? "null" : r->finish == VERBATIM_LENGTH ? "\"length\"" : "\"stop\"");
  if (stop) serve_text_string(out, stop->bytes, stop->count);
  else if (id >= 0 && !is_own_eos(m, r, id)) strbuf_addf(out, "%" PRId32, id);
  else strbuf_addf(out, "null");
}

/* === Choices ================================================================================================================ */

static void put_generated_ids(const verbatim_request *r, const serve_delta *delta, serve_text *out) {
  uint32_t from = max_u32(delta->from, r->prompt_count);
  strbuf_addf(out, ",\"token_ids\":[");
  for (uint32_t i = from; i < delta->to; i++) strbuf_addf(out, i > from ? ",%" PRId32 : "%" PRId32, r->tokens[i - r->prompt_count].id);
  strbuf_addf(out, "]");
}

static void put_prompt_ids(const verbatim_request *r, serve_text *out) {
  strbuf_addf(out, ",\"prompt_token_ids\":");
  serve_text_ids(out, r->prompt, r->prompt_count);
}

static void put_content(const serve_request *request, const serve_delta *delta, bool is_event, serve_text *out) {
  const serve_text *text = &delta->text;
  if (request->kind == SERVE_COMPLETION) {
    strbuf_addf(out, ",\"text\":");
    serve_text_string(out, text->bytes, text->count);
    return;
  }
  strbuf_addf(out, is_event ? ",\"delta\":{" : ",\"message\":{");
  if (delta->first) strbuf_addf(out, "\"role\":\"assistant\"");
  if (delta->first || text->count) {
    strbuf_addf(out, delta->first ? ",\"content\":" : "\"content\":");
    serve_text_string(out, text->bytes, text->count);
  }
  strbuf_addf(out, "}");
}

static void put_choice(const serve_model *m, const serve_choice *choice, const serve_delta *delta, serve_cursor *cursor, bool is_event,
                       serve_text *out) {
  const serve_request *request = choice->request;
  const serve_fields *f = &request->fields;
  out->failed |= delta->text.failed;
  strbuf_addf(out, "{\"index\":%td", choice - request->choices);
  put_content(request, delta, is_event, out);
  strbuf_addf(out, ",\"logprobs\":");
  if (f->logprobs) serve_delta_logprobs(m, choice, delta, cursor, out);
  else strbuf_addf(out, "null");
  put_finish(m, &choice->engine_request, delta->last, out);
  if (f->return_ids) put_generated_ids(&choice->engine_request, delta, out);
  if (request->kind == SERVE_COMPLETION && f->return_ids && delta->first) put_prompt_ids(&choice->engine_request, out);
  if (request->kind == SERVE_COMPLETION && f->prompt_logprobs) {
    strbuf_addf(out, ",\"prompt_logprobs\":");
    serve_delta_prompt_logprobs(m, choice, out);
  }
  strbuf_addf(out, "}");
}

static void put_head(const serve_model *m, const serve_request *request, bool is_event, uint64_t created, serve_text *out) {
  static const char *const names[2][2] = {{"text_completion", "text_completion"}, {"chat.completion", "chat.completion.chunk"}};
  strbuf_addf(out, "{\"id\":");
  serve_text_string(out, request->id, strlen(request->id));
  strbuf_addf(out, ",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", names[request->kind == SERVE_CHAT][is_event], created);
  serve_text_string(out, m->name, strlen(m->name));
  strbuf_addf(out, ",\"system_fingerprint\":");
  serve_text_string(out, m->fingerprint, strlen(m->fingerprint));
  strbuf_addf(out, ",\"choices\":[");
}

static void put_counts(uint64_t prompt, uint64_t generated, serve_text *out) {
  strbuf_addf(out, "{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64, prompt, generated,
              prompt + generated);
}

/* Where there were drafts. How many were checked depends on the times of steps, unlike all else in a reply. */
static void put_drafts(uint64_t drafted, uint64_t accepted, serve_text *out) {
  if (drafted == 0) return;
  strbuf_addf(out, ",\"completion_tokens_details\":{\"accepted_prediction_tokens\":%" PRIu64 ",\"rejected_prediction_tokens\":%" PRIu64 "}",
              accepted, drafted - accepted);
}

/* Each prompt counts once, however many samples it has. */
static void put_usage(const serve_request *request, serve_text *out) {
  uint64_t prompt = 0, generated = 0, drafted = 0, accepted = 0;
  for (uint32_t i = 0; i < request->prompt_count; i++) prompt += request->prompts[i].count;
  for (uint32_t i = 0; i < request->choice_count; i++) {
    generated += request->choices[i].engine_request.token_count;
    drafted += request->choices[i].engine_request.drafted_count;
    accepted += request->choices[i].engine_request.accepted_count;
  }
  put_counts(prompt, generated, out);
  put_drafts(drafted, accepted, out);
  strbuf_addf(out, "}");
}

/* === Whole ================================================================================================================== */

static void put_whole(const serve_model *m, const serve_request *request, serve_text *out) {
  const verbatim_request *first = &request->choices[0].engine_request;
  put_head(m, request, false, m->created, out);
  for (uint32_t i = 0; i < request->choice_count; i++) {
    const serve_choice *choice = &request->choices[i];
    serve_ready ready = {.tokens = choice->engine_request.token_count, .scores = choice->engine_request.score_count, .finished = true,
                         .delta_max = UINT32_MAX};
    serve_cursor cursor = {0};
    serve_delta delta;
    if (i) strbuf_addf(out, ",");
    serve_delta_take(m, choice, &ready, &cursor, &delta);
    put_choice(m, choice, &delta, &cursor, false, out);
    serve_delta_close(&delta);
  }
  strbuf_addf(out, "],\"usage\":");
  put_usage(request, out);
  if (request->kind == SERVE_CHAT && request->fields.return_ids) put_prompt_ids(first, out);
  if (request->kind == SERVE_CHAT && request->fields.prompt_logprobs) {
    strbuf_addf(out, ",\"prompt_logprobs\":");
    serve_delta_prompt_logprobs(m, &request->choices[0], out);
  }
  strbuf_addf(out, ",\"verbatim\":");
  serve_params_put(m, request, out);
  strbuf_addf(out, "}");
}

bool serve_reply_whole(const serve_model *m, const serve_request *request, serve_text *out, serve_fault *fault) {
  size_t before = out->count;
  if (request->failed) {
    *fault = request->fault;
    return false;
  }
  for (uint32_t i = 0; i < request->choice_count; i++) {
    if (is_good(request->choices[i].engine_request.finish)) continue;
    fault_of(&request->choices[i], fault);
    return false;
  }
  put_whole(m, request, out);
  if (!out->failed) return true;
  *fault = (serve_fault){.http_status = 500, .type = "server_error", .code = "out_of_memory", .message = "no memory for the reply"};
  out->count = before;
  out->failed = false;
  return false;
}

/* === Event by event ========================================================================================================= */

static void end_stream(serve_request *request, serve_text *out) {
  strbuf_addf(out, "data: [DONE]\n\n");
  request->stream_ended = true;
}

static void put_fault_event(serve_request *request, const serve_fault *fault, serve_text *out) {
  strbuf_addf(out, "data: ");
  serve_reply_fault(fault, out);
  strbuf_addf(out, "\n\n");
  end_stream(request, out);
}

/* With continuous_usage_stats, of the choice and up to this event, as in vLLM. */
static void put_event_usage(const serve_choice *choice, const serve_delta *delta, serve_text *out) {
  const serve_fields *f = &choice->request->fields;
  uint32_t prompt = choice->engine_request.prompt_count, generated = delta->to > prompt ? delta->to - prompt : 0;
  if (f->include_running_usage) {
    put_counts(prompt, generated, out);
    strbuf_addf(out, "}");
  } else if (f->include_usage) strbuf_addf(out, "null");
}

/* The last event with a choice, or the usage event after it, also holds the verbatim object. */
static void put_event(const serve_model *m, serve_request *request, serve_choice *choice, const serve_delta *delta, serve_text *out) {
  const serve_fields *f = &request->fields;
  request->ended_count += delta->last;
  strbuf_addf(out, "data: ");
  put_head(m, request, true, request->created, out);
  put_choice(m, choice, delta, &choice->sent, true, out);
  strbuf_addf(out, f->include_usage ? "],\"usage\":" : "]");
  put_event_usage(choice, delta, out);
  if (request->kind == SERVE_CHAT && f->return_ids && delta->first && choice == request->choices)
    put_prompt_ids(&choice->engine_request, out);
  if (request->ended_count == request->choice_count && !f->include_usage) {
    strbuf_addf(out, ",\"verbatim\":");
    serve_params_put(m, request, out);
  }
  strbuf_addf(out, "}\n\n");
}

static void put_usage_event(const serve_model *m, serve_request *request, serve_text *out) {
  strbuf_addf(out, "data: ");
  put_head(m, request, true, request->created, out);
  strbuf_addf(out, "],\"usage\":");
  put_usage(request, out);
  strbuf_addf(out, ",\"verbatim\":");
  serve_params_put(m, request, out);
  strbuf_addf(out, "}\n\n");
}

/* Whether there is anything to send. Tokens whose text is held back count only if tokens themselves are shown. */
static bool is_news(const serve_fields *f, const serve_delta *delta) {
  return delta->first || delta->last || delta->text.count || (delta->to > delta->from && (f->logprobs || f->return_ids));
}

/* The number of tokens of a choice in one event that keeps it within the limit of a call. */
static uint32_t event_tokens(const serve_fields *f) {
  return f->logprobs ? STREAM_BYTES / (STREAM_ROW_BYTES * (1 + f->top_logprobs)) : STREAM_BYTES / STREAM_TEXT_BYTES;
}

/* Writes the next event of the choice, if there is something to send. more: there is. False: it failed. */
static bool put_next(const serve_model *m, serve_request *request, serve_choice *choice, serve_text *out, bool *more, serve_fault *fault) {
  serve_delta delta;
  serve_ready ready = serve_delta_ready(choice);
  if (choice->sent.ended) return true;
  if (ready.finished && !is_good(choice->engine_request.finish)) {
    fault_of(choice, fault);
    return false;
  }
  ready.delta_max = event_tokens(&request->fields);
  serve_delta_take(m, choice, &ready, &choice->sent, &delta);
  if (is_news(&request->fields, &delta)) put_event(m, request, choice, &delta, out);
  *more |= delta.has_more;
  serve_delta_close(&delta);
  return true;
}

/* What one call leaves out, the next one finds; a call that adds nothing has found nothing. */
void serve_reply_stream(const serve_model *m, serve_request *request, serve_text *out, bool *ended) {
  serve_fault fault = {0};
  const size_t before = out->count;
  if (!request->created) request->created = m->created;
  pthread_mutex_lock(&request->mutex);
  bool failed = request->failed;
  if (failed) fault = request->fault;
  pthread_mutex_unlock(&request->mutex);
  for (bool more = true; more && !failed && !request->stream_ended && !out->failed;) {
    more = false;
    for (uint32_t i = 0; i < request->choice_count && !failed && out->count - before < STREAM_BYTES; i++)
      failed = !put_next(m, request, &request->choices[i], out, &more, &fault);
  }
  if (failed && !request->stream_ended) put_fault_event(request, &fault, out);
  if (!request->stream_ended && request->ended_count == request->choice_count) {
    if (request->fields.include_usage) put_usage_event(m, request, out);
    end_stream(request, out);
  }
  *ended = request->stream_ended;
}
