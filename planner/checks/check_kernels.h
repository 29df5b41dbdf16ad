/* check_kernels.h - whether the kernels of a plan can be built: blocks, constants, and the shared memory that follows from them.
 *
 * An independent reading of kernels_src/, which shares no code with planner/specialise.c. Part of check.h. Read next: check.c. */
#ifndef VERBATIM_CHECK_KERNELS_H
#define VERBATIM_CHECK_KERNELS_H
#include "engine/base/base.h"
#include "engine/plan/format.h"

typedef struct kernels_plan { /* tables that lie inside the plan */
  const plan_header *header;
  const plan_kernel *kernels;
  const plan_spec *specs;
  const char *strings;
} kernels_plan;

/* ERR_FORMAT names the kernel by its number. */
status check_kernels(const kernels_plan *p);

/* The constant of a checked kernel; 0 if it has none of this name. */
uint32_t check_kernels_spec(const kernels_plan *p, const plan_kernel *kernel, const char *name);

#endif
