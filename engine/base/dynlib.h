/* dynlib.h - opens shared libraries at run time and reports precisely what was missing.
 *
 * Search order: the caller's folders, the loader's own path, CUDA's usual folders, then NVIDIA's Python wheels
 * (site-packages/nvidia/<any>/lib) of the pythons found. A library stays loaded once opened. Has no policy on versions: the caller lists
 * names in order of preference. Reads no environment; the command line passes in what to search. Read next: gpu.c, jit.c, gemm_lt.c. */
#ifndef VERBATIM_DYNLIB_H
#define VERBATIM_DYNLIB_H
#include "base/base.h"

#define DYNLIB_PATH_MAX 1024u

typedef struct dynlib {
  void *handle;
  char path[DYNLIB_PATH_MAX]; /* the file that was opened */
} dynlib;

typedef struct dynlib_symbol {
  const char *name;
  void *target; /* the function pointer to set */
} dynlib_symbol;

typedef struct dynlib_search { /* additional places: lists separated by colons; either may be NULL */
  const char *folders;      /* searched first                                        */
  const char *program_path; /* PATH, to find the python3 whose wheels may be used    */
} dynlib_search;

/* Opens the first of `names` (NULL-terminated, preferred first) that is found anywhere. what: for the message, e.g. "the NVIDIA driver".
 * search: NULL for the usual places only. ERR_DEVICE: none was found, or one was found and could not be loaded; hint ends the message. */
status dynlib_open(const dynlib_search *search, const char *const *names, const char *what, const char *hint, dynlib *out);
void dynlib_close(dynlib *self); /* may be zeroed */

/* Looks up every symbol. ERR_DEVICE: one is missing; the message names it and the file. */
status dynlib_resolve(const dynlib *self, const dynlib_symbol *symbols, size_t count);

#endif
