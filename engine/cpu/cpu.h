/* cpu.h - the CPU machine: every op of kernels.def as a C function, and the thread pool they run on.
 *
 * The twins follow NUMERICS.md to the bit. Threads, their number and the instruction set only decide who computes an
 * item, never what it is: every item is computed whole by one thread in the order NUMERICS.md states.
 * Knows nothing of plans, requests or the GPU. Read next: h16.h (the tensor-core chain), kernels_src/abi.h (arguments). */
#ifndef VERBATIM_CPU_H
#define VERBATIM_CPU_H
#include "kernels_src/abi.h"
#include "base/base.h"

#define CPU_THREADS_MAX 256u
#define CPU_SCRATCH_BYTES (4u << 20) /* per thread, 64-byte aligned, contents undefined at the start of an item */

typedef struct cpu_pool cpu_pool;

/* One item of work. scratch: CPU_SCRATCH_BYTES that no other running item uses. */
typedef void cpu_task(void *context, uint32_t index, void *scratch);

/* Makes a pool of `threads` threads, the calling one included (0: every online core; at most
 * CPU_THREADS_MAX). All memory is allocated here. On error *pool is untouched. */
status cpu_pool_open(cpu_pool **pool, uint32_t threads);
void cpu_pool_close(cpu_pool *pool); /* null: nothing */
uint32_t cpu_pool_threads(const cpu_pool *pool);

/* Runs fn for index 0 .. count-1 in any order on the pool's threads; returns when all are done. Not reentrant: one
 * caller at a time, and a task must not call it. */
void cpu_pool_run(cpu_pool *pool, uint32_t count, cpu_task *fn, void *context);

/* The instruction set in use, the best one of this processor: "avx512", "avx2" or "portable". */
const char *cpu_isa(void);

/* The twins: cpu_<stem>(args, pool) computes what the kernel <stem> computes. Pointers in args are host addresses. */
#define KERNEL(stem) void cpu_##stem(const stem##_args *args, cpu_pool *pool);
#include "kernels_src/kernels.def"
#undef KERNEL

/* What cpu_moe_sort does, for the twin of a router that sorts. */
void cpu_moe_sort_pairs(const moe_sort_args *args, cpu_pool *pool);

#endif
