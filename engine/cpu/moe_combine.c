/* moe_combine.c - the CPU twin of moe_combine: the weighted sum of a token's experts, then the shared expert; an item is a slice of a
 * token's row. NUMERICS.md "moe_combine". */
#include "cpu.h"
#include "num.h"

#define SLICE 256u /* columns: a step of one row is work for several threads */

static void combine_slice(void *context, uint32_t index, void *scratch) {
  const moe_combine_args *a = context;
  (void)scratch;
  u32 slices = (u32)div_up(a->hidden, SLICE), token = index / slices, first = index % slices * SLICE;
  const u32 *row = a->pair_row + (u64)token * a->top_k;
  const f32 *weight = a->topk_weight + (u64)token * a->top_k;
  for (u32 i = first; i < first + SLICE && i < a->hidden; i++) {
    f32 sum = 0.0f;
    for (u32 k = 0; k < a->top_k; k++) sum = num_fma(weight[k], a->y[(u64)row[k] * a->hidden + i], sum); /* R7.1 */
    if (a->shared) sum = num_add(sum, a->shared[(u64)token * a->hidden + i]);                            /* R7.2 */
    a->out[(u64)token * a->hidden + i] = sum;
  }
}

void cpu_moe_combine(const moe_combine_args *args, cpu_pool *pool) {
  moe_combine_args a = *args;
  cpu_pool_run(pool, a.step->token_count * (u32)div_up(a.hidden, SLICE), combine_slice, &a);
}
