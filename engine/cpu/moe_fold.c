/* moe_fold.c - the CPU reference of moe_fold: the weighted sum of a token's experts, the shared one last. Items are rows. NUMERICS.md
 * "moe_fold". Read next: rows.h. */
#include "cpu/cpu.h"
#include "cpu/rows.h"

static void fold_row(void *context, uint32_t row, void *scratch) {
  const moe_fold_args *a = context;
  const u64 first = (u64)row * a->top_k;
  const f32 *gate = a->gate ? a->gate + (u64)row * a->gate_stride : NULL;
  f32 *y = a->y + (u64)row * a->y_stride;
  (void)scratch;
  for (u32 i = 0; i < a->columns; i++) {
    f32 sum = 0.0f;
    for (u32 k = 0; k < a->top_k; k++)
      sum = num_fma(a->topk_weight[first + k], a->experts[(u64)a->pair_row[first + k] * a->columns + i], sum); /* R7.1 */
    y[i] = a->delta ? rows_add_shared(sum, a->delta[(u64)row * a->delta_stride + i], gate) : sum;
  }
}

void cpu_moe_fold(const moe_fold_args *args, cpu_pool *pool) {
  moe_fold_args a = *args;
  cpu_pool_run(pool, rows_count(a.step, ROWS_TOKENS), fold_row, &a);
}
