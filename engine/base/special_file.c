/* special_file.c - see special_file.h. One stat(2). */
#include "base/special_file.h"
#include <sys/stat.h>

bool special_file_at(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}
