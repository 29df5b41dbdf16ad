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
  const verbatim_request *r = &choice->request;
  char text[NONFINITE_TEXT_BYTES];
  if (r->finish == VERBATIM_NONFINITE) {
    *fault = (serve_fault){.http_status = 500, .type = "server_error", .code = "nonfinite_logits"};
    snprintf(fault->message, sizeof fault->message, "the logits of choice %td hold NaN or Inf%s", choice - choice->ask->choices,
             nonfinite_text(r, text));
  } else if (r->finish == VERBATIM_DEADLINE) {
    *fault = (serve_fault){.http_status = 504, .type = "timeout_error", .param = "deadline_seconds", .code = "deadline_exceeded"};
    snprintf(fault->message, sizeof fault->message, "choice %td was not finished within deadline_seconds", choice - choice->ask->choices);
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

static void put_content(const serve_request *ask, const serve_delta *delta, bool is_event, serve_text *out) {
  const serve_text *text = &delta->text;
  if (ask->kind == SERVE_COMPLETION) {
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
  const serve_request *ask = choice->ask;
  const serve_fields *f = &ask->fields;
  out->failed |= delta->text.failed;
  strbuf_addf(out, "{\"index\":%td", choice - ask->choices);
  put_content(ask, delta, is_event, out);
  strbuf_addf(out, ",\"logprobs\":");
  if (f->logprobs) serve_delta_logprobs(m, choice, delta, cursor, out);
  else strbuf_addf(out, "null");
  put_finish(m, &choice->request, delta->last, out);
  if (f->return_ids) put_generated_ids(&choice->request, delta, out);
  if (ask->kind == SERVE_COMPLETION && f->return_ids && delta->first) put_prompt_ids(&choice->request, out);
  if (ask->kind == SERVE_COMPLETION && f->prompt_logprobs) {
    strbuf_addf(out, ",\"prompt_logprobs\":");
    serve_delta_prompt_logprobs(m, choice, out);
  }
  strbuf_addf(out, "}");
}

static void put_head(const serve_model *m, const serve_request *ask, bool is_event, uint64_t created, serve_text *out) {
  static const char *const names[2][2] = {{"text_completion", "text_completion"}, {"chat.completion", "chat.completion.chunk"}};
  strbuf_addf(out, "{\"id\":");
  serve_text_string(out, ask->id, strlen(ask->id));
  strbuf_addf(out, ",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", names[ask->kind == SERVE_CHAT][is_event], created);
  serve_text_string(out, m->name, strlen(m->name));
  strbuf_addf(out, ",\"system_fingerprint\":");
  serve_text_string(out, m->fingerprint, strlen(m->fingerprint));
  strbuf_addf(out, ",\"choices\":[");
}

/* Each prompt counts once, however many samples it has. */
static void put_usage(const serve_request *ask, serve_text *out) {
  uint64_t prompt = 0, generated = 0;
  for (uint32_t i = 0; i < ask->prompt_count; i++) prompt += ask->prompts[i].count;
  for (uint32_t i = 0; i < ask->choice_count; i++) generated += ask->choices[i].request.token_count;
  strbuf_addf(out, "{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}", prompt, generated,
                 prompt + generated);
}

/* === Whole ================================================================================================================== */

static void put_whole(const serve_model *m, const serve_request *ask, serve_text *out) {
  const verbatim_request *first = &ask->choices[0].request;
  put_head(m, ask, false, m->created, out);
  for (uint32_t i = 0; i < ask->choice_count; i++) {
    const serve_choice *choice = &ask->choices[i];
    serve_ready ready = {.tokens = choice->request.token_count, .scores = choice->request.score_count, .finished = true,
                         .delta_max = UINT32_MAX};
    serve_cursor cursor = {0};
    serve_delta delta;
    if (i) strbuf_addf(out, ",");
    serve_delta_take(m, choice, &ready, &cursor, &delta);
    put_choice(m, choice, &delta, &cursor, false, out);
    serve_delta_close(&delta);
  }
  strbuf_addf(out, "],\"usage\":");
  put_usage(ask, out);
  if (ask->kind == SERVE_CHAT && ask->fields.return_ids) put_prompt_ids(first, out);
  if (ask->kind == SERVE_CHAT && ask->fields.prompt_logprobs) {
    strbuf_addf(out, ",\"prompt_logprobs\":");
    serve_delta_prompt_logprobs(m, &ask->choices[0], out);
  }
  strbuf_addf(out, ",\"verbatim\":");
  serve_params_put(m, ask, out);
  strbuf_addf(out, "}");
}

bool serve_reply_whole(const serve_model *m, const serve_request *ask, serve_text *out, serve_fault *fault) {
  size_t before = out->count;
  if (ask->failed) {
    *fault = ask->fault;
    return false;
  }
  for (uint32_t i = 0; i < ask->choice_count; i++) {
    if (is_good(ask->choices[i].request.finish)) continue;
    fault_of(&ask->choices[i], fault);
    return false;
  }
  put_whole(m, ask, out);
  if (!out->failed) return true;
  *fault = (serve_fault){.http_status = 500, .type = "server_error", .code = "out_of_memory", .message = "no memory for the reply"};
  out->count = before;
  out->failed = false;
  return false;
}

/* === Event by event ========================================================================================================= */

static void end_stream(serve_request *ask, serve_text *out) {
  strbuf_addf(out, "data: [DONE]\n\n");
  ask->stream_ended = true;
}

static void put_fault_event(serve_request *ask, const serve_fault *fault, serve_text *out) {
  strbuf_addf(out, "data: ");
  serve_reply_fault(fault, out);
  strbuf_addf(out, "\n\n");
  end_stream(ask, out);
}

/* The last event with a choice, or the usage event after it, also holds the verbatim object. */
static void put_event(const serve_model *m, serve_request *ask, serve_choice *choice, const serve_delta *delta, serve_text *out) {
  const serve_fields *f = &ask->fields;
  ask->ended_count += delta->last;
  strbuf_addf(out, "data: ");
  put_head(m, ask, true, ask->created, out);
  put_choice(m, choice, delta, &choice->sent, true, out);
  strbuf_addf(out, f->include_usage ? "],\"usage\":null" : "]");
  if (ask->kind == SERVE_CHAT && f->return_ids && delta->first && choice == ask->choices) put_prompt_ids(&choice->request, out);
  if (ask->ended_count == ask->choice_count && !f->include_usage) {
    strbuf_addf(out, ",\"verbatim\":");
    serve_params_put(m, ask, out);
  }
  strbuf_addf(out, "}\n\n");
}

static void put_usage_event(const serve_model *m, serve_request *ask, serve_text *out) {
  strbuf_addf(out, "data: ");
  put_head(m, ask, true, ask->created, out);
  strbuf_addf(out, "],\"usage\":");
  put_usage(ask, out);
  strbuf_addf(out, ",\"verbatim\":");
  serve_params_put(m, ask, out);
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
static bool put_next(const serve_model *m, serve_request *ask, serve_choice *choice, serve_text *out, bool *more, serve_fault *fault) {
  serve_delta delta;
  serve_ready ready = serve_delta_ready(choice);
  if (choice->sent.ended) return true;
  if (ready.finished && !is_good(choice->request.finish)) {
    fault_of(choice, fault);
    return false;
  }
  ready.delta_max = event_tokens(&ask->fields);
  serve_delta_take(m, choice, &ready, &choice->sent, &delta);
  if (is_news(&ask->fields, &delta)) put_event(m, ask, choice, &delta, out);
  *more |= delta.has_more;
  serve_delta_close(&delta);
  return true;
}

/* What one call leaves out, the next one finds; a call that adds nothing has found nothing. */
void serve_reply_stream(const serve_model *m, serve_request *ask, serve_text *out, bool *ended) {
  serve_fault fault = {0};
  const size_t before = out->count;
  if (!ask->created) ask->created = m->created;
  pthread_mutex_lock(&ask->mutex);
  bool failed = ask->failed;
  if (failed) fault = ask->fault;
  pthread_mutex_unlock(&ask->mutex);
  for (bool more = true; more && !failed && !ask->stream_ended && !out->failed;) {
    more = false;
    for (uint32_t i = 0; i < ask->choice_count && !failed && out->count - before < STREAM_BYTES; i++)
      failed = !put_next(m, ask, &ask->choices[i], out, &more, &fault);
  }
  if (failed && !ask->stream_ended) put_fault_event(ask, &fault, out);
  if (!ask->stream_ended && ask->ended_count == ask->choice_count) {
    if (ask->fields.include_usage) put_usage_event(m, ask, out);
    end_stream(ask, out);
  }
  *ended = ask->stream_ended;
}
