/* common/files.c - see common/files.h. Files are identified by device and inode, so that links and other spellings of a path do not hide
 * that two are the same. */
#include "common/files.h"
#include "base/limits.h"
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

status cli_files_check_apart(const char *output, const char *other, const char *what) {
  struct stat a, b;
  if (!output || !other || stat(output, &a) != 0 || stat(other, &b) != 0) return OK;
  if (!S_ISREG(a.st_mode) || a.st_dev != b.st_dev || a.st_ino != b.st_ino) return OK;
  return FAIL(ERR_USAGE, "%s would be overwritten, but it is %s (%s); hint: write to another file", output, what, other);
}

/* Whether two paths name the same file that does not exist yet. */
static bool is_one_to_be(const char *a, const char *b) {
  char folders[2][PATH_BYTES_MAX];
  struct stat x, y;
  if (stat(a, &x) == 0 || stat(b, &y) == 0 || strcmp(base_of(a), base_of(b)) != 0) return false;
  if (!folder_of(a, folders[0]) || !folder_of(b, folders[1]) || stat(folders[0], &x) != 0 || stat(folders[1], &y) != 0) return false;
  return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static status check_two(const char *output, const char *other) {
  if (output && other && (strcmp(output, other) == 0 || is_one_to_be(output, other)))
    return FAIL(ERR_USAGE, "%s: expected two files for two outputs, found one", output);
  return cli_files_check_apart(output, other, "another output");
}

static bool is_model_file(const char *name) {
  static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "tiktoken.model",
                                      "model.safetensors.index.json"};
  static const char suffix[] = ".safetensors";
  size_t length = strlen(name), end = sizeof suffix - 1;
  for (size_t i = 0; i < ARRAY_LEN(names); i++)
    if (strcmp(name, names[i]) == 0) return true;
  return length > end && strcmp(name + length - end, suffix) == 0;
}

status cli_files_check_model(const char *output, const char *model_dir) {
  DIR *folder = output && model_dir ? opendir(model_dir) : NULL;
  if (!folder) return OK; /* the reader of the model reports it */
  status result = OK;
  for (const struct dirent *entry; result == OK && (entry = readdir(folder)) != NULL;) {
    char path[PATH_BYTES_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", model_dir, entry->d_name);
    if (!is_model_file(entry->d_name) || length < 0 || (size_t)length >= sizeof path) continue;
    result = cli_files_check_apart(output, path, "a file of the model");
  }
  closedir(folder);
  return result;
}

status cli_files_check_outputs(const char *const *outputs, size_t count, const char *plan_path, const char *input, const char *model_dir) {
  for (size_t i = 0; i < count; i++) {
    if (outputs[i]) TRY(check_place(outputs[i]));
    TRY(cli_files_check_apart(outputs[i], plan_path, "the plan"));
    TRY(cli_files_check_apart(outputs[i], input, "the input"));
    TRY(cli_files_check_apart(outputs[i], "/dev/stdin", "the input"));
    TRY(cli_files_check_model(outputs[i], model_dir));
    for (size_t j = 0; j < i; j++) TRY(check_two(outputs[i], outputs[j]));
  }
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
