/* rmsnorm.c - the CPU reference of rmsnorm: weighted sum of the experts, residual addition, normalisation. NUMERICS.md "rmsnorm".
 *
 * x_out may be x; then no two rows may name the same source row. Read next: rows.h. */
#include "cpu/cpu.h"
#include "cpu/rows.h"

/* Element i of the sum of the token's experts, the shared one last. */
static f32 add_experts(const rmsnorm_args *a, uint32_t row, u32 i) {
  u64 token = a->row_index ? a->row_index[row] : row, first = token * a->top_k;
  f32 sum = 0.0f;
  for (u32 k = 0; k < a->top_k; k++)
    sum = num_fma(a->topk_weight[first + k], a->experts[(u64)a->pair_row[first + k] * a->dim + i], sum); /* R7.1 */
  return a->delta ? rows_add_shared(sum, a->delta[token * a->x_stride + i], a->gate ? a->gate + token * a->gate_stride : NULL) : sum;
}

static void normalise_row(void *context, uint32_t row, void *scratch) {
  const rmsnorm_args *a = context;
  u64 source = (u64)(a->row_index ? a->row_index[row] : row) * a->x_stride;
  f32 *v = scratch;
  for (u32 i = 0; i < a->dim; i++) {
    f32 delta = a->experts ? add_experts(a, row, i) : a->delta ? a->delta[source + i] : 0;
    f32 x = a->x ? a->x[source + i] : 0;
    v[i] = a->experts || a->delta ? num_fma(delta, a->delta_scale, x) : x; /* R1.1 */
  }
  if (a->x_out) {
    for (u32 i = 0; i < a->dim; i++) a->x_out[source + i] = v[i];
  }
  f32 r = rows_norm_factor(v, a->dim, a->eps);
  if (!a->weight) r = 1; /* products with 1 are exact */
  for (u32 i = 0; i < a->dim; i++) {
    const u64 at = (u64)row * a->y_stride + i;
    const bf16 weight = a->weight ? a->weight[i] : 0x3f80;
    if (a->y_kind == Y_F32) ((f32 *)a->y)[at] = rows_norm_number(v[i], r, weight, a->y_scale);
    else ((bf16 *)a->y)[at] = rows_norm_apply(v[i], r, weight, a->y_scale);
  }
}

void cpu_rmsnorm(const rmsnorm_args *args, cpu_pool *pool) {
  rmsnorm_args a = *args;
  ASSERT(a.dim <= CPU_SCRATCH_BYTES / sizeof(f32));
  cpu_pool_run(pool, rows_count(a.step, a.rows_kind), normalise_row, &a);
}
