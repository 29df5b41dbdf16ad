/* row_digest.c - the CPU reference of row_digest: the sum of mixed words. NUMERICS.md "row_digest". */
#include "cpu/cpu.h"
#include "cpu/rows.h"

static void digest_row(void *context, uint32_t row, void *scratch) {
  const row_digest_args *a = context;
  (void)scratch;
  const u32 *word = a->x + (u64)row * a->stride;
  u64 sum = 0;
  for (u32 i = 0; i < a->words; i++) sum += num_digest_word(i, word[i]);
  a->digest[row] = sum;
}

void cpu_row_digest(const row_digest_args *args, cpu_pool *pool) {
  row_digest_args a = *args;
  cpu_pool_run(pool, rows_count(a.step, a.rows_kind), digest_row, &a);
}
