/* transcript.c - see transcript.h. */
#include "transcript.h"
#include "detokenizer.h"
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
  char *made = NULL;
  size_t room = 0, used = 0, added = 0;
  uint32_t count = request->token_count - (request->finish == VERBATIM_STOP ? 1 : 0);
  status result = grow(&made, &room, 64);
  for (uint32_t i = 0; i < count && result == OK; i++) {
    size_t token_bytes = 0;
    if (tokenizer_is_special(t, request->tokens[i])) continue;
    (void)tokenizer_token_bytes(t, request->tokens[i], &token_bytes);
    result = grow(&made, &room, used + 3 * (token_bytes + 3) + 8);
    if (result == OK) result = detokenizer_push(t, &state, request->tokens[i], made + used, room - used, &added);
    if (result == OK) used += added;
  }
  if (result == OK) result = grow(&made, &room, used + 8);
  if (result == OK) result = detokenizer_flush(&state, made + used, room - used, &added);
  if (result != OK) {
    free(made);
    return result;
  }
  used += added;
  made[used] = 0;
  *text = made;
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
  for (uint32_t i = 0; i < request->token_count; i++) json_array_append_new(list, json_integer(request->tokens[i]));
  return list;
}

static json_t *logprob_list(const verbatim_request *request) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < request->token_count; i++) json_array_append_new(list, json_real((double)request->logprobs[i]));
  return list;
}

status transcript_json(FILE *to, const item *source, const verbatim_request *request, const char *text, size_t text_bytes) {
  static const char *const finishes[] = {"running", "stop", "length", "nonfinite"};
  json_t *line = source->echo ? json_loads(source->echo, JSON_ALLOW_NUL, NULL) : json_object();
  int failed = !line;
  failed |= json_object_set_new(line, "id", json_string(source->id));
  if (source->task) failed |= json_object_set_new(line, "task", json_string(source->task));
  failed |= json_object_set_new(line, "prompt_tokens", json_integer(request->prompt_count));
  if (text) failed |= json_object_set_new(line, "text", json_stringn(text, text_bytes));
  failed |= json_object_set_new(line, "tokens", token_list(request));
  failed |= json_object_set_new(line, "finish", json_string(finishes[request->finish]));
  if (source->answer) failed |= json_object_set_new(line, "answer", json_string(source->answer));
  if (source->answer && text)
    failed |= json_object_set_new(line, "exact", json_boolean(transcript_matches(text, text_bytes, source->answer)));
  json_t *list = logprob_list(request);
  char *object = failed ? NULL : json_dumps(line, JSON_COMPACT), *logprobs = json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(9));
  failed |= !object || !logprobs; /* fp32 needs 9 digits, the caller's numbers keep theirs */
  if (!failed) failed = fprintf(to, "%.*s,\"logprobs\":%s}\n", (int)strlen(object) - 1, object, logprobs) < 0;
  free(object);
  free(logprobs);
  json_decref(list);
  json_decref(line);
  return failed ? FAIL(ERR_IO, "output of request %s could not be written", source->id) : OK;
}
