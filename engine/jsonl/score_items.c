/* score_items.c - see score_items.h. The form of a line is decided first, then each key is read. */
#include "jsonl/score_items.h"
#include "jsonl/json_line.h"
#include "verbatim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys of `verbatim run`, and names of parameters in other programs. */
static const char *const REFUSED[] = {
  "prompt", "prompt_ids", "completion", "choices", "max_tokens", "temperature", "top_k", "top_p", "min_p", "logit_bias", "allowed_ids",
  "response_format", "structured_outputs", "guided_choice", "guided_regex", "guided_json",
  "repetition_penalty", "presence_penalty", "frequency_penalty", "stop", "n", "logprobs", "top_logprobs", "messages", "echo",
  "deadline", "timeout", "max_time",
};

typedef enum form { CONTEXT, CONTEXT_IDS, TEXT, IDS, ONE, ONE_IDS, SEVERAL, SEVERAL_IDS, FORM_COUNT } form;
static const char *const FORM_KEYS[FORM_COUNT] = {
  "context", "context_ids", "text", "ids", "continuation", "continuation_ids", "continuations", "continuations_ids",
};

static void clear_part(score_part *part) {
  free(part->text);
  free(part->ids);
}

static void clear(score_item *self) {
  free(self->id);
  free(self->task);
  free(self->echo);
  clear_part(&self->context);
  for (uint32_t i = 0; i < self->part_count; i++) clear_part(&self->parts[i]);
  free(self->parts);
  free(self->required);
}

void score_items_close(score_items *self) {
  for (uint32_t i = 0; i < self->count; i++) clear(&self->list[i]);
  free(self->list);
  *self = (score_items){0};
}

/* === Values ================================================================================================================= */

static status read_part(const json_line_key *at, const json_t *value, bool is_ids, score_part *out) {
  if (is_ids) return json_line_new_ids(at, value, &out->ids, &out->id_count);
  return json_line_text(at, value, &out->text, &out->bytes);
}

static status read_parts(const json_line_key *at, const json_t *value, form kind, score_item *out) {
  bool is_list = kind == SEVERAL || kind == SEVERAL_IDS, is_ids = kind == ONE_IDS || kind == SEVERAL_IDS || kind == IDS;
  size_t count = is_list ? json_array_size(value) : 1;
  if (is_list && (count == 0 || count > SCORE_ITEMS_PARTS_MAX)) return json_line_wrong(at, "a list of 1 to 65536 continuations");
  if (!(out->parts = calloc(count, sizeof *out->parts))) return json_line_no_memory();
  out->part_count = (uint32_t)count;
  out->is_list = is_list;
  for (size_t i = 0; i < count; i++) TRY(read_part(at, is_list ? json_array_get(value, i) : value, is_ids, &out->parts[i]));
  return OK;
}

/* Decides the form of the line: one of the first four, and with a context also one of the last four, of the same kind. */
static status check_form(const json_t *object, uint32_t line, form *context, form *parts) {
  uint32_t heads = 0, tails = 0;
  for (form i = 0; i < FORM_COUNT; i++) {
    if (!json_object_get(object, FORM_KEYS[i])) continue;
    if (i <= IDS) *context = i, heads++;
    else *parts = i, tails++;
  }
  if (heads != 1)
    return FAIL(ERR_FORMAT, "line %u: expected one of \"context\", \"context_ids\", \"text\" and \"ids\", found %u", line, heads);
  if (*context == TEXT || *context == IDS) {
    *parts = *context;
    return tails == 0 ? OK : FAIL(ERR_FORMAT, "line %u: \"%s\" has no continuation; hint: the key before one is \"context%s\"", line,
                                  FORM_KEYS[*context], *context == IDS ? "_ids" : "");
  }
  bool ids = *context == CONTEXT_IDS, part_ids = *parts == ONE_IDS || *parts == SEVERAL_IDS;
  if (tails == 1 && ids == part_ids) return OK;
  return FAIL(ERR_FORMAT, "line %u: expected one of \"%s\" and \"%s\" beside \"%s\"", line, FORM_KEYS[ids ? ONE_IDS : ONE],
              FORM_KEYS[ids ? SEVERAL_IDS : SEVERAL], FORM_KEYS[*context]);
}

static status read_answer(const json_line_key *at, const json_t *value, score_item *out) {
  uint32_t answer = 0;
  TRY(json_line_u32(at, value, &answer));
  if (answer > INT32_MAX) return json_line_wrong(at, "the index of a continuation");
  out->answer = (int32_t)answer;
  return OK;
}

static status read_required(const json_line_key *at, const json_t *value, score_item *out) {
  TRY(json_line_new_names(at, value, VERBATIM_REQUIRED_MAX, &out->required, &out->conditions.required_count));
  out->conditions.required = out->required;
  return OK;
}

static status read_key(const json_line_key *at, json_t *value, score_item *out, json_t *echo) {
  if (strcmp(at->name, "id") == 0) return json_line_id(at, value, &out->id);
  if (strcmp(at->name, "task") == 0) return json_line_text(at, value, &out->task, NULL);
  if (strcmp(at->name, "answer") == 0) return read_answer(at, value, out);
  if (strcmp(at->name, "deadline_seconds") == 0) return json_line_seconds(at, value, &out->conditions.deadline_seconds);
  if (strcmp(at->name, "require") == 0) return read_required(at, value, out);
  for (form i = 0; i < FORM_COUNT; i++) {
    if (strcmp(at->name, FORM_KEYS[i]) != 0) continue;
    return i <= CONTEXT_IDS ? read_part(at, value, i == CONTEXT_IDS, &out->context) : read_parts(at, value, i, out);
  }
  for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
    if (strcmp(at->name, REFUSED[i]) == 0) return json_line_unsupported(at);
  return json_object_set(echo, at->name, value) == 0 ? OK : json_line_no_memory();
}

static status check_answer(const score_item *self) {
  if (self->answer < 0) return OK;
  if (!self->is_list) return FAIL(ERR_FORMAT, "line %u: \"answer\": expected a list of continuations beside it", self->line);
  if ((uint32_t)self->answer < self->part_count) return OK;
  return FAIL(ERR_FORMAT, "line %u: \"answer\": expected an index of 0 to %u, found %d", self->line, self->part_count - 1, self->answer);
}

static status read_object(json_t *object, score_item *out, json_t *echo) {
  const char *key;
  json_t *value;
  form context = FORM_COUNT, parts = FORM_COUNT;
  TRY(check_form(object, out->line, &context, &parts));
  json_object_foreach(object, key, value) {
    json_line_key at = {.line = out->line, .name = key};
    TRY(read_key(&at, value, out, echo));
  }
  TRY(check_answer(out));
  if (json_object_size(echo) == 0) return OK;
  return (out->echo = json_dumps(echo, JSON_COMPACT)) ? OK : json_line_no_memory();
}

/* === The list =============================================================================================================== */

static status append(score_items *self, score_item *added) {
  if (self->count == SCORE_ITEMS_MAX) return FAIL(ERR_LIMIT, "items: more than %u", SCORE_ITEMS_MAX);
  if (self->count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 16;
    score_item *grown = realloc(self->list, room * sizeof *grown);
    if (!grown) return json_line_no_memory();
    self->list = grown;
    self->room = room;
  }
  if (!added->id) {
    char number[16];
    int bytes = snprintf(number, sizeof number, "%u", self->count);
    if (!(added->id = json_line_copy(number, (size_t)bytes))) return json_line_no_memory();
  }
  self->list[self->count++] = *added;
  return OK;
}

status score_items_add(score_items *self, const char *line, size_t bytes, uint32_t line_number, const score_conditions *defaults) {
  json_t *object = NULL;
  TRY(json_line_parse(line, bytes, line_number, &object));
  score_item added = {.line = line_number, .answer = -1, .conditions = *defaults};
  json_t *echo = json_object();
  status result = echo ? read_object(object, &added, echo) : json_line_no_memory();
  json_decref(echo);
  json_decref(object);
  if (result == OK) result = append(self, &added);
  if (result != OK) clear(&added);
  return result;
}
