/* common/files.c - see common/files.h. Files are identified by device and inode, so that links and other spellings of a path do not hide
 * that two are the same. */
#include "common/files.h"
#include "common/hub.h"
#include "base/limits.h"
#include "base/special_file.h"
#include "plan/format.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096

static const char *base_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* The folder that contains the path's last component. False: the path is too long. */
static bool folder_of(const char *path, char folder[PATH_BYTES_MAX]) {
  int bytes = (int)(base_of(path) - path);
  bool fits = snprintf(folder, PATH_BYTES_MAX, "%.*s.", bytes, path) < PATH_BYTES_MAX;
  if (!fits) errno = ENAMETOOLONG;
  return fits;
}

/* The path must not be a folder, and its parent folder must exist; checked before long work rather than after. It may be a device. */
static status check_place(const char *path) {
  struct stat info;
  char folder[PATH_BYTES_MAX];
  if (!*path) return FAIL(ERR_USAGE, "expected the name of a file to write, found \"\"");
  if (stat(path, &info) == 0) {
    if (!S_ISDIR(info.st_mode)) return OK;
    return FAIL(ERR_USAGE, "%s is a folder, not a regular file; hint: name a file to write", path);
  }
  bool is_new = errno == ENOENT;
  if (is_new && lstat(path, &info) == 0) return FAIL(ERR_USAGE, "%s is a link that leads nowhere; hint: name a file to write", path);
  if (is_new && !*base_of(path)) return FAIL(ERR_USAGE, "%s: expected the name of a file to write, found that of a folder", path);
  if (is_new && folder_of(path, folder) && access(folder, W_OK | X_OK) == 0) return OK;
  return FAIL(ERR_IO, "%s: cannot be written: %s; hint: its folder must exist and be writable", path, strerror(errno));
}

status cli_files_check_output(const char *path) {
  struct stat info;
  TRY(check_place(path));
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return FAIL(ERR_USAGE, "%s is not a regular file; hint: name a file to write", path);
  return OK;
}

/* Whether two paths name one regular file. */
static bool is_one(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Whether the folder is the one that contains the path's last component. */
static bool is_in(const char *path, const char *folder) {
  char parent[PATH_BYTES_MAX];
  struct stat x, y;
  return folder_of(path, parent) && stat(parent, &x) == 0 && stat(folder, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Whether two paths name one file that does not exist yet. */
static bool is_one_to_be(const char *a, const char *b) {
  char folder[PATH_BYTES_MAX];
  struct stat info;
  if (stat(a, &info) == 0 || stat(b, &info) == 0 || strcmp(base_of(a), base_of(b)) != 0) return false;
  return folder_of(b, folder) && is_in(a, folder);
}

static status overwritten(const char *path, const char *what, const char *other) {
  return FAIL(ERR_USAGE, "%s would be overwritten, but it is %s (%s); hint: write to another file", path, what, other);
}

/* The files that the program reads from a model folder, and those that other programs expect there. */
static bool is_model_file(const char *name) {
  static const char *const names[] = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                      "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "tiktoken.model",
                                      "tokenizer.model", "chat_template.jinja", "chat_template.json", "model.safetensors.index.json"};
  static const char *const suffixes[] = {".safetensors", ".py"};
  size_t length = strlen(name);
  for (size_t i = 0; i < ARRAY_LEN(names); i++)
    if (strcmp(name, names[i]) == 0) return true;
  for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
    size_t end = strlen(suffixes[i]);
    if (length > end && strcmp(name + length - end, suffixes[i]) == 0) return true;
  }
  return false;
}

status cli_files_check_model(const char *output, const char *model_dir) {
  DIR *folder = output && model_dir ? opendir(model_dir) : NULL;
  if (!folder) return OK; /* the reader of the model reports it */
  status result = OK;
  if (is_model_file(base_of(output)) && is_in(output, model_dir)) result = overwritten(output, "a file of the model", model_dir);
  for (const struct dirent *entry; result == OK && (entry = readdir(folder)) != NULL;) {
    char path[PATH_BYTES_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", model_dir, entry->d_name);
    if (!is_model_file(entry->d_name) || length < 0 || (size_t)length >= sizeof path) continue;
    if (is_one(output, path)) result = overwritten(output, "a file of the model", path);
  }
  closedir(folder);
  return result;
}

/* === Tables ================================================================================================================= */

/* The file at this path is written: it must be none that the row names. */
static status check_written(const char *path, const cli_files_row *row) {
  if (row->use == CLI_FILES_MODEL) return cli_files_check_model(path, row->path);
  if (row->use == CLI_FILES_FOLDER && is_in(path, row->path)) return overwritten(path, row->what, row->path);
  if (row->use == CLI_FILES_FOLDER) return OK;
  if (row->use == CLI_FILES_WRITTEN && (strcmp(path, row->path) == 0 || is_one_to_be(path, row->path)))
    return FAIL(ERR_USAGE, "%s: expected two files for two outputs, found one", path);
  return is_one(path, row->path) || is_one_to_be(path, row->path) ? overwritten(path, row->what, row->path) : OK;
}

/* Everything in the folder may be written. */
static status check_folder(const char *folder, const cli_files_row *row) {
  DIR *entries = opendir(folder);
  status result = OK;
  if (!entries) return OK; /* it will be made */
  for (const struct dirent *entry; result == OK && (entry = readdir(entries)) != NULL;) {
    char path[PATH_BYTES_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (length > 0 && length < PATH_BYTES_MAX) result = check_written(path, row);
  }
  closedir(entries);
  return result;
}

static status check_pair(const cli_files_row *output, const cli_files_row *row) {
  return output->use == CLI_FILES_WRITTEN ? check_written(output->path, row) : check_folder(output->path, row);
}

/* What the program has open before it looks at its arguments; a redirection may have named any file. */
static status check_standard(const cli_files_row *row) {
  static const cli_files_row input = {CLI_FILES_READ, "/dev/stdin", "the input"};
  static const cli_files_row outputs[] = {{CLI_FILES_WRITTEN, "/dev/stdout", "the standard output"},
                                          {CLI_FILES_WRITTEN, "/dev/stderr", "the standard error output"}};
  if (row->use == CLI_FILES_WRITTEN || row->use == CLI_FILES_FOLDER) TRY(check_pair(row, &input));
  for (size_t i = 0; i < ARRAY_LEN(outputs); i++) TRY(check_pair(&outputs[i], row));
  return OK;
}

status cli_files_check(const cli_files_row *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!rows[i].path) continue;
    const bool is_output = rows[i].use == CLI_FILES_WRITTEN || rows[i].use == CLI_FILES_FOLDER;
    if (rows[i].use == CLI_FILES_WRITTEN) TRY(check_place(rows[i].path));
    TRY(check_standard(&rows[i]));
    for (size_t j = 0; j < count && is_output; j++)
      if (j != i && rows[j].path) TRY(check_pair(&rows[i], &rows[j]));
  }
  return OK;
}

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool is_plan(const char *path) {
  char magic[sizeof PLAN_MAGIC - 1] = "";
  FILE *file = special_file_is_there(path) && !special_file_at(path) ? fopen(path, "rb") : NULL;
  const bool is_read = file && fread(magic, 1, sizeof magic, file) == sizeof magic;
  if (file) fclose(file);
  return is_read && memcmp(magic, PLAN_MAGIC, sizeof magic) == 0;
}

/* Whether a first word that could be the path of a plan to be made, or a name on the Hub, is the latter. */
static bool is_hub_model(const char *const *words) {
  static const char suffix[] = ".plan";
  const size_t bytes = strlen(words[0]), end = sizeof suffix - 1;
  cli_hub_name name;
  if (special_file_is_there(words[0]) || !cli_hub_parse(words[0], &name)) return false;
  if (bytes > end && strcmp(words[0] + bytes - end, suffix) == 0) return false;
  return cli_hub_has(words[0]) || !words[1] || (!is_folder(words[1]) && !cli_hub_has(words[1]));
}

status cli_files_engine(const char *const *words, const char **plan_path, const char **model_dir, uint32_t *count) {
  const bool is_model = words[0] && (is_folder(words[0]) || is_hub_model(words));
  if (is_model && words[1] && is_plan(words[1])) return input_file_check(words[0], INPUT_PLAN);
  *count = !words[0] ? 0 : is_model || !words[1] ? 1 : 2;
  *plan_path = is_model ? NULL : words[0];
  *model_dir = is_model ? words[0] : words[0] ? words[1] : NULL;
  return OK;
}

const char *cli_files_cache(const char *asked, char *room, size_t room_bytes) {
  const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length = 0;
  if (asked) return *asked ? asked : NULL;
  if (base && *base == '/') length = snprintf(room, room_bytes, "%s/verbatim", base);
  else if (home && *home) length = snprintf(room, room_bytes, "%s/.cache/verbatim", home);
  return length > 0 && (size_t)length < room_bytes ? room : NULL;
}

status cli_files_read_config(const char *path, input_file_kind kind, char **out, size_t *out_bytes) {
  FILE *file;
  TRY(input_file_open_stream(path, kind, &file));
  char *text = malloc(FILE_CONFIG_BYTES_MAX + 1);
  ASSERT(text != NULL);
  size_t bytes = fread(text, 1, FILE_CONFIG_BYTES_MAX + 1, file);
  bool is_bad = ferror(file) != 0;
  fclose(file);
  const bool is_void = bytes == 0 && kind != INPUT_DEPLOYMENT; /* a deployment without keys has every default */
  if (is_bad || is_void || bytes > FILE_CONFIG_BYTES_MAX) {
    free(text);
    if (is_bad) return FAIL(ERR_IO, "%s: cannot be read; hint: it must be a regular file", path);
    if (is_void) return input_file_empty(path, kind);
    return FAIL(ERR_LIMIT, "%s: expected at most %u bytes, found more; hint: is it another file?", path, FILE_CONFIG_BYTES_MAX);
  }
  *out = text;
  *out_bytes = bytes;
  return OK;
}
