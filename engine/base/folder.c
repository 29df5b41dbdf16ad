/* folder.c - see folder.h. */
#include "base/folder.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

status folder_make(const char *path) {
  char partial[FOLDER_PATH_BYTES_MAX];
  const size_t bytes = strlen(path);
  if (bytes >= sizeof partial) return FAIL(ERR_USAGE, "%.60s...: the path is too long", path);
  memcpy(partial, path, bytes + 1);
  for (size_t i = 1; i <= bytes; i++) {
    if (path[i] != '/' && path[i] != 0) continue;
    partial[i] = 0;
    (void)mkdir(partial, 0777); /* it may exist; the result is checked below */
    partial[i] = path[i];
  }
  struct stat info;
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode) && access(path, R_OK | W_OK | X_OK) == 0) return OK;
  return FAIL(ERR_IO, "%s: expected a folder that can be written: %s", path, strerror(errno));
}
