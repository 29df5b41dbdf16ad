/* common/stop_ids.c - see common/stop_ids.h. */
#include "common/stop_ids.h"
#include "base/json_text.h"
#include "base/special_file.h"
#include "common/files.h"
#include "planner/model_config.h"
#include "verbatim.h"
#include <stdio.h>
#include <stdlib.h>

#define PATH_BYTES_MAX 4096
#define NAME "generation_config.json"

/* *text stays NULL if there is no such file. */
static status read_optional(const char *model_dir, const char *name, char **text, size_t *bytes) {
  char path[PATH_BYTES_MAX];
  int length = snprintf(path, sizeof path, "%s/%s", model_dir, name);
  if (length < 0 || (size_t)length >= sizeof path) return FAIL(ERR_USAGE, "%s: the path is too long", model_dir);
  if (!special_file_is_there(path)) return OK;
  if (special_file_at(path)) return FAIL(ERR_IO, "%s: expected a regular file", path);
  return cli_files_read_config(path, INPUT_CONFIG, text, bytes);
}

/* Without a config.json that can be read, model->vocab is 0: who needs the file says what is wrong with it. */
static void read_config(const char *model_dir, plan_model *model) {
  char *text = NULL;
  size_t bytes = 0;
  static const plan_model none;
  *model = none;
  if (read_optional(model_dir, "config.json", &text, &bytes) == OK && text) {
    model_config *config = calloc(1, sizeof *config);
    if (config && model_config_parse(text, bytes, config) == OK) *model = config->plan;
    free(config);
  }
  free(text);
  fail_clear();
}

static bool is_of_model(const plan_model *model, const json_t *id) {
  for (uint32_t i = 0; i < model->eos_count; i++)
    if (json_is_integer(id) && json_integer_value(id) == (json_int_t)model->eos[i]) return true;
  return false;
}

/* ids: one id or a list. */
static bool differs(const plan_model *model, const json_t *ids) {
  size_t count = json_is_array(ids) ? json_array_size(ids) : 1, found = 0;
  for (size_t i = 0; i < count; i++) found += is_of_model(model, json_is_array(ids) ? json_array_get(ids, i) : ids);
  return found != count || found != model->eos_count;
}

static void write_note(const plan_model *model, const json_t *ids, char *note) {
  char own[128] = "";
  char *other = json_dumps(ids, JSON_ENCODE_ANY | JSON_COMPACT);
  for (uint32_t i = 0; i < model->eos_count; i++)
    snprintf(own + strlen(own), sizeof own - strlen(own), "%s%u", i > 0 ? "," : "", model->eos[i]);
  snprintf(note, CLI_STOP_IDS_BYTES, NAME " has eos_token_id %.160s, which is not used: an answer ends at config.json's, [%s]; "
           "hint: --generation-config auto, or a request's stop_token_ids", other ? other : "?", own);
  free(other);
}

status cli_stop_ids_note(const char *model_dir, char note[CLI_STOP_IDS_BYTES]) {
  char *text = NULL;
  size_t bytes = 0;
  plan_model model;
  json_error_t error;
  note[0] = 0;
  TRY(read_optional(model_dir, NAME, &text, &bytes));
  if (!text) return OK;
  json_t *root = json_text_load_file(text, bytes, 0, &error);
  free(text);
  if (!root) return FAIL(ERR_FORMAT, NAME ": expected JSON, found at line %d column %d: %s", error.line, error.column, error.text);
  const json_t *ids = json_object_get(root, "eos_token_id");
  read_config(model_dir, &model);
  if (ids && !json_is_null(ids) && model.vocab > 0 && differs(&model, ids)) write_note(&model, ids, note);
  json_decref(root);
  return OK;
}

static status add_beyond(const plan_model *model, const json_t *id, json_t *more) {
  const json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
  if (number < 0 || number >= (json_int_t)model->vocab)
    return FAIL(ERR_FORMAT, NAME ": eos_token_id: expected token ids, integers of 0 to %u, found another value; hint: --generation-config "
                "none", model->vocab - 1);
  if (is_of_model(model, id)) return OK;
  if (json_array_size(more) == VERBATIM_STOP_IDS_MAX)
    return FAIL(ERR_FORMAT, NAME ": eos_token_id: expected at most %u", VERBATIM_STOP_IDS_MAX);
  return json_array_append(more, (json_t *)(uintptr_t)id) == 0 ? OK : FAIL(ERR_LIMIT, NAME ": no memory");
}

status cli_stop_ids_beyond(const char *model_dir, const json_t *found, json_t **more) {
  plan_model model;
  const size_t count = json_is_array(found) ? json_array_size(found) : found && !json_is_null(found);
  json_t *list = json_array();
  status result = list ? OK : FAIL(ERR_LIMIT, NAME ": no memory");
  *more = NULL;
  if (count) read_config(model_dir, &model);
  for (size_t i = 0; i < count && result == OK && model.vocab > 0; i++)
    result = add_beyond(&model, json_is_array(found) ? json_array_get(found, i) : found, list);
  if (result == OK && json_array_size(list)) *more = json_incref(list);
  json_decref(list);
  return result;
}
