/* eval/run/paths.c - see eval/run/paths.h. Links are resolved first: ".." after a link would lead elsewhere. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "eval/run/paths.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static status too_long(const char *path) { return FAIL(ERR_USAGE, "%.200s...: the path is too long", path); }

static status put(char out[EVAL_PATHS_BYTES_MAX], const char *folder, const char *path) {
  int length = snprintf(out, EVAL_PATHS_BYTES_MAX, "%s%s%s", folder, *folder ? "/" : "", path);
  return length >= 0 && length < (int)EVAL_PATHS_BYTES_MAX ? OK : too_long(path);
}

/* Both are absolute and without links. */
static status put_relative(const char *from, const char *to, char out[EVAL_PATHS_BYTES_MAX]) {
  size_t same = 0, used = 0;
  for (size_t i = 0;; i++) { /* same: the length of the common folders */
    bool ends[] = {from[i] == 0 || from[i] == '/', to[i] == 0 || to[i] == '/'};
    if (ends[0] && ends[1]) same = i;
    if (from[i] != to[i] || from[i] == 0) break;
  }
  *out = 0;
  for (const char *c = from + same; *c; c++) {
    if (*c != '/' || c[1] == 0) continue;
    if (used + 3 >= EVAL_PATHS_BYTES_MAX) return too_long(to);
    memcpy(out + used, "../", 4);
    used += 3;
  }
  const char *rest = to + same + (to[same] == '/');
  if (used + strlen(rest) + 2 > EVAL_PATHS_BYTES_MAX) return too_long(to);
  strcpy(out + used, rest);
  if (!*out) strcpy(out, ".");
  return OK;
}

status eval_paths_from(const char *folder, const char *path, char out[EVAL_PATHS_BYTES_MAX]) {
  if (*path == '/') return put(out, "", path);
  char *from = realpath(folder, NULL), *to = realpath(path, NULL);
  status result = from && to ? put_relative(from, to, out) : put(out, "", path);
  free(from);
  free(to);
  return result;
}

status eval_paths_in(const char *folder, const char *path, char out[EVAL_PATHS_BYTES_MAX]) {
  if (*path != '/') {
    TRY(put(out, folder, path));
    if (access(out, F_OK) == 0) return OK;
  }
  return put(out, "", path);
}
