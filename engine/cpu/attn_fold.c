/* attn_fold.c - the CPU reference of attn_fold: combines the units of every query in order, into bf16. NUMERICS.md "attn_fold". Read next:
 * attn_state.h. */
#include "cpu/attn_state.h"
#include "cpu/cpu.h"

static void load_unit(const attn_fold_args *a, const attn_part *part, u32 head, u32 unit, attn_row *row) {
  const u64 at = (part->first + (u64)unit * part->step) * a->heads + head;
  row->m = a->partial_ml[2 * at];
  row->l = a->partial_ml[2 * at + 1];
  memcpy(row->o, a->partial_o + at * a->v_dim, a->v_dim * sizeof row->o[0]);
}

static void fold_query(void *context, uint32_t index, void *scratch) {
  const attn_fold_args *a = context;
  attn_row *total = scratch, *unit = total + 1;
  const attn_part *part = &a->parts[index / a->heads];
  const u32 head = index % a->heads;
  load_unit(a, part, head, 0, total);
  for (u32 i = 1; i < part->units; i++) {
    load_unit(a, part, head, i, unit);
    attn_row_fold(total, unit, a->v_dim);
  }
  attn_row_output(a->out + ((u64)part->token * a->heads + head) * a->v_dim, total, a->v_dim);
}

void cpu_attn_fold(const attn_fold_args *args, cpu_pool *pool) {
  attn_fold_args a = *args;
  ASSERT(a.v_dim <= HEAD_DIM_MAX);
  cpu_pool_run(pool, a.counts->parts * a.heads, fold_query, &a);
}
