/* eval/run/saved.c - see eval/run/saved.h. */
#include "eval/run/saved.h"
#include "base/digest.h"
#include "base/input_file.h"
#include "base/json_text.h"
#include "common/lines.h"
#include "eval/manifest.h"
#include "eval/run/tasks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static status read_manifest(eval_saved *self, const char *path) {
  char *text = NULL;
  size_t bytes = 0;
  TRY(eval_tasks_read(path, EVAL_MANIFEST_BYTES_MAX, &text, &bytes));
  status result = eval_manifest_parse(text, bytes, &self->manifest);
  free(text);
  if (result != OK) fail_prefix(path);
  TRY(result);
  if (!json_is_null(json_object_get(self->manifest, "outcome"))) return OK;
  return FAIL(ERR_USAGE, "%s: the evaluation has not ended; hint: verbatim eval --resume", path);
}

status eval_saved_open(eval_saved *self, const char *path) {
  const char *slash = strrchr(path, '/');
  int folder = slash ? (int)(slash - path) : 1;
  struct stat info;
  if (snprintf(self->folder, sizeof self->folder, "%.*s", folder, slash ? path : ".") >= (int)sizeof self->folder)
    return FAIL(ERR_USAGE, "%s: the path is too long", path);
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
    return FAIL(ERR_USAGE, "%s: expected a manifest, found a folder; hint: %s/manifest.json", path, path);
  TRY(input_file_check(path, INPUT_MANIFEST));
  return read_manifest(self, path);
}

static status add_line(void *context, char *text, size_t bytes, uint32_t number) {
  json_error_t error = {.line = 0};
  json_t *line = json_text_load(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!line) return FAIL(json_text_fault(&error, ERR_FORMAT), "results.jsonl: line %u is not JSON: %s", number, error.text);
  return json_array_append_new(context, line) == 0 ? OK : FAIL(ERR_LIMIT, "results.jsonl: no memory");
}

status eval_saved_read(const char *path, json_t **out) {
  json_t *built = json_array();
  status result = built ? cli_lines_read(path, add_line, built) : FAIL(ERR_LIMIT, "results.jsonl: no memory");
  if (result == OK) *out = built;
  else json_decref(built);
  return result;
}

/* Before any line is used. */
static status check_digest(const eval_saved *self, const char *path) {
  const char *expected = json_string_value(json_object_get(json_object_get(self->manifest, "outcome"), "results_digest"));
  char *text = NULL, found[DIGEST_TEXT_BYTES];
  size_t bytes = 0;
  TRY(eval_tasks_read(path, UINT64_MAX, &text, &bytes));
  digest whole = digest_of(text, bytes);
  free(text);
  if (strcmp(digest_text(whole.bytes, found), expected) == 0) return OK;
  return FAIL(ERR_MISMATCH, "%s: its digest is %s, expected %s, which the manifest beside it records", path, found, expected);
}

status eval_saved_lines(eval_saved *self) {
  char path[EVAL_SAVED_PATH_BYTES];
  if (snprintf(path, sizeof path, "%s/results.jsonl", self->folder) >= (int)sizeof path)
    return FAIL(ERR_USAGE, "%s: the path is too long", self->folder);
  TRY(input_file_check(path, INPUT_RESULTS));
  TRY(check_digest(self, path));
  return eval_saved_read(path, &self->results);
}

void eval_saved_close(eval_saved *self) {
  json_decref(self->manifest);
  json_decref(self->results);
  *self = (eval_saved){.manifest = NULL};
}
