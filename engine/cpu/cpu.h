/* cpu.h - the CPU backend: every op of kernels.def as a C function, and the thread pool that runs them.
 *
 * The references follow NUMERICS.md bit for bit. The number of threads and the instruction set decide which thread computes an item, never
 * its value: one thread computes each item whole, in the order NUMERICS.md states. Knows nothing of plans, requests or the GPU. Read next:
 * h16.h (the tensor-core chain), kernels_src/abi.h (arguments). */
#ifndef VERBATIM_CPU_H
#define VERBATIM_CPU_H
#include "kernels_src/abi.h"
#include "base/base.h"

#define CPU_THREADS_MAX 256u
#define CPU_SCRATCH_BYTES (4u << 20) /* per thread, 64-byte aligned, contents undefined at the start of an item */

typedef struct cpu_pool cpu_pool;

/* Computes one item. scratch: CPU_SCRATCH_BYTES that no other running item uses. */
typedef void cpu_task(void *context, uint32_t index, void *scratch);

/* Opens a pool of `threads` threads, including the caller's (0: one per online core; at most CPU_THREADS_MAX). All memory is allocated
 * here. On error *pool is untouched. */
status cpu_pool_open(cpu_pool **pool, uint32_t threads);
void cpu_pool_close(cpu_pool *pool); /* NULL: does nothing */
uint32_t cpu_pool_threads(const cpu_pool *pool);

/* Runs fn for indices 0 .. count-1, in any order, on the pool's threads, and returns when all are done. Not reentrant: one caller at a
 * time, and a task must not call it. */
void cpu_pool_run(cpu_pool *pool, uint32_t count, cpu_task *fn, void *context);

/* The instruction set in use, the best this processor has: "avx512", "avx2", "neon" or "portable". */
const char *cpu_isa(void);

/* The references: cpu_<stem>(args, pool) computes what the kernel <stem> computes. Pointers in args are host addresses. */
#define KERNEL(stem) void cpu_##stem(const stem##_args *args, cpu_pool *pool);
#include "kernels_src/kernels.def"
#undef KERNEL

/* The work of cpu_moe_sort, for the reference of a router that also sorts. */
void cpu_moe_sort_pairs(const moe_sort_args *args, cpu_pool *pool);

#endif
