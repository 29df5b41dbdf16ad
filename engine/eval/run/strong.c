/* eval/run/strong.c - see eval/run/strong.h. */
#include "eval/run/strong.h"
#include "base/sha256.h"
#include "base/special_file.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES_MAX 4096

static status no_memory(void) { return FAIL(ERR_LIMIT, "evaluation: no memory"); }

static json_t *hex(const uint8_t *bytes) {
  char text[SHA256_TEXT_BYTES];
  return sha256_is_none(bytes) ? json_null() : json_string(sha256_text(bytes, text));
}

/* === Making ================================================================================================================= */

static json_t *of_file(const eval_manifest_file *file) {
  return file->name && file->text ? hex(sha256_of(file->text, file->bytes).bytes) : json_null();
}

static json_t *of_tasks(const eval_manifest_task *tasks, uint32_t count) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < count && list; i++) {
    json_t *one = json_pack("{s:o, s:o, s:o}", "file", of_file(&tasks[i].file), "items", of_file(&tasks[i].items), "shots",
                           of_file(&tasks[i].shots));
    if (json_array_append_new(list, one) == 0) continue;
    json_decref(list);
    list = NULL;
  }
  return list;
}

status eval_strong_begin(const verbatim_info *info, const eval_manifest_task *tasks, uint32_t count, json_t **out) {
  json_t *built = json_pack("{s:o, s:o, s:o, s:o, s:n, s:n, s:[]}", "plan", hex(info->plan_sha256), "config", hex(info->config_sha256),
                           "weights", hex(info->weights_sha256), "tasks", of_tasks(tasks, count), "results", "receipt", "perturbed");
  if (!built) return no_memory();
  *out = built;
  return OK;
}

status eval_strong_rescored(const json_t *manifest, const eval_manifest_task *tasks, uint32_t count, json_t **out) {
  const json_t *old = json_object_get(manifest, "sha256");
  json_t *built = old ? json_copy((json_t *)(uintptr_t)old) : NULL;
  *out = NULL;
  if (!old) return OK;
  if (!built || json_object_set_new(built, "tasks", of_tasks(tasks, count)) != 0 ||
      json_object_set_new(built, "perturbed", json_array()) != 0) {
    json_decref(built);
    return no_memory();
  }
  *out = built;
  return OK;
}

static status digest_file(const char *path, sha256 *out) {
  FILE *file = special_file_at(path) ? NULL : fopen(path, "rb");
  if (!file) return FAIL(ERR_IO, "%s: expected a regular file that can be read: %s", path, strerror(errno));
  status result = sha256_read(file, path, out);
  fclose(file);
  return result;
}

static status path_in(const char *folder, const char *name, char path[PATH_BYTES_MAX]) {
  return snprintf(path, PATH_BYTES_MAX, "%s/%s", folder, name) < PATH_BYTES_MAX ? OK : FAIL(ERR_USAGE, "%s: the path is too long", folder);
}

/* The receipt of the plan, or of another one, from 1. */
static void name_receipt(uint32_t index, char name[40]) {
  if (index) snprintf(name, 40, "perturbed-%u.receipt", index);
  else snprintf(name, 40, "receipt");
}

status eval_strong_end(json_t *self, const char *folder, const char *results, uint32_t others) {
  char path[PATH_BYTES_MAX], name[40];
  json_t *list = json_object_get(self, "perturbed");
  sha256 found;
  TRY(digest_file(results, &found));
  if (json_object_set_new(self, "results", hex(found.bytes)) != 0) return no_memory();
  for (uint32_t i = 0; i <= others; i++) {
    name_receipt(i, name);
    TRY(path_in(folder, name, path));
    TRY(digest_file(path, &found));
    json_t *one = hex(found.bytes);
    if ((i ? json_array_append_new(list, one) : json_object_set_new(self, "receipt", one)) != 0) return no_memory();
  }
  return OK;
}

status eval_strong_results(json_t *self, const void *bytes, size_t count) {
  return json_object_set_new(self, "results", hex(sha256_of(bytes, count).bytes)) == 0 ? OK : no_memory();
}

/* === Checking =============================================================================================================== */

static status check_file(const char *folder, const char *name, const json_t *stated, bool may_lack, uint32_t *checked) {
  char path[PATH_BYTES_MAX], text[SHA256_TEXT_BYTES];
  sha256 found;
  if (!json_is_string(stated)) return OK;
  TRY(path_in(folder, name, path));
  if (may_lack && !special_file_is_there(path)) return OK;
  TRY(digest_file(path, &found));
  if (checked) ++*checked;
  if (strcmp(sha256_text(found.bytes, text), json_string_value(stated)) == 0) return OK;
  return FAIL(ERR_MISMATCH, "%s: its SHA-256 is %s, expected %s, which manifest.json has recorded: it was altered after the run had ended",
              path, text, json_string_value(stated));
}

status eval_strong_check(const json_t *manifest, const char *folder, bool may_lack, uint32_t *checked) {
  const json_t *stated = json_object_get(manifest, "sha256"), *others = json_object_get(stated, "perturbed");
  char name[40];
  TRY(check_file(folder, "results.jsonl", json_object_get(stated, "results"), may_lack, checked));
  for (size_t i = 0; i <= json_array_size(others); i++) {
    name_receipt((uint32_t)i, name);
    TRY(check_file(folder, name, i ? json_array_get(others, i - 1) : json_object_get(stated, "receipt"), may_lack, checked));
  }
  return OK;
}

bool eval_strong_difference(const json_t *a, const json_t *b, char text[EVAL_MANIFEST_DIFFERENCE_BYTES]) {
  static const char *const keys[] = {"config", "weights", "tasks", "results"};
  const json_t *both[2] = {json_object_get(a, "sha256"), json_object_get(b, "sha256")};
  for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
    const json_t *x = json_object_get(both[0], keys[i]), *y = json_object_get(both[1], keys[i]);
    char inner[EVAL_MANIFEST_DIFFERENCE_BYTES];
    if (!x || !y || json_is_null(x) || json_is_null(y) || !eval_manifest_difference(x, y, inner)) continue;
    snprintf(text, EVAL_MANIFEST_DIFFERENCE_BYTES, "%s%.480s", keys[i], inner);
    return true;
  }
  return false;
}
