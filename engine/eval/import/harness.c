/* eval/import/harness.c - see eval/import/harness.h. */
#include "eval/import/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/limits.h"
#include "base/yaml.h"

typedef struct reading {
  const eval_import_files *files;
  char seen[EVAL_IMPORT_INCLUDES_MAX][EVAL_IMPORT_PATH_BYTES];
  uint32_t count;
} reading;

/* What the importer reads, and what changes neither prompts nor scores. */
static const char *const KNOWN[] = {
    "task", "dataset_path", "dataset_name", "dataset_kwargs", "training_split", "validation_split", "test_split", "fewshot_split",
    "doc_to_text", "doc_to_target", "doc_to_choice", "description", "target_delimiter", "fewshot_delimiter", "fewshot_config",
      "num_fewshot",
    "metric_list", "output_type", "generation_kwargs", "repeats", "filter_list", "task_alias", "tag", "metadata", "should_decontaminate",
    "doc_to_decontamination_query"};

static const struct { const char *key, *why; bool of_scores; } REFUSED[] = {
    {"process_docs", "it changes the records by a program in Python; hint: save what it makes as JSONL and give it with --data", false},
    {"process_results", "it scores by a program in Python; hint: `verbatim rescore` judges answers by rules of a task file", true},
    {"custom_dataset", "it makes the records by a program in Python; hint: save them as JSONL and give them with --data", false},
    {"use_prompt", "it takes templates from another package; hint: write them as doc_to_text and doc_to_target", false},
    {"gen_prefix", "the beginning of an answer is not carried over; hint: write it into doc_to_text", false},
    {"doc_to_image", "images are not supported; hint: import a task of texts", false},
    {"doc_to_audio", "sound is not supported; hint: import a task of texts", false},
    {"unsafe_code", "it runs what a model writes; hint: score such answers with the harness", true}};

/* === Files ================================================================================================================== */

static status read_one(reading *self, const char *path, json_t *merged);

/* An include's path is relative to the file that names it. */
static status read_include(reading *self, const char *from, const json_t *name, json_t *merged) {
  char path[EVAL_IMPORT_PATH_BYTES];
  const char *word = json_string_value(name), *slash = strrchr(from, '/');
  if (!word || !*word || strlen(word) != json_string_length(name)) return FAIL(ERR_FORMAT, "%s: include: expected the name of a file",
                                                                               from);
  int folder = *word == '/' || !slash ? 0 : (int)(slash - from) + 1;
  if (snprintf(path, sizeof path, "%.*s%s", folder, from, word) >= (int)sizeof path)
    return FAIL(ERR_LIMIT, "%s: include: the path is too long", from);
  TRY(read_one(self, path, merged));
  json_object_del(merged, "task_list");
  return OK;
}

static status read_includes(reading *self, const char *path, json_t *own, json_t *merged) {
  json_t *include = json_object_get(own, "include");
  if (!include) return OK;
  if (!json_is_array(include)) return read_include(self, path, include, merged);
  for (size_t i = 0; i < json_array_size(include); i++) TRY(read_include(self, path, json_array_get(include, i), merged));
  return OK;
}

static status parse(const char *path, const char *text, size_t bytes, json_t **out) {
  const yaml_options options = {.name = path, .bytes_max = FILE_CONFIG_BYTES_MAX, .is_python = true};
  TRY(yaml_parse(&options, text, bytes, out));
  if (json_is_object(*out)) return OK;
  json_decref(*out);
  *out = NULL;
  return FAIL(ERR_FORMAT, "%s: expected \"key: value\" lines, found other YAML", path);
}

static status read_one(reading *self, const char *path, json_t *merged) {
  char *text = NULL;
  size_t bytes = 0;
  json_t *own = NULL;
  for (uint32_t i = 0; i < self->count; i++)
    if (strcmp(self->seen[i], path) == 0) return FAIL(ERR_FORMAT, "%s: it is included twice, perhaps by itself", path);
  if (self->count == EVAL_IMPORT_INCLUDES_MAX) return FAIL(ERR_LIMIT, "%s: more than %u files", path, EVAL_IMPORT_INCLUDES_MAX);
  if (snprintf(self->seen[self->count], EVAL_IMPORT_PATH_BYTES, "%s", path) >= (int)EVAL_IMPORT_PATH_BYTES)
    return FAIL(ERR_LIMIT, "%s: the path is too long", path);
  self->count++;
  TRY(self->files->read(self->files->context, path, false, &text, &bytes));
  status result = parse(path, text, bytes, &own);
  free(text);
  if (result == OK) result = read_includes(self, path, own, merged);
  json_object_del(own, "include");
  if (result == OK && json_object_update(merged, own) != 0) result = FAIL(ERR_LIMIT, "%s: no memory", path);
  json_decref(own);
  return result;
}

/* === Keys =================================================================================================================== */

static bool is_known(const char *key) {
  for (size_t i = 0; i < ARRAY_LEN(KNOWN); i++)
    if (strcmp(KNOWN[i], key) == 0) return true;
  return false;
}

static const char *why_not(const char *key) {
  for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
    if (strcmp(REFUSED[i].key, key) == 0) return REFUSED[i].why;
  return "the key is not known here; hint: remove it";
}

static bool is_of_prompts(const char *key) {
  for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
    if (strcmp(REFUSED[i].key, key) == 0) return !REFUSED[i].of_scores;
  return false;
}

/* Removes what is null, off or accepted to be lost. */
static status check_keys(eval_import_accept *accept, bool only_scores, json_t *config) {
  const char *key;
  json_t *value;
  void *next;
  if (json_object_get(config, "group") || json_is_array(json_object_get(config, "task")))
    return FAIL(ERR_UNSUPPORTED, "a group of tasks; hint: import each of its tasks");
  json_object_foreach_safe(config, next, key, value) {
    bool is_off = json_is_null(value) || json_is_false(value);
    if (is_known(key) && !json_is_null(value)) continue;
    if (!is_off && !(only_scores && is_of_prompts(key))) TRY(eval_import_cannot(accept, key, "%s", why_not(key)));
    json_object_del(config, key);
  }
  const char *task = json_string_value(json_object_get(config, "task"));
  if (!task || !*task) return FAIL(ERR_FORMAT, "task: expected the name of a task; hint: give the YAML of one task of "
                                   "lm-evaluation-harness");
  return OK;
}

status eval_import_harness_read(const eval_import_files *files, eval_import_accept *accept, const char *path, bool only_scores,
                                json_t **out) {
  reading *self = calloc(1, sizeof *self);
  json_t *merged = json_object();
  status result = self && merged ? OK : FAIL(ERR_LIMIT, "%s: no memory", path);
  if (self) self->files = files;
  if (result == OK) result = read_one(self, path, merged);
  if (result == OK) result = check_keys(accept, only_scores, merged);
  free(self);
  if (result == OK) *out = merged;
  else json_decref(merged);
  return result;
}

status eval_import_harness_text(const json_t *config, const char *key, const char *otherwise, const char **out) {
  const json_t *value = json_object_get(config, key);
  *out = otherwise;
  if (!value || json_is_null(value)) return OK;
  if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
    return FAIL(ERR_FORMAT, "%s: expected a text", key);
  *out = json_string_value(value);
  return OK;
}
