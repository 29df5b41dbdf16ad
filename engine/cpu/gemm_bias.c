/* gemm_bias.c - the CPU reference of gemm_bias. NUMERICS.md "gemm_bias". Read next: gemm.c. */
#include "cpu/gemm.h"

void cpu_gemm_bias(const gemm_bias_args *args, cpu_pool *pool) {
  const gemm_args product = {.step = args->step, .x = args->x, .w = args->w, .y = args->y, .ldx = args->ldx, .ldy = args->ldy, .n = args->n,
                             .k = args->k, .batches = 1, .rows_kind = args->rows_kind, .y_kind = args->y_kind};
  cpu_gemm_run(&product, args->bias, pool);
}
