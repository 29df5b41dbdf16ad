/* cli_files.c - see cli_files.h. Files are told apart by device and inode, so that links and other spellings of a path do not hide
 * that two are one. Must not know what the files hold. */
#include "cli_files.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES_MAX 4096

status cli_files_check_output(const char *path) {
  struct stat info;
  if (!*path) return FAIL(ERR_USAGE, "expected the name of a file to write, found \"\"");
  if (stat(path, &info) != 0) return errno == ENOENT ? OK : FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode)) return FAIL(ERR_USAGE, "%s is not a regular file; hint: give the name of a file to write", path);
  return OK;
}

status cli_files_check_apart(const char *output, const char *other, const char *what) {
  struct stat a, b;
  if (!output || !other || stat(output, &a) != 0 || stat(other, &b) != 0) return OK;
  if (!S_ISREG(a.st_mode) || a.st_dev != b.st_dev || a.st_ino != b.st_ino) return OK;
  return FAIL(ERR_USAGE, "%s would be overwritten, but it is %s (%s); hint: write to another file", output, what, other);
}

static status check_two(const char *output, const char *other) {
  if (output && other && strcmp(output, other) == 0) return FAIL(ERR_USAGE, "%s: expected two files for two outputs, found one", output);
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
  DIR *folder = output ? opendir(model_dir) : NULL;
  if (!folder) return OK; /* whoever reads the model says so */
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
    TRY(cli_files_check_apart(outputs[i], plan_path, "the plan"));
    TRY(cli_files_check_apart(outputs[i], input, "the input"));
    TRY(cli_files_check_apart(outputs[i], "/dev/stdin", "the input"));
    TRY(cli_files_check_model(outputs[i], model_dir));
    for (size_t j = 0; j < i; j++) TRY(check_two(outputs[i], outputs[j]));
  }
  return OK;
}
