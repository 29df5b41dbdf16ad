/* eval/request.c - see eval/request.h. One function encodes each kind of task. */
#include "eval/request.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* === Parameters ============================================================================================================= */

/* Keys that would make an outcome depend on a clock, or that belong to the item. */
static const char *const REFUSED[] = {"deadline_seconds", "prompt", "prompt_ids", "id", "task", "answer"};

static status read_params(const eval_task *task, items *out) {
  json_t *line = json_copy((json_t *)(uintptr_t)task->generation);
  for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++) {
    if (!json_object_get(line, REFUSED[i])) continue;
    json_decref(line);
    return FAIL(ERR_FORMAT, "\"%s\" does not apply here; hint: remove it", REFUSED[i]);
  }
  char *text = NULL;
  if (line && json_object_set_new(line, "prompt", json_string("")) == 0) text = json_dumps(line, JSON_COMPACT);
  json_decref(line);
  if (!text) return FAIL(ERR_LIMIT, "no memory");
  status result = items_add_json(out, text, strlen(text), 1, &ITEMS_DEFAULTS);
  free(text);
  TRY(result);
  if (out->list[0].echo)
    return FAIL(ERR_FORMAT, "unknown keys: %.200s; hint: the keys are those of `verbatim run --jsonl`", out->list[0].echo);
  item_params *params = &out->list[0].params;
  if (params->max_tokens == 0) return FAIL(ERR_FORMAT, "max_tokens: expected at least 1");
  params->top_logprobs = max_u32(params->top_logprobs, EVAL_REQUEST_TOP);
  return OK;
}

status eval_request_params(const eval_task *task, items *out) {
  status result = read_params(task, out);
  if (result != OK) fail_prefix("generation");
  return result;
}

/* === Tokens ================================================================================================================= */

status eval_request_view(const eval_task *task, const eval_item *of, score_item *out) {
  const score_part whole = {.text = of->prompt.bytes, .bytes = of->prompt.count};
  bool is_choice = task->kind == EVAL_CHOICE;
  size_t count = is_choice ? json_array_size(of->choices) : 1;
  score_item made = {.line = 1, .id = of->id, .part_count = (uint32_t)count, .is_list = is_choice, .answer = -1};
  if (!(made.parts = calloc(count, sizeof *made.parts))) return FAIL(ERR_LIMIT, "item: no memory");
  if (is_choice) made.context = whole;
  else made.parts[0] = whole;
  for (size_t i = 0; is_choice && i < count; i++) {
    const json_t *text = json_array_get(of->choices, i);
    made.parts[i] = (score_part){.text = (char *)(uintptr_t)json_string_value(text), .bytes = json_string_length(text),
                                 .by_characters = task->by_characters};
  }
  *out = made;
  return OK;
}

static status encode_text(const char *text, size_t bytes, bool add_special, const tokenizer *t, score_tokens *out) {
  size_t room = bytes + 8, count = 0;
  if (!(out->ids = malloc(room * sizeof *out->ids))) return FAIL(ERR_LIMIT, "item: no memory");
  TRY(tokenizer_encode(t, text, bytes, add_special, true, out->ids, room, &count));
  if (count == 0) return FAIL(ERR_FORMAT, "the prompt has no token");
  int32_t *fitting = realloc(out->ids, count * sizeof *fitting);
  if (fitting) out->ids = fitting;
  out->count = (uint32_t)count;
  return OK;
}

/* Encodes the prompt as a user's message; the chat template writes the text before and after it. */
static status encode_message(const eval_item *of, const chat *c, const tokenizer *t, score_tokens *out) {
  json_t *body = json_pack("{s:[{s:s, s:o}]}", "messages", "role", "user", "content", json_stringn(of->prompt.bytes, of->prompt.count));
  char *text = NULL;
  size_t bytes = 0;
  status result = body ? chat_render(c, body, NULL, &text, &bytes) : FAIL(ERR_LIMIT, "item: no memory");
  json_decref(body);
  if (result == OK) result = encode_text(text, bytes, false, t, out);
  free(text);
  return result;
}

static status encode_scored(const eval_task *task, const eval_item *of, const tokenizer *t, eval_request *out) {
  score_item view;
  TRY(eval_request_view(task, of, &view));
  status result = task->kind == EVAL_CHOICE ? score_tokens_pairs(t, true, &view, out->lists) : score_tokens_whole(t, &view, out->lists);
  free(view.parts);
  return result;
}

status eval_request_encode(const eval_task *task, const eval_item *of, const item_params *params, const tokenizer *t, const chat *c,
                       eval_request *out) {
  out->list_count = task->kind == EVAL_CHOICE ? (uint32_t)json_array_size(of->choices) : 1;
  if (!(out->lists = calloc(out->list_count, sizeof *out->lists))) return FAIL(ERR_LIMIT, "item: no memory");
  if (task->kind == EVAL_GENERATE) {
    out->request_count = params->samples;
    if (task->chat) return encode_message(of, c, t, out->lists);
    return encode_text(of->prompt.bytes, of->prompt.count, true, t, out->lists);
  }
  TRY(encode_scored(task, of, t, out));
  out->request_count = task->kind == EVAL_CHOICE ? out->list_count : score_tokens_window_count(out->lists[0].count, task->window);
  return OK;
}

/* === Too long =============================================================================================================== */

/* How many ids the tokenizer puts before every text, as far as the list begins with them. */
static status count_kept(const tokenizer *t, const score_tokens *list, uint32_t *out) {
  int32_t ids[8];
  size_t count = 0;
  TRY(tokenizer_encode(t, "", 0, true, true, ids, ARRAY_LEN(ids), &count));
  *out = 0;
  while (*out < count && *out < list->count && ids[*out] == list->ids[*out]) ++*out;
  return OK;
}

/* Takes `excess` ids out behind the first `kept`. False: there are not as many that may go. At least one id remains before what is scored,
 * or of the prompt. */
static bool cut_left(score_tokens *list, uint32_t kept, uint32_t excess, bool is_scored) {
  uint32_t end = is_scored ? list->from : list->count, needed = is_scored && kept > 0 ? 0 : 1;
  if (end < kept || (uint64_t)excess + needed > end - kept) return false;
  memmove(list->ids + kept, list->ids + kept + excess, (list->count - kept - excess) * sizeof *list->ids);
  list->count -= excess;
  if (is_scored) list->from -= excess;
  return true;
}

/* Every choice loses as many ids, so that all of them follow the same text. */
static bool cut_all(const eval_task *task, eval_request *self, uint32_t kept, uint32_t excess) {
  for (uint32_t i = 0; i < self->list_count; i++)
    if (!cut_left(&self->lists[i], kept, excess, task->kind == EVAL_CHOICE)) return false;
  self->dropped = excess;
  return true;
}

status eval_request_fit(const eval_task *task, eval_request *self, const item_params *params, const tokenizer *t, uint32_t max_len) {
  const uint64_t made = task->kind == EVAL_GENERATE ? params->max_tokens : 0;
  uint32_t longest = 0, kept;
  if (task->kind == EVAL_PERPLEXITY)
    return task->window <= max_len ? OK : FAIL(ERR_LIMIT, "window: %u tokens, the plan's max-model-len is %u", task->window, max_len);
  for (uint32_t i = 0; i < self->list_count; i++) longest = max_u32(longest, self->lists[i].count);
  if (longest + made <= max_len) return OK;
  if (task->too_long == EVAL_TOO_LONG_SKIP) {
    self->is_skipped = true;
    self->request_count = 0;
    return OK;
  }
  TRY(count_kept(t, &self->lists[0], &kept));
  bool may_cut = task->too_long == EVAL_TOO_LONG_TRUNCATE_LEFT && made < max_len;
  if (may_cut && cut_all(task, self, kept, (uint32_t)(longest + made - max_len))) return OK;
  return FAIL(ERR_LIMIT, "%u tokens in the prompt and %llu to generate, the plan's max-model-len is %u", longest, (unsigned long long)made,
              max_len);
}

/* === Requests =============================================================================================================== */

static void set_scored(const eval_request *self, const eval_task *task, uint32_t index, verbatim_request *r) {
  const score_tokens *list = &self->lists[task->kind == EVAL_CHOICE ? index : 0];
  score_window window = {.count = list->count, .from = list->from};
  if (task->kind == EVAL_PERPLEXITY) window = score_tokens_window(list->count, task->window, index);
  r->prompt = list->ids + window.first;
  r->prompt_count = window.count;
  r->max_tokens = 0;
  r->score = true;
  r->score_from = window.from;
  r->top_logprobs = EVAL_REQUEST_TOP;
}

static status open_request(const eval_request *self, const eval_task *task, const item_params *params, uint32_t index,
                           verbatim_request *r) {
  *r = VERBATIM_REQUEST_DEFAULTS;
  if (task->kind == EVAL_GENERATE) {
    items_request(params, index, r);
    r->prompt = self->lists[0].ids;
    r->prompt_count = self->lists[0].count;
  } else set_scored(self, task, index, r);
  uint64_t scored = r->score ? r->prompt_count - r->score_from : 0, rows = scored + r->max_tokens;
  r->scores = calloc(scored + 1, sizeof *r->scores);
  r->tokens = calloc(r->max_tokens + 1ull, sizeof *r->tokens);
  r->alternatives = calloc(rows * r->top_logprobs + 1, sizeof *r->alternatives);
  return r->scores && r->tokens && r->alternatives ? OK : FAIL(ERR_LIMIT, "requests: no memory");
}

status eval_request_open(eval_request *self, const eval_task *task, const item_params *params, void *context) {
  if (!(self->requests = calloc(self->request_count + 1u, sizeof *self->requests))) return FAIL(ERR_LIMIT, "requests: no memory");
  for (uint32_t i = 0; i < self->request_count; i++) {
    TRY(open_request(self, task, params, i, &self->requests[i]));
    self->requests[i].context = context;
  }
  return OK;
}

void eval_request_release(eval_request *self) {
  for (uint32_t i = 0; self->requests && i < self->request_count; i++) {
    free(self->requests[i].scores);
    free(self->requests[i].tokens);
    free(self->requests[i].alternatives);
  }
  free(self->requests);
  for (uint32_t i = 0; self->lists && i < self->list_count; i++) score_tokens_close(&self->lists[i]);
  free(self->lists);
  *self = (eval_request){0};
}
