/* special_file.c - see special_file.h. One stat(2), and one lstat(2) where it finds nothing. */
#include "base/special_file.h"
#include <errno.h>
#include <sys/stat.h>

bool special_file_at(const char *path) {
  struct stat info;
  if (stat(path, &info) == 0) return !S_ISREG(info.st_mode);
  return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

bool special_file_is_there(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}
