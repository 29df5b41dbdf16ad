/* kernel_sources.h - the texts of kernels_src/ as of the build.
 *
 * Defined by build/gen/kernel_sources.c, which tools/embed.py writes: every kernel, its headers, abi.h and num.h, byte for byte. The
 * program needs no source tree at run time. Knows nothing of NVRTC. Read next: jit.h. */
#ifndef VERBATIM_KERNEL_SOURCES_H
#define VERBATIM_KERNEL_SOURCES_H
#include <stddef.h>

typedef struct kernel_source {
  const char *name; /* path within kernels_src/: "rows/rmsnorm.cu", "abi.h" */
  const char *text; /* NUL-terminated ASCII                            */
} kernel_source;

extern const kernel_source kernel_sources[];
extern const size_t kernel_sources_count;

#endif
