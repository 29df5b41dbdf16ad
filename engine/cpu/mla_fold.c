/* mla_fold.c - the CPU twin of mla_fold: the units of every query in order: chunks of a group, then groups.
 * NUMERICS.md "mla_fold". Read next: attn_state.h. */
#include "attn_state.h"
#include "cpu.h"

typedef struct fold_scratch {
  attn_row unit, group, total;
} fold_scratch;

static void load_unit(const mla_fold_args *a, u32 token, u32 head, u64 unit, attn_row *row) {
  u64 slot = ((u64)token * a->units_max + unit) * a->heads + head;
  row->m = a->partial_ml[2 * slot];
  row->l = a->partial_ml[2 * slot + 1];
  memcpy(row->o, a->partial_o + slot * a->kv_lora_rank, a->kv_lora_rank * sizeof row->o[0]);
}

static void fold_query(void *context, uint32_t index, void *scratch) {
  const mla_fold_args *a = context;
  fold_scratch *s = scratch;
  u32 token = index / a->heads, head = index % a->heads;
  u64 units = (u64)a->position[token] / ((u64)a->unit_chunks * a->chunk_tokens) + 1;
  u32 group_units = a->unit_chunks == a->group_chunks ? 1 : a->group_chunks;
  for (u64 first = 0; first < units; first += group_units) {
    for (u64 unit = first; unit < units && unit < first + group_units; unit++) {
      load_unit(a, token, head, unit, unit == first ? &s->group : &s->unit);
      if (unit != first) attn_row_fold(&s->group, &s->unit, a->kv_lora_rank);
    }
    if (first == 0)
      attn_row_copy(&s->total, &s->group, a->kv_lora_rank);
    else
      attn_row_fold(&s->total, &s->group, a->kv_lora_rank);
  }
  attn_row_output(a->out + (u64)index * a->kv_lora_rank, &s->total, a->kv_lora_rank);
}

void cpu_mla_fold(const mla_fold_args *args, cpu_pool *pool) {
  mla_fold_args a = *args;
  ASSERT(a.kv_lora_rank <= KV_LORA_RANK_MAX && (a.unit_chunks == 1 || a.unit_chunks == a.group_chunks));
  cpu_pool_run(pool, a.step->token_count * a.heads, fold_query, &a);
}
