/* eval/task.c - see eval/task.h. The file becomes JSON (base/yaml.h), defaults are filled in, and the struct's texts point into that
 * object. */
#include "eval/task.h"
#include "eval/answer.h"
#include "base/limits.h"
#include "base/yaml.h"
#include "base/spelling.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum value_type { TEXT, NAME, OBJECT, LIST, COUNT, REAL, SWITCH, CHOICES } value_type;

enum { G = 1u << EVAL_GENERATE, C = 1u << EVAL_CHOICE, P = 1u << EVAL_PERPLEXITY, ALL = G | C | P };

typedef struct key_row {
  const char *name;
  value_type type;
  uint32_t kinds; /* bit set of the kinds of tasks that may have it */
} key_row;

static const key_row KEYS[] = {
    {"name", NAME, ALL},      {"description", TEXT, ALL}, {"kind", NAME, ALL},     {"items", NAME, ALL},     {"group", NAME, ALL},
    {"subsets", NAME, ALL},   {"cluster", NAME, ALL},     {"where", OBJECT, ALL},  {"limit", COUNT, ALL},    {"prompt", TEXT, G | C},
    {"answer", TEXT, G | C},  {"choices", CHOICES, C},    {"norm", NAME, C},       {"text", TEXT, P},        {"window", COUNT, P},
    {"match", NAME, G},
    {"extract", TEXT, G},     {"extract_match", NAME, G}, {"extract_strip", SWITCH, G}, {"remove", LIST, G},
    {"normalize", LIST, G},   {"tolerance", REAL, G},  {"few_shot", OBJECT, G | C},
    {"generation", OBJECT, G}, {"chat", SWITCH, G},       {"think_end", TEXT, G},  {"too_long", NAME, G | C}};
static const key_row SHOT_KEYS[] = {
    {"count", COUNT, ALL}, {"source", NAME, ALL}, {"separator", TEXT, ALL}, {"seed", COUNT, ALL}, {"template", TEXT, ALL}};
static const char *const KINDS[] = {"generate", "choice", "perplexity"};
static const char *const TOO_LONG[] = {"refuse", "skip", "truncate-left"};
static const char *const NORMALIZE[] = {"strip", "lower", "collapse", "punctuation"};

const char *eval_task_kind_name(eval_kind kind) { return KINDS[kind]; }

/* === Keys =================================================================================================================== */

static const key_row *find_key(const char *word, const key_row *keys, size_t count, const char **nearest) {
  spelling_search search = spelling_begin(word, UINT32_MAX);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(keys[i].name, word) == 0) return &keys[i];
    spelling_try(&search, keys[i].name);
  }
  *nearest = search.nearest;
  return NULL;
}

static status check_text(const char *key, const json_t *value, size_t most) {
  if (!json_is_string(value) || json_string_length(value) > most)
    return FAIL(ERR_FORMAT, "%s: expected a text of at most %zu bytes; hint: write numbers and words like true in quotes", key, most);
  if (strlen(json_string_value(value)) != json_string_length(value)) return FAIL(ERR_FORMAT, "%s: expected a text without NUL", key);
  return OK;
}

static status check_name(const char *key, const json_t *value) {
  TRY(check_text(key, value, strcmp(key, "items") == 0 || strcmp(key, "source") == 0 ? 1024 : EVAL_TASK_NAME_BYTES_MAX));
  const char *text = json_string_value(value);
  if (!*text) return FAIL(ERR_FORMAT, "%s: expected a name, found \"\"", key);
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || *text == 0x7f) return FAIL(ERR_FORMAT, "%s: expected a name without control characters", key);
  return OK;
}

static status check_value(const key_row *key, const json_t *value) {
  const char *name = key->name;
  switch (key->type) {
    case TEXT: return check_text(name, value, EVAL_TASK_TEXT_BYTES_MAX);
    case NAME: return check_name(name, value);
    case OBJECT: return json_is_object(value) ? OK : FAIL(ERR_FORMAT, "%s: expected keys and values", name);
    case LIST: return json_is_array(value) ? OK : FAIL(ERR_FORMAT, "%s: expected a list", name);
    case SWITCH: return json_is_boolean(value) ? OK : FAIL(ERR_FORMAT, "%s: expected true or false", name);
    case COUNT:
      if (json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= INT32_MAX) return OK;
      return FAIL(ERR_FORMAT, "%s: expected a whole number of 0 to 2147483647", name);
    case REAL:
      if (json_is_number(value) && json_number_value(value) >= 0 && isfinite(json_number_value(value))) return OK;
      return FAIL(ERR_FORMAT, "%s: expected a number, 0 or more", name);
    case CHOICES: break;
  }
  if (json_is_string(value)) return check_text(name, value, EVAL_TASK_NAME_BYTES_MAX);
  if (!json_is_array(value) || json_array_size(value) < 2 || json_array_size(value) > 1024)
    return FAIL(ERR_FORMAT, "%s: expected the name of a field, or a list of 2 to 1024 texts", name);
  for (size_t i = 0; i < json_array_size(value); i++) TRY(check_text(name, json_array_get(value, i), EVAL_TASK_TEXT_BYTES_MAX));
  return OK;
}

static status check_keys(json_t *object, const key_row *keys, size_t count, const char *where, uint32_t kind) {
  const char *word;
  json_t *value;
  json_object_foreach(object, word, value) {
    const char *nearest = NULL;
    const key_row *key = find_key(word, keys, count, &nearest);
    if (!key) return FAIL(ERR_FORMAT, "%skey \"%.64s\" is not known; hint: the nearest known key is \"%s\"", where, word, nearest);
    if (!(key->kinds & kind)) return FAIL(ERR_FORMAT, "key \"%s\" does not apply to this kind of task; hint: remove it", word);
    TRY(check_value(key, value));
  }
  return OK;
}

/* === Parameters ============================================================================================================= */

static status set(json_t *object, const char *key, json_t *value) {
  if (json_object_get(object, key)) {
    json_decref(value);
    return OK;
  }
  return json_object_set_new(object, key, value) == 0 ? OK : FAIL(ERR_LIMIT, "no memory");
}

static const char *text_of(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

static status read_kind(json_t *object, eval_kind *out) {
  const char *kind = text_of(object, "kind");
  for (size_t i = 0; kind && i < ARRAY_LEN(KINDS); i++) {
    if (strcmp(kind, KINDS[i]) != 0) continue;
    *out = (eval_kind)i;
    return OK;
  }
  return FAIL(ERR_FORMAT, "kind: expected generate, choice or perplexity, found \"%.40s\"", kind ? kind : "");
}

static status read_normalize(eval_task *self) {
  bool *const switches[] = {&self->strip, &self->lower, &self->collapse, &self->drop_punctuation};
  const json_t *list = json_object_get(self->effective, "normalize");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *word = json_string_value(json_array_get(list, i));
    size_t k = 0;
    while (k < ARRAY_LEN(NORMALIZE) && !(word && strcmp(word, NORMALIZE[k]) == 0)) k++;
    if (k == ARRAY_LEN(NORMALIZE))
      return FAIL(ERR_FORMAT, "normalize: expected strip, lower, collapse and punctuation, found \"%.40s\"", word ? word : "");
    *switches[k] = true;
  }
  return OK;
}

/* What is taken from a text. Keys that are absent get no default here: parameters of tasks that do not use them stay as they were. */
static status read_extraction(eval_task *self) {
  const char *which = text_of(self->effective, "extract_match");
  self->extract = text_of(self->effective, "extract");
  if (self->extract) TRY(eval_answer_check("extract", self->extract));
  if (which && strcmp(which, "first") != 0 && strcmp(which, "last") != 0)
    return FAIL(ERR_FORMAT, "extract_match: expected first or last, found \"%.40s\"", which);
  if (which && !self->extract) return FAIL(ERR_FORMAT, "extract_match: only valid with extract");
  self->takes_last = which && strcmp(which, "last") == 0;
  self->strips_extracted = json_is_true(json_object_get(self->effective, "extract_strip"));
  self->remove = json_object_get(self->effective, "remove");
  if (json_array_size(self->remove) > EVAL_TASK_REMOVE_MAX) return FAIL(ERR_LIMIT, "remove: at most %u patterns", EVAL_TASK_REMOVE_MAX);
  for (size_t i = 0; i < json_array_size(self->remove); i++) {
    TRY(check_text("remove", json_array_get(self->remove, i), EVAL_TASK_TEXT_BYTES_MAX));
    TRY(eval_answer_check("remove", json_string_value(json_array_get(self->remove, i))));
  }
  return OK;
}

static status read_judging(eval_task *self) {
  const char *match = NULL;
  TRY(set(self->effective, "match", json_string("exact")));
  TRY(set(self->effective, "normalize", json_pack("[s]", "strip")));
  TRY(set(self->effective, "tolerance", json_real(0)));
  TRY(set(self->effective, "generation", json_object()));
  TRY(set(self->effective, "chat", json_false()));
  self->chat = json_is_true(json_object_get(self->effective, "chat"));
  match = text_of(self->effective, "match");
  if (strcmp(match, "exact") != 0 && strcmp(match, "number") != 0)
    return FAIL(ERR_FORMAT, "match: expected exact or number, found \"%.40s\"", match);
  self->match = strcmp(match, "number") == 0 ? EVAL_MATCH_NUMBER : EVAL_MATCH_EXACT;
  self->tolerance = json_number_value(json_object_get(self->effective, "tolerance"));
  if (self->tolerance > 0 && self->match != EVAL_MATCH_NUMBER) return FAIL(ERR_FORMAT, "tolerance: only valid with match: number");
  if (self->match == EVAL_MATCH_NUMBER && json_object_get(self->effective, "remove"))
    return FAIL(ERR_FORMAT, "remove: only valid with match: exact");
  self->generation = json_object_get(self->effective, "generation");
  TRY(read_extraction(self));
  self->think_end = text_of(self->effective, "think_end");
  if (self->think_end && !*self->think_end) return FAIL(ERR_FORMAT, "think_end: expected the text that ends a thought, found \"\"");
  return read_normalize(self);
}

/* Tokens cut from the left would be the chat template's own. */
static status read_too_long(eval_task *self) {
  TRY(set(self->effective, "too_long", json_string(TOO_LONG[0])));
  const char *word = text_of(self->effective, "too_long");
  size_t i = 0;
  while (i < ARRAY_LEN(TOO_LONG) && strcmp(word, TOO_LONG[i]) != 0) i++;
  if (i == ARRAY_LEN(TOO_LONG)) return FAIL(ERR_FORMAT, "too_long: expected refuse, skip or truncate-left, found \"%.40s\"", word);
  self->too_long = (eval_too_long)i;
  if (self->chat && self->too_long == EVAL_TOO_LONG_TRUNCATE_LEFT)
    return FAIL(ERR_FORMAT, "too_long: truncate-left would cut the chat template; hint: refuse or skip");
  return OK;
}

static status read_shots(eval_task *self) {
  json_t *shots = json_object_get(self->effective, "few_shot");
  if (!shots) {
    if (!(shots = json_object()) || json_object_set_new(self->effective, "few_shot", shots) != 0) return FAIL(ERR_LIMIT, "no memory");
  }
  TRY(check_keys(shots, SHOT_KEYS, ARRAY_LEN(SHOT_KEYS), "few_shot: ", ALL));
  TRY(set(shots, "count", json_integer(0)));
  TRY(set(shots, "separator", json_string("\n\n")));
  TRY(set(shots, "template", json_string("{{prompt}}{{answer}}")));
  json_int_t count = json_integer_value(json_object_get(shots, "count"));
  if (count > EVAL_TASK_SHOTS_MAX) return FAIL(ERR_LIMIT, "few_shot: count: at most %u", EVAL_TASK_SHOTS_MAX);
  self->shot_count = (uint32_t)count;
  self->shots = count ? text_of(shots, "source") : NULL;
  self->separator = text_of(shots, "separator");
  self->shot = text_of(shots, "template");
  self->has_shot_seed = json_object_get(shots, "seed") != NULL;
  self->shot_seed = (uint64_t)json_integer_value(json_object_get(shots, "seed"));
  return OK;
}

/* If the template is "{{field}}" alone, stores the field's name under "answer_field" of `effective`, where the struct points to it. */
static status read_answer(eval_task *self) {
  size_t bytes = strlen(self->answer);
  if (bytes <= 4 || strncmp(self->answer, "{{", 2) != 0 || strstr(self->answer, "}}") != self->answer + bytes - 2) return OK;
  const char *from = self->answer + 2;
  size_t length = bytes - 4;
  while (length && *from == ' ') from++, length--;
  while (length && from[length - 1] == ' ') length--;
  if (length == 0) return OK;
  TRY(set(self->effective, "answer_field", json_stringn(from, length)));
  self->answer_field = text_of(self->effective, "answer_field");
  return OK;
}

static status read_texts(eval_task *self) {
  json_t *o = self->effective;
  if (self->kind == EVAL_PERPLEXITY) {
    TRY(set(o, "text", json_string("{{text}}")));
    TRY(set(o, "window", json_integer(EVAL_TASK_WINDOW)));
    self->text = text_of(o, "text");
    self->window = (uint32_t)json_integer_value(json_object_get(o, "window"));
    return self->window >= 2 ? OK : FAIL(ERR_FORMAT, "window: expected at least 2 tokens");
  }
  TRY(set(o, "prompt", json_string("{{prompt}}")));
  TRY(set(o, "answer", json_string("{{answer}}")));
  self->prompt = text_of(o, "prompt");
  self->answer = text_of(o, "answer");
  TRY(read_answer(self));
  TRY(read_shots(self));
  if (self->kind == EVAL_GENERATE) {
    TRY(read_judging(self));
    return read_too_long(self);
  }
  TRY(read_too_long(self));
  TRY(set(o, "choices", json_string("choices")));
  self->choices = json_object_get(o, "choices");
  const char *norm = text_of(o, "norm");
  if (norm && strcmp(norm, "bytes") != 0 && strcmp(norm, "characters") != 0)
    return FAIL(ERR_FORMAT, "norm: expected bytes or characters, found \"%.40s\"", norm);
  self->by_characters = norm && strcmp(norm, "characters") == 0;
  return OK;
}

static status read_where(eval_task *self) {
  const char *key;
  json_t *value;
  self->where = json_object_get(self->effective, "where");
  json_object_foreach((json_t *)(uintptr_t)self->where, key, value)
    if (!json_is_string(value) && !json_is_integer(value) && !json_is_boolean(value))
      return FAIL(ERR_FORMAT, "where: %.64s: expected a text, a whole number, true or false", key);
  return OK;
}

static status read_task(eval_task *self) {
  json_t *o = self->effective;
  if (!json_is_object(o)) return FAIL(ERR_FORMAT, "expected \"key: value\" lines, found other YAML; hint: EVALUATION.md describes tasks");
  TRY(check_keys(o, KEYS, ARRAY_LEN(KEYS), "", ALL));
  TRY(read_kind(o, &self->kind));
  TRY(check_keys(o, KEYS, ARRAY_LEN(KEYS), "", 1u << self->kind));
  if (!(self->name = text_of(o, "name"))) return FAIL(ERR_FORMAT, "name: expected a name for the task");
  if (!(self->items = text_of(o, "items"))) return FAIL(ERR_FORMAT, "items: expected the name of a JSONL file");
  self->description = text_of(o, "description");
  self->group = text_of(o, "group");
  self->subsets = text_of(o, "subsets");
  self->cluster = text_of(o, "cluster");
  TRY(set(o, "limit", json_integer(0)));
  self->limit = (uint32_t)json_integer_value(json_object_get(o, "limit"));
  TRY(read_where(self));
  return read_texts(self);
}

status eval_task_parse(const char *text, size_t bytes, eval_task *out) {
  const yaml_options options = {.bytes_max = FILE_CONFIG_BYTES_MAX};
  eval_task task = {0};
  TRY(yaml_parse(&options, text, bytes, &task.effective));
  if (!task.effective) return FAIL(ERR_FORMAT, "expected \"key: value\" lines, found none; hint: EVALUATION.md describes tasks");
  status result = read_task(&task);
  if (result == OK) *out = task;
  else eval_task_close(&task);
  return result;
}

void eval_task_close(eval_task *self) {
  json_decref(self->effective);
  *self = (eval_task){0};
}
