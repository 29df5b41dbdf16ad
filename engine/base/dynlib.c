/* dynlib.c - the search for shared libraries (see dynlib.h).
 *
 * A file that exists but cannot be loaded does not end the search; its reason is kept for the message. Folders are glob(3) patterns, so
 * that "python3.11" and "python3.12" take one line here. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "base/dynlib.h"
#include "base/processor.h"
#include "base/system.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REASON_BYTES_MAX 256u

static const char *const cuda_folders[] = {
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/" PROCESSOR_CUDA_TARGET "/lib",
    "/usr/local/cuda-*/lib64",
    "/usr/local/cuda-*/targets/" PROCESSOR_CUDA_TARGET "/lib",
    PROCESSOR_LIBRARIES,
    "/usr/lib64",
    "/opt/cuda/lib64",
};

/* Pythons at fixed places; the one on PATH comes first (search_wheels). */
static const char *const python_prefixes[] = {"/usr/local", "/usr", "/opt/*/.venv", "/opt/*"};

typedef struct search {
  dynlib_search where;
  const char *name;              /* library file being looked for */
  dynlib *found;
  char reason[REASON_BYTES_MAX]; /* why a file that exists did not load, or "" */
} search;

static bool try_path(search *s, const char *path) {
  /* NODELETE: NVIDIA's libraries leave threads, exit handlers and memory behind and must not be unmapped under them. */
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    const char *text = dlerror();
    if (strchr(path, '/') && text) snprintf(s->reason, sizeof s->reason, "%s", text);
    return false;
  }
  const char *full = system_library_path(handle);
  s->found->handle = handle;
  snprintf(s->found->path, sizeof s->found->path, "%s", full ? full : path);
  return true;
}

static bool try_folder(search *s, const char *folder) {
  char path[DYNLIB_PATH_MAX];
  int length = snprintf(path, sizeof path, "%s/%s", folder, s->name);
  if (length < 0 || (size_t)length >= sizeof path || access(path, F_OK) != 0) return false;
  return try_path(s, path);
}

static bool try_pattern(search *s, const char *pattern) {
  glob_t matches;
  if (glob(pattern, 0, NULL, &matches) != 0) return false;
  bool found = false;
  for (size_t i = 0; i < matches.gl_pathc && !found; i++) found = try_folder(s, matches.gl_pathv[i]);
  globfree(&matches);
  return found;
}

/* Calls fn for each entry of a colon-separated list, or of NULL, until it returns true; returns whether it did. Empty entries (the current
 * folder) are skipped. */
static bool each_entry(search *s, const char *list, bool (*fn)(search *, const char *)) {
  char entry[DYNLIB_PATH_MAX];
  while (list && *list) {
    size_t bytes = strcspn(list, ":");
    if (bytes > 0 && bytes < sizeof entry) {
      memcpy(entry, list, bytes);
      entry[bytes] = 0;
      if (fn(s, entry)) return true;
    }
    list += bytes;
    if (*list) list++;
  }
  return false;
}

static bool try_prefix(search *s, const char *prefix) {
  static const char *const packages[] = {"site-packages", "dist-packages"};
  char pattern[DYNLIB_PATH_MAX];
  for (size_t i = 0; i < ARRAY_LEN(packages); i++) {
    int length = snprintf(pattern, sizeof pattern, "%s/lib/python3*/%s/nvidia/*/lib", prefix, packages[i]);
    if (length > 0 && (size_t)length < sizeof pattern && try_pattern(s, pattern)) return true;
  }
  return false;
}

/* A virtual environment's python3 is a link with its wheels next to the link; otherwise wheels are next to the link's target. */
static bool try_program_folder(search *s, const char *folder) {
  char path[DYNLIB_PATH_MAX + 16], prefix[DYNLIB_PATH_MAX + 16];
  snprintf(path, sizeof path, "%s/python3", folder);
  if (access(path, X_OK) != 0) return false;
  snprintf(prefix, sizeof prefix, "%s/..", folder);
  if (try_prefix(s, prefix)) return true;
  char *real = realpath(path, NULL);
  if (!real) return false;
  char *slash = strrchr(real, '/');
  bool found = false;
  if (slash && slash != real) {
    *slash = 0;
    snprintf(prefix, sizeof prefix, "%.*s/..", (int)DYNLIB_PATH_MAX, real);
    found = try_prefix(s, prefix);
  }
  free(real);
  return found;
}

static bool search_all(search *s) {
  if (each_entry(s, s->where.folders, try_folder)) return true;
  if (try_path(s, s->name)) return true;
  for (size_t i = 0; i < ARRAY_LEN(cuda_folders); i++)
    if (try_pattern(s, cuda_folders[i])) return true;
  if (each_entry(s, s->where.program_path, try_program_folder)) return true;
  for (size_t i = 0; i < ARRAY_LEN(python_prefixes); i++)
    if (try_prefix(s, python_prefixes[i])) return true;
  return false;
}

status dynlib_open(const dynlib_search *where, const char *const *names, const char *what, const char *hint, dynlib *out) {
  ASSERT(names && names[0]);
  ASSERT(out && !out->handle);
  dynlib found = {0};
  search s = {.found = &found};
  if (where) s.where = *where;
  for (size_t i = 0; names[i]; i++) {
    s.name = names[i];
    if (search_all(&s)) {
      *out = found;
      return OK;
    }
  }
  if (s.reason[0]) return FAIL(ERR_DEVICE, "%s: %s was found but cannot be loaded: %s; hint: %s", what, names[0], s.reason, hint);
  return FAIL(ERR_DEVICE, "no %s: %s not found in the loader's path, CUDA's folders or Python's wheels; hint: %s", what, names[0],
              hint);
}

void dynlib_close(dynlib *self) {
  if (self->handle) dlclose(self->handle);
  *self = (dynlib){0};
}

status dynlib_resolve(const dynlib *self, const dynlib_symbol *symbols, size_t count) {
  ASSERT(self->handle);
  for (size_t i = 0; i < count; i++) {
    void *address = dlsym(self->handle, symbols[i].name);
    if (!address)
      return FAIL(ERR_DEVICE, "%s lacks %s; hint: a newer version of the library is needed", self->path, symbols[i].name);
    memcpy(symbols[i].target, &address, sizeof address); /* POSIX: a function's address fits a void pointer */
  }
  return OK;
}
