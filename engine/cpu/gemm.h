/* gemm.h - the product that the references of gemm and gemm_bias share. Internal to engine/cpu. */
#ifndef VERBATIM_CPU_GEMM_H
#define VERBATIM_CPU_GEMM_H
#include "cpu/cpu.h"

/* gemm; bias: a number for each row of w, added to its sums, or null. */
void cpu_gemm_run(const gemm_args *args, const bf16 *bias, cpu_pool *pool);

#endif
