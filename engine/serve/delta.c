/* serve/delta.c - see serve/delta.h. Text is decoded again from the tokens and never stored. While a token's text is not yet final the
 * cursor stays before it, and the part of it already written is skipped the next time. */
#include "serve/delta.h"
#include "serve/tokens.h"
#include <string.h>

serve_ready serve_delta_ready(const serve_choice *choice) {
  pthread_mutex_lock(&choice->request->mutex);
  serve_ready ready = {.tokens = choice->tokens_ready, .scores = choice->scores_ready, .text = choice->text_ready,
                       .finished = choice->finished, .delta_max = UINT32_MAX};
  pthread_mutex_unlock(&choice->request->mutex);
  return ready;
}

/* === Text =================================================================================================================== */

/* Where text goes: to the delta, or to the reader of the answer, which gives its parts to the delta. */
typedef struct passage {
  const serve_choice *choice;
  serve_cursor *cursor;
  serve_delta *delta;
  serve_text scratch; /* the text that the reader gets next */
} passage;

static void add_text(void *context, answer_kind kind, const char *text, size_t bytes) {
  serve_delta *delta = context;
  strbuf_add(kind == ANSWER_THOUGHT ? &delta->thought : &delta->text, text, bytes);
}

static void add_call(void *context, const answer_call *call) {
  serve_delta *delta = context;
  json_t *made = json_pack("{s:I,s:s,s:s,s:o}", "index", (json_int_t)call->index, "id", call->id, "name", call->name, "arguments",
                           json_stringn(call->arguments, call->arguments_bytes));
  if (!delta->calls) delta->calls = json_array();
  if (json_array_append_new(delta->calls, made) != 0) delta->text.failed = true;
}

static serve_text *target_of(passage *p) { return p->choice->request->is_read ? &p->scratch : &p->delta->text; }

/* Gives scratch to the reader. Text of a token counts for the thought up to the token that ends it. */
static void read_scratch(passage *p, uint32_t tokens) {
  const answer_form *form = &p->choice->form;
  answer_reader *self = &p->cursor->answer;
  const answer_sink sink = {.context = p->delta, .text = add_text, .call = add_call};
  if (!p->choice->request->is_read) return;
  bool was_past = answer_is_past(self, form);
  answer_push(self, form, p->scratch.bytes, p->scratch.count, &sink);
  if (!was_past && answer_has_thought(self, form)) p->cursor->thought_tokens = tokens;
  p->delta->text.failed |= p->scratch.failed || answer_failed(self);
  p->scratch.count = 0;
}

/* A special token has no text, but for the reader, if it is one of the marks. */
static void add_mark(const tokenizer *t, passage *p, int32_t id) {
  size_t bytes = 0;
  if (!p->choice->request->is_read || !tokenizer_is_special(t, id)) return;
  const char *text = (const char *)tokenizer_token_bytes(t, id, &bytes);
  if (text && answer_grammar_has(p->choice->form.grammar, p->choice->form.marks, text, bytes)) strbuf_add(&p->scratch, text, bytes);
}

static void take_generated(const tokenizer *t, passage *p, const serve_ready *ready) {
  const verbatim_request *r = &p->choice->engine_request;
  serve_cursor *cursor = p->cursor;
  serve_text *out = target_of(p);
  bool is_whole = ready->finished;
  uint64_t until = !is_whole ? ready->text : r->finish == VERBATIM_STOP_TEXT ? r->text_bytes : UINT64_MAX;
  uint32_t count = ready->tokens - (is_whole && r->finish == VERBATIM_STOP);
  while (cursor->text_token < count && cursor->text_written < until) {
    size_t from = out->count;
    detokenizer next = cursor->text_decoder;
    serve_tokens_text(t, &next, r->tokens[cursor->text_token].id, false, out);
    if (out->failed) return;
    uint64_t end = cursor->text_base + (out->count - from), shown = min_u64(end, until);
    size_t written = (size_t)(cursor->text_written - cursor->text_base), bytes = (size_t)(shown - cursor->text_written);
    if (bytes) memmove(out->bytes + from, out->bytes + from + written, bytes);
    out->count = from + bytes;
    cursor->text_written = shown;
    if (end <= until) add_mark(t, p, r->tokens[cursor->text_token].id);
    read_scratch(p, cursor->text_token + 1);
    if (end > until) return;
    cursor->text_decoder = next;
    cursor->text_base = end;
    cursor->text_token++;
  }
  if (is_whole && r->finish != VERBATIM_STOP_TEXT) serve_tokens_flush(&cursor->text_decoder, out);
}

/* The end of an answer that is read. */
static void finish_answer(passage *p) {
  const answer_sink sink = {.context = p->delta, .text = add_text, .call = add_call};
  answer_reader *self = &p->cursor->answer;
  read_scratch(p, p->choice->engine_request.token_count);
  if (answer_is_inside(self, &p->choice->form)) p->cursor->thought_tokens = p->choice->engine_request.token_count;
  answer_finish(self, &p->choice->form, &sink);
  p->delta->text.failed |= answer_failed(self);
}

/* Adds the stop text or token that ended the answer, if it is to be included. */
static void take_stop(const tokenizer *t, const verbatim_request *r, serve_text *out) {
  detokenizer alone = {0};
  if (r->finish == VERBATIM_STOP_TEXT) strbuf_add(out, r->stop_texts[r->stop_index].bytes, r->stop_texts[r->stop_index].count);
  if (r->finish != VERBATIM_STOP) return;
  serve_tokens_text(t, &alone, r->tokens[r->token_count - 1].id, false, out);
  serve_tokens_flush(&alone, out);
}

static void take_prompt(const tokenizer *t, const verbatim_request *r, serve_text *out) {
  detokenizer decoder = {0};
  for (uint32_t i = 0; i < r->prompt_count; i++) serve_tokens_text(t, &decoder, r->prompt[i], false, out);
  serve_tokens_flush(&decoder, out);
}

/* Determines where the delta ends; returns what is ready, as if that were everything so far. */
static serve_ready limit_delta(const verbatim_request *r, const serve_ready *ready, serve_delta *delta) {
  serve_ready some = *ready;
  uint32_t end = r->prompt_count + ready->tokens;
  delta->has_more = end - delta->from > ready->delta_max;
  delta->to = delta->has_more ? delta->from + ready->delta_max : end;
  if (!delta->has_more) return some;
  some.tokens = delta->to > r->prompt_count ? delta->to - r->prompt_count : 0;
  some.finished = false;
  return some;
}

void serve_delta_take(const serve_model *m, const serve_choice *choice, const serve_ready *ready, serve_cursor *cursor,
                      serve_delta *delta) {
  const verbatim_request *r = &choice->engine_request;
  bool echo = choice->request->fields.echo, was_ended = cursor->ended;
  *delta = (serve_delta){0};
  if (cursor->ended || (r->score && ready->scores < r->prompt_count - 1 && !ready->finished)) return;
  delta->first = !cursor->begun && (echo || ready->tokens || ready->finished);
  if (delta->first) {
    cursor->begun = true;
    cursor->entry = echo ? 0 : r->prompt_count;
    if (echo) take_prompt(m->tokenizer, r, &delta->text);
  }
  if (!cursor->begun) return;
  delta->from = cursor->entry;
  const serve_ready some = limit_delta(r, ready, delta);
  passage p = {.choice = choice, .cursor = cursor, .delta = delta};
  take_generated(m->tokenizer, &p, &some);
  if (some.finished && choice->request->fields.include_stop) take_stop(m->tokenizer, r, target_of(&p));
  if (some.finished && choice->request->is_read) finish_answer(&p);
  delta->text.failed |= p.scratch.failed;
  strbuf_close(&p.scratch);
  cursor->entry = delta->to;
  cursor->ended = some.finished;
  delta->last = cursor->ended && !was_ended;
}

void serve_delta_close(serve_delta *delta) {
  strbuf_close(&delta->text);
  strbuf_close(&delta->thought);
  json_decref(delta->calls);
}

/* === Log-probabilities ====================================================================================================== */

static int32_t id_of(const verbatim_request *r, uint32_t entry) {
  return entry < r->prompt_count ? r->prompt[entry] : r->tokens[entry - r->prompt_count].id;
}

/* The row of a token; false: it has none. */
static bool row_of(const verbatim_request *r, uint32_t entry, uint32_t shown, serve_token *out) {
  bool is_generated = entry >= r->prompt_count;
  if (!is_generated && (!r->score || entry == 0)) return false;
  uint64_t scored = r->score ? r->prompt_count - 1 : 0, row = is_generated ? scored + entry - r->prompt_count : entry - 1;
  *out = (serve_token){.token = is_generated ? &r->tokens[entry - r->prompt_count] : &r->scores[entry - 1],
                       .top = r->alternatives + row * r->top_logprobs, .known = r->top_logprobs, .shown = shown};
  return true;
}

/* Moves the cursor past a token, by the characters that it completes. The prompt's text ends with its last token. */
static void pass(const serve_model *m, const verbatim_request *r, uint32_t entry, serve_cursor *cursor, serve_text *scratch) {
  scratch->count = 0;
  serve_tokens_text(m->tokenizer, &cursor->entry_decoder, id_of(r, entry), false, scratch);
  if (entry + 1 == r->prompt_count) serve_tokens_flush(&cursor->entry_decoder, scratch);
  for (size_t i = 0; i < scratch->count; i++) cursor->characters += ((uint8_t)scratch->bytes[i] & 0xC0) != 0x80;
}

static void put_offsets(const serve_model *m, const verbatim_request *r, const serve_delta *delta, serve_cursor *cursor,
                          serve_text *out) {
  serve_text scratch = {0};
  for (uint32_t i = delta->from; i < delta->to; i++) {
    strbuf_addf(out, i > delta->from ? ",%llu" : "%llu", (unsigned long long)cursor->characters);
    pass(m, r, i, cursor, &scratch);
  }
  out->failed |= scratch.failed;
  strbuf_close(&scratch);
}

static void put_completion(const serve_model *m, const serve_choice *choice, const serve_delta *delta, serve_cursor *cursor,
                           serve_text *out) {
  const verbatim_request *r = &choice->engine_request;
  const serve_fields *f = &choice->request->fields;
  serve_token row;
  strbuf_addf(out, "{\"text_offset\":[");
  put_offsets(m, r, delta, cursor, out);
  strbuf_addf(out, "],\"token_logprobs\":[");
  for (uint32_t i = delta->from; i < delta->to; i++) {
    if (i > delta->from) strbuf_addf(out, ",");
    if (row_of(r, i, 0, &row)) serve_text_double(out, (double)serve_tokens_number(&row));
    else strbuf_addf(out, "null");
  }
  strbuf_addf(out, "],\"tokens\":[");
  for (uint32_t i = delta->from; i < delta->to; i++) {
    if (i > delta->from) strbuf_addf(out, ",");
    serve_tokens_name(m->tokenizer, id_of(r, i), f->names_as_ids, out);
  }
  strbuf_addf(out, f->top_logprobs ? "],\"top_logprobs\":[" : "],\"top_logprobs\":null}");
  if (!f->top_logprobs) return;
  for (uint32_t i = delta->from; i < delta->to; i++) {
    if (i > delta->from) strbuf_addf(out, ",");
    if (row_of(r, i, f->top_logprobs, &row)) serve_tokens_dictionary(m->tokenizer, &row, f->names_as_ids, out);
    else strbuf_addf(out, "null");
  }
  strbuf_addf(out, "]}");
}

void serve_delta_logprobs(const serve_model *m, const serve_choice *choice, const serve_delta *delta, serve_cursor *cursor,
                          serve_text *out) {
  const serve_fields *f = &choice->request->fields;
  serve_token row;
  if (choice->request->kind == SERVE_COMPLETION) {
    put_completion(m, choice, delta, cursor, out);
    return;
  }
  strbuf_addf(out, "{\"content\":[");
  for (uint32_t i = delta->from; i < delta->to; i++) {
    if (i > delta->from) strbuf_addf(out, ",");
    if (row_of(&choice->engine_request, i, f->top_logprobs, &row)) serve_tokens_entry(m->tokenizer, &row, f->names_as_ids, out);
  }
  strbuf_addf(out, "]}");
}

void serve_delta_prompt_logprobs(const serve_model *m, const serve_choice *choice, serve_text *out) {
  const serve_fields *f = &choice->request->fields;
  serve_token row;
  strbuf_addf(out, "[");
  for (uint32_t i = 0; i < choice->engine_request.prompt_count; i++) {
    if (i) strbuf_addf(out, ",");
    if (row_of(&choice->engine_request, i, f->prompt_top, &row)) serve_tokens_ranked(m->tokenizer, &row, f->names_as_ids, out);
    else strbuf_addf(out, "null");
  }
  strbuf_addf(out, "]");
}
