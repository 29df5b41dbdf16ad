/* rank_norm.c - the CPU reference of rank_norm: adds the columns of all ranks, read from their memory, and normalises. The ranks run in
 * lockstep: all have computed theirs when the first of them comes here. NUMERICS.md "rank_norm". Read next: rmsnorm.c. */
#include "cpu/cpu.h"
#include "cpu/rows.h"

static const f32 *there(const f32 *p, u64 peer) { return (const f32 *)(uintptr_t)((u64)(uintptr_t)p + peer); }

/* Column i of those that the rank behind `peer` has. */
static f32 delta_of(const rank_norm_args *a, u64 peer, uint32_t row, u32 i) {
  const u64 first = (u64)row * a->top_k, at = (u64)row * a->part + i;
  f32 sum = 0.0f;
  if (!a->experts) return there(a->delta, peer)[at];
  for (u32 k = 0; k < a->top_k; k++)
    sum = num_fma(a->topk_weight[first + k], there(a->experts, peer)[(u64)a->pair_row[first + k] * a->part + i], sum); /* R7.1 */
  return a->delta ? num_add(sum, there(a->delta, peer)[at]) : sum;                                                     /* R7.2 */
}

static void normalise_row(void *context, uint32_t row, void *scratch) {
  const rank_norm_args *a = context;
  f32 *v = scratch;
  for (u32 i = 0; i < a->dim; i++)
    v[i] = num_fma(delta_of(a, a->ranks->peer[i / a->part], row, i % a->part), a->delta_scale, a->x[(u64)row * a->dim + i]); /* R1.1 */
  for (u32 i = 0; i < a->dim; i++) a->x_out[(u64)row * a->dim + i] = v[i];
  f32 r = rows_norm_factor(v, a->dim, a->eps);
  bf16 *y = a->y + (u64)row * a->y_stride;
  for (u32 i = 0; i < a->dim; i++) y[i] = rows_norm_apply(v[i], r, a->weight[i], a->y_scale);
}

void cpu_rank_norm(const rank_norm_args *args, cpu_pool *pool) {
  rank_norm_args a = *args;
  ASSERT(a.dim <= CPU_SCRATCH_BYTES / sizeof(f32));
  ASSERT(a.ranks->count == a.count && a.count <= RANKS_MAX && a.ranks->peer[a.ranks->rank] == 0);
  cpu_pool_run(pool, rows_count(a.step, ROWS_TOKENS), normalise_row, &a);
}
