/* mla_fold.c - the CPU reference of mla_fold: folds the units of every query in order, the chunks of a group and then the groups. With w_uv
 * it also computes the product of each head, as gemm does. Without it, units are overwritten after the fold, because the kernel leaves them
 * undefined. NUMERICS.md "mla_fold". Read next: attn_state.h. */
#include "kernels_src/attn/attn_cut.h"
#include "cpu/attn_state.h"
#include "cpu/cpu.h"

typedef struct fold_scratch {
  attn_row unit, group, total;
} fold_scratch;

static void load_unit(const mla_fold_args *a, const attn_part *part, u32 head, u32 unit, attn_row *row) {
  u64 at = (part->first + (u64)unit * part->step) * a->heads + head;
  row->m = a->partial_ml[2 * at];
  row->l = a->partial_ml[2 * at + 1];
  memcpy(row->o, a->partial_o + at * a->kv_lora_rank, a->kv_lora_rank * sizeof row->o[0]);
}

/* Poisons the units: the kernel leaves them undefined, so nothing may read them again. */
static void discard_units(const mla_fold_args *a, const attn_part *part, u32 head) {
  for (u64 unit = 0; unit < part->units; unit++)
    memset(a->partial_o + ((part->first + unit * part->step) * a->heads + head) * a->kv_lora_rank, 0xff, a->kv_lora_rank * sizeof(f32));
}

static void fold_query(void *context, uint32_t index, void *scratch) {
  const mla_fold_args *a = context;
  fold_scratch *s = scratch;
  const attn_part *part = &a->parts[index / a->heads];
  u32 head = index % a->heads, group_units = attn_group_units(a->counts->piece_chunks, a->group_chunks);
  for (u32 first = 0; first < part->units; first += group_units) {
    for (u32 unit = first; unit < part->units && unit - first < group_units; unit++) {
      load_unit(a, part, head, unit, unit == first ? &s->group : &s->unit);
      if (unit != first) attn_row_fold(&s->group, &s->unit, a->kv_lora_rank);
    }
    if (first == 0)
      attn_row_copy(&s->total, &s->group, a->kv_lora_rank);
    else
      attn_row_fold(&s->total, &s->group, a->kv_lora_rank);
  }
  attn_row_output(a->out + ((u64)part->token * a->heads + head) * a->kv_lora_rank, &s->total, a->kv_lora_rank);
  if (!a->lifts) discard_units(a, part, head);
}

void cpu_mla_fold(const mla_fold_args *args, cpu_pool *pool) {
  mla_fold_args a = *args;
  ASSERT(a.kv_lora_rank <= KV_LORA_RANK_MAX && a.group_chunks > 0);
  cpu_pool_run(pool, a.counts->parts * a.heads, fold_query, &a);
  gemm_args lift = {.step = a.step, .x = a.out, .w = a.w_uv, .y = a.value, .x_batch = a.kv_lora_rank,
                    .w_batch = (u64)a.v_dim * a.kv_lora_rank, .y_batch = a.v_dim, .ldx = a.heads * a.kv_lora_rank, .ldy = a.heads * a.v_dim,
                    .n = a.v_dim, .k = a.kv_lora_rank, .batches = a.heads, .rows_kind = ROWS_TOKENS, .y_kind = Y_BF16};
  if (a.lifts) cpu_gemm(&lift, pool);
}
