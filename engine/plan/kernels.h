/* kernels.h - the kernel table: one row per line of kernels.def, in its order, which is the numbering used in plans.
 *
 * Says of every op its name, the size of its argument struct and its CPU twin. The GPU side of a kernel is made by jit.h and gpu.h from
 * the name. Read next: kernels_src/kernels.def, kernels_src/abi.h, exec.c. */
#ifndef VERBATIM_KERNELS_H
#define VERBATIM_KERNELS_H
#include "base/base.h"
#include "cpu/cpu.h"

enum kernel_id {
#define KERNEL(stem) KERNEL_##stem,
#include "kernels_src/kernels.def"
#undef KERNEL
  KERNEL_COUNT
};

typedef struct kernel_row {
  const char *name;    /* the stem                             */
  uint32_t args_bytes; /* sizeof <stem>_args                   */
  uint32_t pad;
  void (*run_cpu)(const void *args, cpu_pool *pool); /* args: the stem's struct, with host addresses */
} kernel_row;

/* id < KERNEL_COUNT. */
const kernel_row *kernels_row(uint32_t id);

/* Of an op that is launched once for each piece of a step's contexts: where in its argument struct the piece's number is, a u32 that is set
 * before each launch. 0: the op has none. */
uint32_t kernels_piece_at(uint32_t id);

/* The id of a stem, or KERNEL_COUNT. */
uint32_t kernels_find(const char *name);

#endif
