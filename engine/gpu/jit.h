/* jit.h - kernels from source to machine code: NVRTC, and a folder of cubins so that each is compiled once.
 *
 * jit.c is the only file that calls NVRTC (libnvrtc, opened at run time). A kernel is compiled from the embedded text <kernel>.cu,
 * the embedded headers and a generated spec.cuh that holds its SPEC_* constants; all in memory, with one fixed list of options.
 * The key of a cubin is the XXH3-128 of everything that can change it: format tag, NVRTC version and library size, options,
 * kernel name, spec text, source, every header's name and text. A cache entry is verified in full before use; a damaged or
 * foreign one is compiled anew and replaced. Works without a GPU. Start-up only. Read next: gpu.h, tools/embed.py. */
#ifndef VERBATIM_JIT_H
#define VERBATIM_JIT_H
#include "base/base.h"
#include "base/dynlib.h"
#include "base/kernel_sources.h"

typedef struct jit jit;

typedef struct jit_spec { /* #define <name> <value>u */
  const char *name;       /* full macro name, "SPEC_THREADS"; [A-Z0-9_], .. JIT_SPEC_NAME_MAX bytes */
  uint32_t value;
} jit_spec;

typedef struct jit_request { /* a kernel ("rmsnorm") with its constants, in this order */
  const char *kernel;
  const jit_spec *specs;
  uint32_t spec_count;
} jit_request;

typedef struct jit_cubin_view {
  const void *bytes; /* owned by the jit, valid until jit_close */
  size_t size;
  bool from_cache;
  char key[33];      /* 32 hex digits */
} jit_cubin_view;

#define JIT_SPECS_MAX 32u
#define JIT_SPEC_NAME_MAX 63u

/* search: further places where NVRTC may be, or null. cache_dir: created if missing (with its parents); null: no cache. An unusable cache
 * is no error: see jit_note. sources: null for the embedded kernel_sources. ERR_DEVICE: no usable NVRTC. */
status jit_open(const dynlib_search *search, const char *cache_dir, const kernel_source *sources, size_t source_count, jit **out);
void jit_close(jit *self); /* null is allowed */
void jit_version(const jit *self, int *major, int *minor); /* of NVRTC */
const char *jit_path(const jit *self); /* the file that NVRTC was opened from */
const char *jit_note(const jit *self); /* "" or one line: why the cache is not in use */

/* The cubins of `count` kernels, in their order: read from the cache, or compiled by as many threads as there are cores, one kernel per
 * thread at a time. ERR_FORMAT: no such source or a bad spec name. ERR_DEVICE: the compiler refused; the text ends with its log. Of several
 * errors, that of the first request is reported, and out is untouched. */
status jit_compile_all(jit *self, const jit_request *requests, uint32_t count, jit_cubin_view *out);

/* The same for one kernel. */
status jit_compile(jit *self, const char *kernel, const jit_spec *specs, uint32_t spec_count, jit_cubin_view *out);

#endif
