/* kernels.h - the ops of the engine by number, in the order of kernels.def, which is the order of kernel ids in a plan.
 *
 * Knows each op's name, argument size, CPU function and description (op.h). gpu/jit.h and gpu/gpu.h make the GPU kernel from the name. Read
 * next: kernels_src/kernels.def, kernels_src/abi.h, exec/exec.c. */
#ifndef VERBATIM_KERNELS_H
#define VERBATIM_KERNELS_H
#include "base/base.h"
#include "cpu/cpu.h"
#include "ops/op.h"

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
  const op_description *op;
} kernel_row;

/* id < KERNEL_COUNT. */
const kernel_row *kernels_row(uint32_t id);

/* For an op that is launched once per piece of a step's contexts: the offset of the piece's number in its argument struct, a u32 that is
 * set before each launch. 0: the op has no such field. */
uint32_t kernels_piece_at(uint32_t id);

/* The id of a stem, or KERNEL_COUNT. */
uint32_t kernels_find(const char *name);

/* The id of a description, or KERNEL_COUNT for null. */
uint32_t kernels_find_op(const op_description *op);

#endif
