/* exchange.c - the CPU reference of exchange: copies the columns of all ranks from their memory. The ranks run in lockstep: all have
 * computed theirs when the first of them comes here. NUMERICS.md "exchange". */
#include <string.h>
#include "cpu/cpu.h"
#include "cpu/rows.h"
#include "kernels_src/num.h"

static u64 digest_part(u32 t, u64 at, const u8 *bytes, u32 count) {
  u64 sum = 0;
  for (u32 i = 0; i < count; i += 4) {
    u32 word;
    memcpy(&word, bytes + i, 4);
    sum += num_digest_word((u32)((at + i) / 4) + (t << 29), word);
  }
  return sum;
}

static void copy_row(void *context, uint32_t row, void *scratch) {
  const exchange_args *a = context;
  u64 sum = 0;
  (void)scratch;
  for (u32 t = 0; t < EXCHANGE_TABLES && a->y[t]; t++)
    for (u64 i = (u64)row * a->rows_mul[t]; i < (row + UINT64_C(1)) * a->rows_mul[t]; i++)
      for (u32 r = 0; r < a->count; r++) {
        const u64 x = (u64)(uintptr_t)a->x[t] + i * a->part_bytes[t];
        const u64 at = (i * a->count + r) * a->part_bytes[t];
        memcpy((u8 *)a->y[t] + at, (const void *)(uintptr_t)(x + a->ranks->peer[r]), a->part_bytes[t]);
        sum += digest_part(t, at, (const u8 *)a->y[t] + at, a->part_bytes[t]);
      }
  __atomic_fetch_add((u64 *)(void *)(a->state + EXCHANGE_DIGEST), sum, __ATOMIC_RELAXED);
}

void cpu_exchange(const exchange_args *args, cpu_pool *pool) {
  exchange_args a = *args;
  ASSERT(a.ranks->count == a.count && a.count <= RANKS_MAX && a.ranks->peer[a.ranks->rank] == 0);
  cpu_pool_run(pool, rows_count(a.step, a.rows_kind), copy_row, &a);
}
