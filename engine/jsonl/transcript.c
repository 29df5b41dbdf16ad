/* transcript.c - see transcript.h. jansson writes the line; the lists of numbers have their own digits. */
#include "jsonl/transcript.h"
#include "text/detokenizer.h"
#include "base/digest.h"
#include "jsonl/nonfinite.h"
#include "receipts/receipt.h"
#include "base/utf8.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static status grow(char **text, size_t *room, size_t needed) {
  if (needed <= *room) return OK;
  size_t larger = 2 * needed;
  char *grown = realloc(*text, larger);
  if (!grown) return FAIL(ERR_LIMIT, "output: no memory");
  *text = grown;
  *room = larger;
  return OK;
}

status transcript_text(const tokenizer *t, const verbatim_request *request, char **text, size_t *bytes) {
  detokenizer state = {0};
  char *grown = NULL;
  size_t room = 0, used = 0, added = 0;
  uint32_t count = request->token_count - (request->finish == VERBATIM_STOP ? 1 : 0);
  status result = grow(&grown, &room, 64);
  for (uint32_t i = 0; i < count && result == OK; i++) {
    size_t token_bytes = 0;
    if (tokenizer_is_special(t, request->tokens[i].id)) continue;
    (void)tokenizer_token_bytes(t, request->tokens[i].id, &token_bytes);
    result = grow(&grown, &room, used + 3 * (token_bytes + 3) + 8);
    if (result == OK) result = detokenizer_push(t, &state, request->tokens[i].id, grown + used, room - used, &added);
    if (result == OK) used += added;
  }
  if (result == OK) result = grow(&grown, &room, used + 8);
  if (result == OK) result = detokenizer_flush(&state, grown + used, room - used, &added);
  if (result != OK) {
    free(grown);
    return result;
  }
  used += added;
  if (request->finish == VERBATIM_STOP_TEXT) {
    ASSERT(request->text_bytes <= used);
    used = (size_t)request->text_bytes;
  }
  grown[used] = 0;
  *text = grown;
  *bytes = used;
  return OK;
}

static bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool transcript_matches(const char *text, size_t bytes, const char *answer) {
  size_t answer_bytes = strlen(answer);
  while (bytes && blank(text[0])) text++, bytes--;
  while (bytes && blank(text[bytes - 1])) bytes--;
  while (answer_bytes && blank(answer[0])) answer++, answer_bytes--;
  while (answer_bytes && blank(answer[answer_bytes - 1])) answer_bytes--;
  return bytes == answer_bytes && memcmp(text, answer, bytes) == 0;
}

static json_t *token_list(const verbatim_request *request) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < request->token_count; i++) json_array_append_new(list, json_integer(request->tokens[i].id));
  return list;
}

static json_t *alternatives_of(const verbatim_request *request, const tokenizer *t, uint32_t index) {
  const verbatim_alternative *from = request->alternatives + ((uint64_t)request->score_count + index) * request->top_logprobs;
  json_t *list = json_array();
  for (uint32_t i = 0; i < request->top_logprobs; i++) {
    json_t *one = json_object();
    size_t bytes = 0;
    const uint8_t *text = t && !tokenizer_is_special(t, from[i].id) ? tokenizer_token_bytes(t, from[i].id, &bytes) : NULL;
    json_object_set_new(one, "id", json_integer(from[i].id));
    json_object_set_new(one, "logprob", json_real((double)from[i].logprob));
    if (text && utf8_valid_bytes(text, bytes) == bytes) json_object_set_new(one, "text", json_stringn((const char *)text, bytes));
    json_array_append_new(list, one);
  }
  return list;
}

/* The lists per token, dumped separately because of their digits: fp32 needs 9, while the caller's own numbers keep theirs. */
static char *details(const verbatim_request *request, const tokenizer *t) {
  json_t *object = json_object(), *logprobs = json_array(), *ranks = json_array(), *alternatives = json_array();
  for (uint32_t i = 0; i < request->token_count; i++) {
    json_array_append_new(logprobs, json_real((double)request->tokens[i].logprob));
    json_array_append_new(ranks, json_integer(request->tokens[i].rank));
    if (request->top_logprobs) json_array_append_new(alternatives, alternatives_of(request, t, i));
  }
  int failed = json_object_set_new(object, "logprobs", logprobs);
  failed |= json_object_set_new(object, "ranks", ranks);
  if (request->top_logprobs) failed |= json_object_set_new(object, "alternatives", alternatives);
  else json_decref(alternatives);
  char *text = failed ? NULL : json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
  json_decref(object);
  return text;
}

static int set_finish(json_t *line, const verbatim_request *request) {
  int failed = json_object_set_new(line, "finish", json_string(receipt_finish_name(request->finish)));
  if (request->finish == VERBATIM_STOP)
    failed |= json_object_set_new(line, "stop_reason", json_integer(request->tokens[request->token_count - 1].id));
  if (request->finish == VERBATIM_STOP_TEXT) {
    const verbatim_text *stop = &request->stop_texts[request->stop_index];
    failed |= json_object_set_new(line, "stop_reason", json_stringn(stop->bytes, stop->count));
  }
  json_t *fault = nonfinite_json(request);
  if (fault) failed |= json_object_set_new(line, "fault", fault);
  return failed;
}

status transcript_json(FILE *to, const uint8_t *numerics_id, const item *source, const verbatim_request *request, const tokenizer *t,
                       const char *text, size_t text_bytes) {
  static const char *const own[] = {"index", "text", "stop_reason", "fault", "exact", "logprobs", "ranks", "alternatives"};
  char digits[DIGEST_TEXT_BYTES];
  json_t *line = source->echo ? json_loads(source->echo, JSON_ALLOW_NUL, NULL) : json_object();
  int failed = !line;
  for (size_t i = 0; i < ARRAY_LEN(own); i++) (void)json_object_del(line, own[i]); /* removed even when nothing replaces it */
  failed |= json_object_set_new(line, "id", json_string(source->id));
  failed |= json_object_set_new(line, "numerics_id", json_string(digest_text(numerics_id, digits)));
  if (source->params.samples > 1) failed |= json_object_set_new(line, "index", json_integer(request->sample_index));
  if (source->task) failed |= json_object_set_new(line, "task", json_string(source->task));
  failed |= json_object_set_new(line, "prompt_tokens", json_integer(request->prompt_count));
  if (text) failed |= json_object_set_new(line, "text", json_stringn(text, text_bytes));
  failed |= json_object_set_new(line, "tokens", token_list(request));
  failed |= set_finish(line, request);
  if (source->answer) failed |= json_object_set_new(line, "answer", json_string(source->answer));
  if (source->answer && text)
    failed |= json_object_set_new(line, "exact", json_boolean(transcript_matches(text, text_bytes, source->answer)));
  char *object = failed ? NULL : json_dumps(line, JSON_COMPACT), *rest = details(request, text ? t : NULL);
  failed |= !object || !rest;
  if (!failed) failed = fprintf(to, "%.*s,%s\n", (int)strlen(object) - 1, object, rest + 1) < 0;
  free(object);
  free(rest);
  json_decref(line);
  return failed ? FAIL(ERR_IO, "output of request %s could not be written", source->id) : OK;
}
