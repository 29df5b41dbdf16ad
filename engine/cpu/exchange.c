/* exchange.c - the CPU reference of exchange: copies what all ranks have from their memory. The ranks run in lockstep: all have computed
 * theirs when the first of them comes here. NUMERICS.md "exchange". */
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

/* Row i of table t, which is of launch row `row`: what each rank has of it. Returns the digest of what it is now. */
static u64 copy_columns(const exchange_args *a, u32 t, u64 i) {
  u64 sum = 0;
  for (u32 r = 0; r < a->count; r++) {
    const u64 x = (u64)(uintptr_t)a->x[t] + i * a->part_bytes[t];
    const u64 at = (i * a->count + r) * a->part_bytes[t];
    memcpy((u8 *)a->y[t] + at, (const void *)(uintptr_t)(x + a->ranks->peer[r]), a->part_bytes[t]);
    sum += digest_part(t, at, (const u8 *)a->y[t] + at, a->part_bytes[t]);
  }
  return sum;
}

/* The address of a rank's rows is the own one for the same row of that rank, which begins elsewhere if x and y are the same rows. */
static u64 copy_owned(const exchange_args *a, u32 t, u32 row) {
  const u32 owner = row % a->count, own = a->ranks->rank;
  const bool is_in_place = (u64)(uintptr_t)a->x[t] == (u64)(uintptr_t)a->y[t] + (u64)own * a->y_stride[t];
  u8 *y = (u8 *)a->y[t] + (u64)row * a->y_stride[t];
  const u8 *x = is_in_place ? y : (const u8 *)a->x[t] + (u64)(row / a->count) * a->x_stride[t];
  memmove(y, (const u8 *)(uintptr_t)((u64)(uintptr_t)x + a->ranks->peer[owner]), a->part_bytes[t]);
  return digest_part(t, (u64)row * a->part_bytes[t], y, a->part_bytes[t]);
}

/* Adds the digest of what this rank sends of the row, if it owns it, less that of what it gets. */
static u64 copy_part(const exchange_args *a, u32 t, u32 row) {
  const u32 owner = row % a->count, own = a->ranks->rank, part = a->part_bytes[t];
  const u64 first = (u64)row * a->count * part, at = first + (u64)own * part, x = (u64)(uintptr_t)a->x[t];
  u8 *y = (u8 *)a->y[t] + (u64)row * part;
  u64 balance = 0;
  memcpy(y, (const void *)(uintptr_t)(x + at + a->ranks->peer[owner]), part);
  if (owner == own) balance = digest_part(t, first, (const u8 *)a->x[t] + first, a->count * part);
  return balance - digest_part(t, at, y, part);
}

static void copy_row(void *context, uint32_t row, void *scratch) {
  const exchange_args *a = context;
  const bool is_owned = row % a->count == a->ranks->rank;
  u64 digest = 0, balance = 0;
  (void)scratch;
  for (u32 t = 0; t < EXCHANGE_TABLES && a->y[t]; t++) {
    if (a->form == EXCHANGE_ROWS) digest += copy_owned(a, t, row);
    if (a->form == EXCHANGE_PARTS) balance += copy_part(a, t, row);
    for (u64 i = (u64)row * a->rows_mul[t]; i < (row + UINT64_C(1)) * a->rows_mul[t] && !EXCHANGE_HAS_OWN_ROWS(a->form); i++) {
      if (a->form == EXCHANGE_COLUMNS) digest += copy_columns(a, t, i);
      else if (is_owned) balance -= copy_columns(a, t, i);
      if (a->form == EXCHANGE_OWNERS)
        balance += digest_part(t, (i * a->count + a->ranks->rank) * a->part_bytes[t], (const u8 *)a->x[t] + i * a->part_bytes[t],
                               a->part_bytes[t]);
    }
  }
  __atomic_fetch_add((u64 *)(void *)(a->state + EXCHANGE_DIGEST), digest, __ATOMIC_RELAXED);
  __atomic_fetch_add((u64 *)(void *)(a->state + EXCHANGE_BALANCE), balance, __ATOMIC_RELAXED);
}

void cpu_exchange(const exchange_args *args, cpu_pool *pool) {
  exchange_args a = *args;
  ASSERT(a.ranks->count == a.count && a.count <= RANKS_MAX && a.ranks->peer[a.ranks->rank] == 0);
  cpu_pool_run(pool, rows_count(a.step, a.rows_kind), copy_row, &a);
}
