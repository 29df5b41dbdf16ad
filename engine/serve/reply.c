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

/* The reason is that calls were made if there are any and the answer was not cut off. */
static const char *finish_reason(const verbatim_request *r, const serve_cursor *cursor) {
  if (r->finish == VERBATIM_LENGTH) return "\"length\"";
  return answer_call_count(&cursor->answer) ? "\"tool_calls\"" : "\"stop\"";
}

static void put_finish(const serve_model *m, const verbatim_request *r, const serve_cursor *cursor, bool is_last, serve_text *out) {
  const verbatim_text *stop = is_last && r->finish == VERBATIM_STOP_TEXT ? &r->stop_texts[r->stop_index] : NULL;
  int32_t id = is_last && r->finish == VERBATIM_STOP ? r->tokens[r->token_count - 1].id : -1;
  strbuf_addf(out, ",\"finish_reason\":%s,\"stop_reason\":", is_last ? finish_reason(r, cursor) : "null");
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

/* The pieces of a call in a stream: its name, then its arguments; or both. */
enum call_part { CALL_NAME = 1, CALL_ARGUMENTS = 2, CALL_WHOLE = 3 };

static void put_call(const json_t *call, enum call_part part, serve_text *out) {
  const json_t *arguments = json_object_get(call, "arguments");
  strbuf_addf(out, "{");
  if (part != CALL_WHOLE) strbuf_addf(out, "\"index\":%" JSON_INTEGER_FORMAT ",", json_integer_value(json_object_get(call, "index")));
  if (part & CALL_NAME) {
    strbuf_addf(out, "\"id\":");
    serve_text_json(out, json_object_get(call, "id"));
    strbuf_addf(out, ",\"type\":\"function\",\"function\":{\"name\":");
    serve_text_json(out, json_object_get(call, "name"));
    strbuf_addf(out, ",");
  } else strbuf_addf(out, "\"function\":{");
  strbuf_addf(out, "\"arguments\":");
  if (part & CALL_ARGUMENTS) serve_text_string(out, json_string_value(arguments), json_string_length(arguments));
  else strbuf_addf(out, "\"\"");
  strbuf_addf(out, "}}");
}

/* The thought under the names of DeepSeek and of vLLM. */
static void put_thought(const serve_text *thought, bool is_first, serve_text *out) {
  static const char *const names[] = {"reasoning_content", "reasoning"};
  for (size_t i = 0; i < ARRAY_LEN(names) && thought->count; i++) {
    strbuf_addf(out, "%s\"%s\":", i || !is_first ? "," : "", names[i]);
    serve_text_string(out, thought->bytes, thought->count);
  }
}

static void put_content(const serve_request *request, const serve_delta *delta, bool is_event, serve_text *out) {
  const serve_text *text = &delta->text;
  const bool has_content = delta->first || text->count;
  if (request->kind == SERVE_COMPLETION) {
    strbuf_addf(out, ",\"text\":");
    serve_text_string(out, text->bytes, text->count);
    return;
  }
  strbuf_addf(out, is_event ? ",\"delta\":{" : ",\"message\":{");
  if (delta->first) strbuf_addf(out, "\"role\":\"assistant\"");
  if (has_content) strbuf_addf(out, delta->first ? ",\"content\":" : "\"content\":");
  if (has_content && !is_event && delta->calls && text->count == 0) strbuf_addf(out, "null");
  else if (has_content) serve_text_string(out, text->bytes, text->count);
  put_thought(&delta->thought, !has_content, out);
  if (!is_event && delta->calls) {
    strbuf_addf(out, ",\"tool_calls\":[");
    for (size_t i = 0; i < json_array_size(delta->calls); i++) {
      if (i) strbuf_addf(out, ",");
      put_call(json_array_get(delta->calls, i), CALL_WHOLE, out);
    }
    strbuf_addf(out, "]");
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
  put_finish(m, &choice->engine_request, cursor, delta->last, out);
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

/* Of thoughts, where they are apart, and of drafts, where there were any. How many of these were checked depends on the times of steps,
 * unlike all else in a reply. */
static void put_details(bool is_apart, uint64_t thought, uint64_t drafted, uint64_t accepted, serve_text *out) {
  if (drafted == 0 && !is_apart) return;
  strbuf_addf(out, ",\"completion_tokens_details\":{");
  if (is_apart) strbuf_addf(out, drafted ? "\"reasoning_tokens\":%" PRIu64 "," : "\"reasoning_tokens\":%" PRIu64, thought);
  if (drafted)
    strbuf_addf(out, "\"accepted_prediction_tokens\":%" PRIu64 ",\"rejected_prediction_tokens\":%" PRIu64, accepted, drafted - accepted);
  strbuf_addf(out, "}");
}

/* Each prompt counts once, however many samples it has. */
static void put_usage(const serve_request *request, serve_text *out) {
  uint64_t prompt = 0, generated = 0, drafted = 0, accepted = 0, thought = 0;
  for (uint32_t i = 0; i < request->prompt_count; i++) prompt += request->prompts[i].count;
  for (uint32_t i = 0; i < request->choice_count; i++) {
    generated += request->choices[i].engine_request.token_count;
    thought += request->choices[i].thought_tokens;
    drafted += request->choices[i].engine_request.drafted_count;
    accepted += request->choices[i].engine_request.accepted_count;
  }
  put_counts(prompt, generated, out);
  put_details(request->form.is_apart, thought, drafted, accepted, out);
  strbuf_addf(out, "}");
}

/* === Whole ================================================================================================================== */

/* What the reading of an answer found, for the rest of the reply. */
static void keep_findings(serve_choice *choice, const serve_cursor *cursor) {
  choice->thought_tokens = cursor->thought_tokens;
  snprintf(choice->tool_call_error, sizeof choice->tool_call_error, "%s", answer_error(&cursor->answer));
}

static void put_whole(const serve_model *m, serve_request *request, serve_text *out) {
  const verbatim_request *first = &request->choices[0].engine_request;
  put_head(m, request, false, m->created, out);
  for (uint32_t i = 0; i < request->choice_count; i++) {
    serve_choice *choice = &request->choices[i];
    serve_ready ready = {.tokens = choice->engine_request.token_count, .scores = choice->engine_request.score_count, .finished = true,
                         .delta_max = UINT32_MAX};
    serve_cursor cursor = {0};
    serve_delta delta;
    if (i) strbuf_addf(out, ",");
    serve_delta_take(m, choice, &ready, &cursor, &delta);
    put_choice(m, choice, &delta, &cursor, false, out);
    keep_findings(choice, &cursor);
    serve_delta_close(&delta);
    answer_close(&cursor.answer);
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

bool serve_reply_whole(const serve_model *m, serve_request *request, serve_text *out, serve_fault *fault) {
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

/* One event for each piece of each call. */
static void put_call_events(const serve_model *m, const serve_request *request, const serve_choice *choice, const serve_delta *delta,
                            serve_text *out) {
  static const enum call_part parts[] = {CALL_NAME, CALL_ARGUMENTS};
  for (size_t i = 0; i < json_array_size(delta->calls) * ARRAY_LEN(parts); i++) {
    strbuf_addf(out, "data: ");
    put_head(m, request, true, request->created, out);
    strbuf_addf(out, "{\"index\":%td,\"delta\":{\"tool_calls\":[", choice - request->choices);
    put_call(json_array_get(delta->calls, i / ARRAY_LEN(parts)), parts[i % ARRAY_LEN(parts)], out);
    strbuf_addf(out, "]},\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]");
    if (request->fields.include_usage) strbuf_addf(out, ",\"usage\":");
    put_event_usage(choice, delta, out);
    strbuf_addf(out, "}\n\n");
  }
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
  return delta->first || delta->last || delta->text.count || delta->thought.count ||
         (delta->to > delta->from && (f->logprobs || f->return_ids));
}

/* Calls follow the text of their delta, and only the last event may say that the choice ends. */
static void put_events(const serve_model *m, serve_request *request, serve_choice *choice, serve_delta *delta, serve_text *out) {
  const serve_fields *f = &request->fields;
  if (delta->last) keep_findings(choice, &choice->sent);
  if (!delta->calls) {
    if (is_news(f, delta)) put_event(m, request, choice, delta, out);
    return;
  }
  const serve_delta end = {.from = delta->to, .to = delta->to, .last = delta->last};
  delta->last = false;
  if (is_news(f, delta)) put_event(m, request, choice, delta, out);
  put_call_events(m, request, choice, delta, out);
  if (end.last) put_event(m, request, choice, &end, out);
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
  put_events(m, request, choice, &delta, out);
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
