/* common/generation.c - see common/generation.h. */
#include "common/generation.h"
#include "base/json_text.h"
#include "base/special_file.h"
#include "common/files.h"
#include "common/stop_ids.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES_MAX 4096
#define NAME "generation_config.json"

/* Ranges of verbatim_request; `off` may stand outside of them. */
enum { TEMPERATURE, TOP_K, TOP_P, MIN_P, REPETITION_PENALTY, MOST_TOKENS };

static const struct { const char *key, *option, *name; double off, least, most; bool is_integer; } KEYS[] = {
    [TEMPERATURE] = {"temperature", "--temperature", "temperature", 0, 1e-3, 100, false},
    [TOP_K] = {"top_k", "--top-k", "top_k", 0, 0, UINT32_MAX, true},
    [TOP_P] = {"top_p", "--top-p", "top_p", 1, 1e-30, 1, false},
    [MIN_P] = {"min_p", "--min-p", "min_p", 0, 1e-30, 1, false},
    [REPETITION_PENALTY] = {"repetition_penalty", "--repetition-penalty", "repetition_penalty", 1, 1.0 / 16, 16, false},
    [MOST_TOKENS] = {"max_new_tokens", "--max-tokens", "max_tokens", 1, 1, UINT32_MAX, true}};

status cli_generation_take(const char *name, const char *value, void *target) {
  if (strcmp(value, "auto") != 0 && strcmp(value, "none") != 0)
    return FAIL(ERR_USAGE, "%s: expected auto or none, found \"%s\"", name, value);
  *(bool *)target = strcmp(value, "auto") == 0;
  return OK;
}

static status take_values(const json_t *root, json_t *values) {
  for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) {
    json_t *value = json_object_get(root, KEYS[i].key);
    if (!value || json_is_null(value)) continue;
    const double number = json_number_value(value);
    const bool is_known = KEYS[i].is_integer ? json_is_integer(value) : json_is_number(value);
    if (!is_known || (number != KEYS[i].off && !(number >= KEYS[i].least && number <= KEYS[i].most)))
      return FAIL(ERR_FORMAT, NAME ": %s: expected %g, or %s of %g to %g, found another value; hint: --generation-config none", KEYS[i].key,
                  KEYS[i].off, KEYS[i].is_integer ? "an integer" : "a number", KEYS[i].least, KEYS[i].most);
    if (json_object_set(values, KEYS[i].name, value) != 0) return FAIL(ERR_LIMIT, NAME ": no memory");
  }
  if (!json_is_false(json_object_get(root, "do_sample"))) return OK;
  return json_object_set_new(values, "temperature", json_integer(0)) == 0 ? OK : FAIL(ERR_LIMIT, NAME ": no memory");
}

static status parse(const char *model_dir, const char *text, size_t bytes, json_t **values) {
  json_error_t error;
  json_t *root = json_text_load_file(text, bytes, 0, &error), *found = json_object(), *ids = NULL;
  status result = OK;
  if (!found) result = FAIL(ERR_LIMIT, NAME ": no memory");
  else if (!json_is_object(root)) result = FAIL(ERR_FORMAT, NAME ": expected a JSON object, found at line %d column %d: %s", error.line,
                                                error.column, root ? "a list" : error.text);
  if (result == OK) result = take_values(root, found);
  if (result == OK) result = cli_stop_ids_beyond(model_dir, json_object_get(root, "eos_token_id"), &ids);
  if (ids && json_object_set_new(found, "stop_ids", ids) != 0) result = FAIL(ERR_LIMIT, NAME ": no memory");
  json_decref(root);
  if (result == OK && json_object_size(found)) *values = json_incref(found);
  json_decref(found);
  return result;
}

status cli_generation_read(const char *model_dir, json_t **values) {
  char path[PATH_BYTES_MAX], *text = NULL;
  size_t bytes = 0;
  const int length = snprintf(path, sizeof path, "%s/" NAME, model_dir);
  *values = NULL;
  if (length < 0 || (size_t)length >= sizeof path) return FAIL(ERR_USAGE, "%s: the path is too long", model_dir);
  if (!special_file_is_there(path)) return OK;
  if (special_file_at(path)) return FAIL(ERR_IO, "%s: expected a regular file", path);
  TRY(cli_files_read_config(path, INPUT_CONFIG, &text, &bytes));
  status result = parse(model_dir, text, bytes, values);
  free(text);
  return result;
}

status cli_generation_for_bodies(json_t **values) {
  json_t *ids = json_object_get(*values, "stop_ids");
  if (!ids || (json_object_set(*values, "stop_token_ids", ids) == 0 && json_object_del(*values, "stop_ids") == 0)) return OK;
  json_decref(*values);
  *values = NULL;
  return FAIL(ERR_LIMIT, NAME ": no memory");
}

void cli_generation_note(const json_t *values, bool is_used, char note[CLI_GENERATION_NOTE_BYTES]) {
  char list[256] = "";
  note[0] = 0;
  for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) {
    const json_t *value = json_object_get(values, KEYS[i].name);
    const size_t used = strlen(list);
    if (value) snprintf(list + used, sizeof list - used, "%s%s %g", used ? ", " : "", KEYS[i].key, json_number_value(value));
  }
  const json_t *ids = json_object_get(values, "stop_ids");
  char *more = ids && is_used ? json_dumps(ids, JSON_COMPACT) : NULL; /* else common/stop_ids.h has a note */
  if (*list) snprintf(note, CLI_GENERATION_NOTE_BYTES, NAME " has %s, which %s", list,
                      is_used ? "are the defaults of requests" : "is not used; hint: --generation-config auto makes them the defaults");
  const size_t used = strlen(note);
  if (more) snprintf(note + used, CLI_GENERATION_NOTE_BYTES - used, "%s stop ids %.200s, which end answers, too",
                     used ? "; and" : NAME " has", more);
  free(more);
}

/* The parameters of a line of JSONL that sets these values. */
static status read_params(const json_t *values, item_params *out) {
  items read = {.list = NULL};
  json_t *line = json_copy((json_t *)(uintptr_t)values);
  char *text = line && json_object_set_new(line, "prompt", json_string("")) == 0 ? json_dumps(line, JSON_COMPACT) : NULL;
  json_decref(line);
  status result = text ? items_add_json(&read, text, strlen(text), 1, &ITEMS_DEFAULTS) : FAIL(ERR_LIMIT, NAME ": no memory");
  if (result == OK) *out = read.list[0].params; /* numbers alone: no list is owned by the item */
  free(text);
  items_close(&read);
  return result;
}

/* Beyond those that the options name. */
static status add_stop_ids(const item_params *found, item_params *params) {
  for (uint32_t i = 0; i < found->stop_count && !params->ignore_eos; i++) {
    uint32_t at = 0;
    while (at < params->stop_count && params->stop_ids[at] != found->stop_ids[i]) at++;
    if (at == VERBATIM_STOP_IDS_MAX) return FAIL(ERR_LIMIT, "--stop-id: at most %u with those of " NAME, VERBATIM_STOP_IDS_MAX);
    params->stop_ids[at] = found->stop_ids[i];
    if (at == params->stop_count) params->stop_count++;
  }
  return OK;
}

static status apply(const json_t *values, const cli_option *options, int argc, char **argv, item_params *params, uint32_t *max_tokens) {
  item_params found;
  bool is_given[ARRAY_LEN(KEYS)] = {false};
  const cli_option *row = NULL;
  const char *value = NULL;
  TRY(read_params(values, &found));
  for (int at = 0; cli_options_next(options, argc, argv, &at, &row, &value);)
    for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) is_given[i] |= strcmp(row->name, KEYS[i].option) == 0;
  if (!is_given[TEMPERATURE]) params->temperature = found.temperature;
  if (!is_given[TOP_K]) params->top_k = found.top_k;
  if (!is_given[TOP_P]) params->top_p = found.top_p;
  if (!is_given[MIN_P]) params->min_p = found.min_p;
  if (!is_given[REPETITION_PENALTY]) params->repetition_penalty = found.repetition_penalty;
  if (!is_given[MOST_TOKENS] && json_object_get(values, "max_tokens")) *max_tokens = found.max_tokens;
  return add_stop_ids(&found, params);
}

status cli_generation_set(const char *model_dir, const cli_option *options, int argc, char **argv, item_params *params,
                          uint32_t *max_tokens) {
  json_t *values = NULL;
  TRY(cli_generation_read(model_dir, &values));
  const status result = values ? apply(values, options, argc, argv, params, max_tokens) : OK;
  json_decref(values);
  return result;
}
