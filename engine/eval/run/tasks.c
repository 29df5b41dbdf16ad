/* eval/run/tasks.c - see eval/run/tasks.h. Files are read through one function, which checks kind, size and digest. */
#include "eval/run/tasks.h"
#include "eval/run/paths.h"
#include "eval/request.h"
#include "base/json_text.h"
#include "base/limits.h"
#include "jsonl/json_line.h"
#include "base/input_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES_MAX 4096
#define ITEMS_BYTES_MAX (4ull << 30)

/* === Files ================================================================================================================== */

status eval_tasks_read(const char *path, uint64_t most, char **text, size_t *bytes) {
  struct stat info;
  FILE *file;
  TRY(input_file_check(path, INPUT_TASK));
  TRY(input_file_open_stream(path, INPUT_TASK, &file)); /* results of a run that has just begun are empty */
  bool is_small = fstat(fileno(file), &info) == 0 && (uint64_t)info.st_size <= most;
  char *built = is_small ? malloc((size_t)info.st_size + 1) : NULL;
  size_t got = built ? fread(built, 1, (size_t)info.st_size, file) : 0;
  bool is_whole = built && got == (size_t)info.st_size && !ferror(file);
  fclose(file);
  if (is_whole) {
    built[got] = 0;
    *text = built;
    *bytes = got;
    return OK;
  }
  free(built);
  if (!is_small) return FAIL(ERR_LIMIT, "%s: more than %llu bytes", path, (unsigned long long)most);
  return FAIL(ERR_IO, "%s: cannot be read completely", path);
}

static status keep_name(const char *name, eval_run_file *out) {
  out->name = json_line_copy(name, strlen(name));
  return out->name ? OK : FAIL(ERR_LIMIT, "%s: no memory", name);
}

static status read_file(const char *path, const char *name, uint64_t most, eval_run_file *out) {
  TRY(keep_name(name, out));
  if (!(out->path = json_line_copy(path, strlen(path)))) return FAIL(ERR_LIMIT, "%s: no memory", name);
  TRY(eval_tasks_read(path, most, &out->text, &out->bytes));
  out->digest = digest_of(out->text, out->bytes);
  return OK;
}

/* Reads a file in the folder of `neighbour`, unless the name is an absolute path. */
static status read_neighbour(const char *neighbour, const char *name, eval_run_file *out) {
  const char *slash = strrchr(neighbour, '/');
  char path[PATH_BYTES_MAX];
  int folder = slash && *name != '/' ? (int)(slash - neighbour) + 1 : 0;
  int length = snprintf(path, sizeof path, "%.*s%s", folder, neighbour, name);
  if (length < 0 || length >= PATH_BYTES_MAX) return FAIL(ERR_USAGE, "%s: the path is too long", name);
  return read_file(path, name, ITEMS_BYTES_MAX, out);
}

static status take_recorded(const json_t *manifest, uint32_t index, const char *which, const char *neighbour, eval_run_file *out) {
  eval_manifest_file from = eval_manifest_file_of(manifest, index, which);
  if (!from.name) return OK;
  if (!from.text) {
    char text[2][DIGEST_TEXT_BYTES];
    if (!neighbour) return FAIL(ERR_USAGE, "%s is not in the manifest; hint: give its folder with --tasks DIR", from.name);
    TRY(read_neighbour(neighbour, from.name, out));
    if (memcmp(&out->digest, &from.digest, sizeof from.digest) == 0) return OK;
    return FAIL(ERR_MISMATCH, "%s: digest %s in the manifest, %s here", from.name, digest_text(from.digest.bytes, text[0]),
                digest_text(out->digest.bytes, text[1]));
  }
  TRY(keep_name(from.name, out));
  if (!(out->text = json_line_copy(from.text, from.bytes))) return FAIL(ERR_LIMIT, "%s: no memory", from.name);
  out->bytes = from.bytes;
  out->digest = from.digest;
  return OK;
}

static void close_file(eval_run_file *self) {
  free(self->name);
  free(self->text);
  free(self->path);
}

/* === Tasks ================================================================================================================== */

static status grow(eval_tasks *self, eval_run_task **out) {
  if (self->count == EVAL_MANIFEST_TASKS_MAX) return FAIL(ERR_LIMIT, "more than %u tasks", EVAL_MANIFEST_TASKS_MAX);
  if (self->count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 8;
    eval_run_task *grown = realloc(self->list, room * sizeof *grown);
    if (!grown) return FAIL(ERR_LIMIT, "tasks: no memory");
    self->list = grown;
    self->room = room;
  }
  *out = &self->list[self->count++];
  **out = (eval_run_task){0};
  return OK;
}

static status check_name(const eval_tasks *self, const eval_run_task *task) {
  for (const eval_run_task *other = self->list; other < task; other++)
    if (strcmp(other->task.name, task->task.name) == 0) return FAIL(ERR_USAGE, "two tasks have the name \"%s\"", task->task.name);
  return OK;
}

static status set_limit(const eval_tasks *self, eval_task *task, int64_t limit) {
  if (limit < 0 && self->limit < 0) return OK;
  task->limit = (uint32_t)(limit < 0 ? self->limit : limit);
  return json_object_set_new(task->effective, "limit", json_integer(task->limit)) == 0 ? OK : FAIL(ERR_LIMIT, "tasks: no memory");
}

static status make_items(eval_run_task *task) {
  const eval_source lines = {task->items_file.text, task->items_file.bytes}, shots = {task->shots_file.text, task->shots_file.bytes};
  status result = eval_items_make(&task->task, lines, shots, &task->items);
  if (result != OK) fail_prefix(task->items_file.name);
  TRY(result);
  if (task->task.kind != EVAL_GENERATE) return OK;
  TRY(eval_request_params(&task->task, &task->params));
  return eval_answer_open(&task->judge, &task->task);
}

/* What is set here is a parameter of the task, and recorded as such. */
static status set_defaults(const eval_task *task, const json_t *defaults) {
  json_t *generation = json_object_get(task->effective, "generation"), *value;
  const char *key;
  if (!json_is_object(generation)) return OK;
  json_object_foreach((json_t *)(uintptr_t)defaults, key, value) {
    const json_t *given = json_object_get(generation, key);
    const bool are_ids = strcmp(key, "stop_ids") == 0;
    if (are_ids ? json_is_true(json_object_get(generation, "ignore_eos")) || (given && !json_is_array(given)) : given != NULL) continue;
    json_t *joined = are_ids ? json_text_union(given, value) : json_incref(value);
    if (json_object_set_new(generation, key, joined) != 0) return FAIL(ERR_LIMIT, "tasks: no memory");
  }
  return OK;
}

static status finish(eval_tasks *self, eval_run_task *task) {
  TRY(check_name(self, task));
  TRY(make_items(task));
  task->first = self->item_count;
  self->item_count += task->items.count;
  return self->item_count <= EVAL_ITEMS_MAX ? OK : FAIL(ERR_LIMIT, "more than %u items in all tasks", EVAL_ITEMS_MAX);
}

static status add(eval_tasks *self, const char *path, eval_run_task *task) {
  const char *slash = strrchr(path, '/');
  if (!(task->path = json_line_copy(path, strlen(path)))) return FAIL(ERR_LIMIT, "tasks: no memory");
  TRY(read_file(path, slash ? slash + 1 : path, FILE_CONFIG_BYTES_MAX, &task->file));
  TRY(eval_task_parse(task->file.text, task->file.bytes, &task->task));
  TRY(set_defaults(&task->task, self->defaults));
  TRY(set_limit(self, &task->task, -1));
  TRY(read_neighbour(path, task->task.items, &task->items_file));
  if (task->task.shots) TRY(read_neighbour(path, task->task.shots, &task->shots_file));
  return finish(self, task);
}

status eval_tasks_add(eval_tasks *self, const char *path) {
  eval_run_task *task;
  TRY(grow(self, &task));
  status result = add(self, path, task);
  if (result != OK) fail_prefix(path);
  return result;
}

/* === From a manifest ======================================================================================================== */

static status add_recorded(eval_tasks *self, const json_t *manifest, uint32_t index, const char *home, const char *folder,
                           eval_run_task *task) {
  const json_t *hints = json_object_get(json_object_get(manifest, "run"), "task_files");
  const json_t *recorded = json_array_get(json_object_get(json_object_get(manifest, "setup"), "tasks"), index);
  const json_t *parameters = json_object_get(recorded, "parameters"), *limit = json_object_get(parameters, "limit");
  const char *hint = json_string_value(json_array_get(hints, index));
  char neighbour[PATH_BYTES_MAX], text[EVAL_MANIFEST_DIFFERENCE_BYTES];
  if (folder) {
    if (snprintf(neighbour, sizeof neighbour, "%s/x", folder) >= PATH_BYTES_MAX) return FAIL(ERR_USAGE, "--tasks: the path is too long");
    hint = neighbour;
  } else if (hint) {
    TRY(eval_paths_in(home, hint, neighbour));
    hint = neighbour;
  }
  TRY(take_recorded(manifest, index, "file", hint, &task->file));
  if (!(task->path = json_line_copy(hint ? hint : "", strlen(hint ? hint : "")))) return FAIL(ERR_LIMIT, "tasks: no memory");
  TRY(eval_task_parse(task->file.text, task->file.bytes, &task->task));
  TRY(set_defaults(&task->task, json_object_get(json_object_get(manifest, "setup"), "generation_config")));
  if (json_is_integer(limit) && json_integer_value(limit) >= 0 && json_integer_value(limit) <= INT32_MAX)
    TRY(set_limit(self, &task->task, json_integer_value(limit)));
  if (eval_manifest_difference(parameters, task->task.effective, text))
    return FAIL(ERR_MISMATCH, "parameters: this program reads the task differently from the manifest: %s", text);
  TRY(take_recorded(manifest, index, "items", hint, &task->items_file));
  TRY(take_recorded(manifest, index, "shots", hint, &task->shots_file));
  return finish(self, task);
}

status eval_tasks_recorded_one(eval_tasks *self, const json_t *manifest, uint32_t index, const char *home, const char *folder) {
  eval_run_task *task;
  char prefix[32];
  TRY(grow(self, &task));
  status result = add_recorded(self, manifest, index, home, folder, task);
  snprintf(prefix, sizeof prefix, "manifest: task %u", index);
  if (result != OK) fail_prefix(prefix);
  return result;
}

status eval_tasks_recorded(eval_tasks *self, const json_t *manifest, const char *home, const char *folder) {
  for (uint32_t i = 0; i < eval_manifest_task_count(manifest); i++) TRY(eval_tasks_recorded_one(self, manifest, i, home, folder));
  return OK;
}

/* === Reading ================================================================================================================ */

const eval_run_task *eval_tasks_find(const eval_tasks *self, uint64_t position, uint32_t *index) {
  ASSERT(position < self->item_count);
  const eval_run_task *task = &self->list[self->count - 1];
  while (task->first > position) task--;
  *index = (uint32_t)(position - task->first);
  return task;
}

const item_params *eval_tasks_params(const eval_run_task *task) { return task->params.count ? &task->params.list[0].params : NULL; }

static eval_manifest_file describe(const eval_run_file *file) {
  return (eval_manifest_file){.name = file->name, .text = file->text, .bytes = file->bytes, .digest = file->digest};
}

eval_manifest_task *eval_tasks_describe(const eval_tasks *self) {
  eval_manifest_task *built = calloc(self->count + 1ull, sizeof *built);
  for (uint32_t i = 0; built && i < self->count; i++) {
    const eval_run_task *from = &self->list[i];
    built[i] = (eval_manifest_task){.task = &from->task, .file = describe(&from->file), .items = describe(&from->items_file),
                                   .shots = describe(&from->shots_file), .count = from->items.count};
  }
  return built;
}

void eval_tasks_close(eval_tasks *self) {
  for (uint32_t i = 0; i < self->count; i++) {
    eval_run_task *task = &self->list[i];
    eval_answer_close(task->judge);
    items_close(&task->params);
    eval_items_close(&task->items);
    eval_task_close(&task->task);
    close_file(&task->file);
    close_file(&task->items_file);
    close_file(&task->shots_file);
    free(task->path);
  }
  free(self->list);
  *self = (eval_tasks){0};
}
