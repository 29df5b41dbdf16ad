/* mla_fold.c - the checker's reading of the op `mla_fold`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const mla_fold_args *a = args;
  uint64_t t = w->rows.tokens, latent = times(a->heads, a->kv_lora_rank), part = sizeof(attn_part) / 4;
  table(w, FIELD(mla_fold, counts), false, TYPE_COUNTS, 1, COUNTS, COUNTS);
  table(w, FIELD(mla_fold, parts), false, TYPE_PARTS, t, part, part);
  describe_units(w, FIELD(mla_fold, partial_o), FIELD(mla_fold, partial_ml), false, a->slots_max, a->heads, a->kv_lora_rank);
  table(w, FIELD(mla_fold, out), true, TYPE_BF16, t, latent, latent);
  if (a->lifts) table(w, FIELD(mla_fold, out), false, TYPE_BF16, t, latent, latent); /* results of tiles that are not split */
  weight(w, FIELD(mla_fold, w_uv), TYPE_BF16, times(latent, a->v_dim))->must_be_null = !a->lifts;
  check_access *value = table(w, FIELD(mla_fold, value), true, TYPE_BF16, t, times(a->heads, a->v_dim), a->v_dim);
  value->batches = a->heads;
  value->batch_stride = a->v_dim * UINT64_C(2);
  value->must_be_null = !a->lifts;
}

static status values(const reader *r, const void *args) {
  const mla_fold_args *a = args;
  SAME(heads, r->m->heads / ranks_of_heads(r));
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(group_chunks, r->l->group_chunks);
  SAME(v_dim, r->m->v_dim);
  TRY(in_range("lifts of mla_fold", a->lifts, 0, 1));
  return in_range("slots_max of mla_fold", a->slots_max, 1, SLOTS_MAX);
}

const reading checks_mla_fold = {describe, values};
