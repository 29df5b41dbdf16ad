/* moe_combine.c - the CPU twin of moe_combine: the weighted sum of a token's experts, then the shared expert.
 * NUMERICS.md "moe_combine". */
#include "cpu.h"
#include "num.h"

static void combine_token(void *context, uint32_t token, void *scratch) {
  const moe_combine_args *a = context;
  (void)scratch;
  const u32 *row = a->pair_row + (u64)token * a->top_k;
  const f32 *weight = a->topk_weight + (u64)token * a->top_k;
  for (u32 i = 0; i < a->hidden; i++) {
    f32 sum = 0.0f;
    for (u32 k = 0; k < a->top_k; k++) sum = num_fma(weight[k], a->y[(u64)row[k] * a->hidden + i], sum); /* R7.1 */
    if (a->shared) sum = num_add(sum, a->shared[(u64)token * a->hidden + i]);                            /* R7.2 */
    a->out[(u64)token * a->hidden + i] = sum;
  }
}

void cpu_moe_combine(const moe_combine_args *args, cpu_pool *pool) {
  moe_combine_args a = *args;
  cpu_pool_run(pool, a.step->token_count, combine_token, &a);
}
