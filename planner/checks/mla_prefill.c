/* mla_prefill.c - the checker's reading of the op `mla_prefill`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const mla_prefill_args *a = args;
  uint64_t t = w->rows.tokens, nope = times(a->heads, a->nope_dim), state = times(a->heads, (uint64_t)a->v_dim + 2);
  uint64_t columns = times(a->heads, (uint64_t)a->nope_dim + a->v_dim) + a->rope_dim, value = times(a->heads, a->v_dim);
  fixed(w, FIELD(mla_prefill, tiles), false, REGION_STEP, IO(prompt_tiles), t * sizeof(attn_tile));
  describe_contexts(w, FIELD(mla_prefill, contexts));
  table(w, FIELD(mla_prefill, q_nope), false, TYPE_BF16, t, nope, nope);
  check_access *rope = table(w, FIELD(mla_prefill, q_rope), false, TYPE_BF16, t, times(a->heads, a->q_rope_stride), a->rope_dim);
  rope->batches = a->heads;
  rope->batch_stride = a->q_rope_stride * UINT64_C(2);
  table(w, FIELD(mla_prefill, expanded), false, TYPE_BF16, times(a->piece_pages, PAGE_TOKENS), columns, columns);
  table(w, FIELD(mla_prefill, out), true, TYPE_BF16, t, value, value);
  table(w, FIELD(mla_prefill, state), true, TYPE_F32, t, state, state);
}

static status values(const reader *r, const void *args) {
  const mla_prefill_args *a = args;
  SAME(heads, r->m->heads / r->l->ranks);
  SAME(nope_dim, r->m->nope_dim);
  SAME(rope_dim, r->m->rope_dim);
  SAME(v_dim, r->m->v_dim);
  SAME(q_rope_stride, r->m->kv_lora_rank + r->m->rope_dim);
  SAME(piece_pages, r->l->expand_pages);
  SAME(piece, 0);
  SAME_REAL(scale_log2, r->m->softmax_scale_log2);
  return OK;
}

const reading checks_mla_prefill = {describe, values};
