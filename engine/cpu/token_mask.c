/* token_mask.c - the CPU reference of token_mask: what a row's mask lacks becomes -Inf. NUMERICS.md "token_mask". */
#include "cpu/cpu.h"
#include "base/limits.h"
#include <math.h>

static void mask_row(void *context, uint32_t row, void *scratch) {
  const token_mask_args *a = context;
  const sample_param *p = &a->param[row];
  (void)scratch;
  if (p->mask == 0) return;
  ASSERT(p->adjusted);
  const u32 *bits = a->masks + (u64)(p->mask - 1) * a->words;
  f32 *adjusted = a->adjusted + (u64)row * a->vocab;
  for (u32 i = 0; i < a->vocab; i++)
    if ((bits[i / 32] >> i % 32 & 1) == 0) adjusted[i] = -INFINITY;
}

void cpu_token_mask(const token_mask_args *args, cpu_pool *pool) {
  token_mask_args a = *args;
  ASSERT(a.vocab > 0 && a.vocab <= VOCAB_MAX && (u64)a.words * 32 >= a.vocab);
  cpu_pool_run(pool, a.step->logit_count, mask_row, &a);
}
