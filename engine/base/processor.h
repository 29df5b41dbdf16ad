/* processor.h - what the program asks of the processor it runs on: which instruction sets it has, the best one's name, how to wait.
 *
 * x86-64 and aarch64. Files named `_avx2`, `_avx512` and `_neon` are compiled for one of the two (configure.py); besides cpu/isa.c and
 * base/digest.c, which choose among them, only this header tells processors apart. Every aarch64 processor has NEON. Read next:
 * cpu/isa.c. */
#ifndef VERBATIM_PROCESSOR_H
#define VERBATIM_PROCESSOR_H
#include <stdbool.h>

#if defined(__x86_64__)

#define PROCESSOR_LIBRARIES "/usr/lib/x86_64-linux-gnu" /* Debian's folder */
#define PROCESSOR_CUDA_TARGET "x86_64-linux"   /* of the CUDA toolkit's folders */
static inline bool processor_has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static inline bool processor_has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
static inline const char *processor_isa(void) { return processor_has_avx512() ? "avx512" : processor_has_avx2() ? "avx2" : "portable"; }
static inline void processor_pause(void) { __builtin_ia32_pause(); }

#elif defined(__aarch64__) && !defined(__AARCH64EB__)

#define PROCESSOR_LIBRARIES "/usr/lib/aarch64-linux-gnu"
#define PROCESSOR_CUDA_TARGET "sbsa-linux"
static inline const char *processor_isa(void) { return "neon"; }
/* isb takes some ten nanoseconds, as pause does; yield takes one cycle. */
static inline void processor_pause(void) { __asm__ volatile("isb" ::: "memory"); }

#else
#error "expected x86-64 or little-endian aarch64; see LIMITS.md"
#endif

#endif
