/* qkv_rope.c - the checker's reading of the op `qkv_rope`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const qkv_rope_args *a = args;
  uint64_t t = w->rows.tokens, row = (uint64_t)a->kv_lora_rank + a->rope_dim, nope = times(a->heads, a->nope_dim);
  table(w, FIELD(qkv_rope, q), false, TYPE_F32, t, a->q_stride, times(a->heads, (uint64_t)a->nope_dim + a->rope_dim));
  table(w, FIELD(qkv_rope, kv_in), false, TYPE_F32, t, a->kv_in_stride, row);
  weight(w, FIELD(qkv_rope, weight), TYPE_BF16, a->kv_lora_rank);
  describe_cos_sin(w, FIELD(qkv_rope, cos_sin), a->rope_dim);
  describe_positions(w, FIELD(qkv_rope, position));
  describe_seqs(w, FIELD(qkv_rope, seq));
  describe_block_table(w, FIELD(qkv_rope, block_table), a->block_table_stride);
  fixed(w, FIELD(qkv_rope, q_scale), false, REGION_TABLES, IO(q_scale), w->l->max_len * UINT64_C(4))->is_optional = 1;
  table(w, FIELD(qkv_rope, q_nope), true, TYPE_BF16, t, nope, nope);
  weight(w, FIELD(qkv_rope, w_uk), TYPE_BF16, times(nope, a->kv_lora_rank))->must_be_null = !a->absorbs;
  check_access *latent = table(w, FIELD(qkv_rope, q_latent), true, TYPE_BF16, t, times(a->heads, row), a->rope_dim);
  latent->start = a->kv_lora_rank * UINT64_C(2);
  latent->batches = a->heads;
  latent->batch_stride = row * 2;
  if (a->absorbs) {
    latent = table(w, FIELD(qkv_rope, q_latent), true, TYPE_BF16, t, times(a->heads, row), a->kv_lora_rank);
    latent->batches = a->heads;
    latent->batch_stride = row * 2;
  }
  kv_pages(w, FIELD(qkv_rope, kv), true, a->kv_format, a->kv_lora_rank, a->rope_dim);
  weight(w, FIELD(qkv_rope, kv_scale), TYPE_F32, 1)->must_be_null = a->kv_format != KV_FP8;
}

static status values(const reader *r, const void *args) {
  const qkv_rope_args *a = args;
  SAME(heads, r->m->heads / r->l->ranks);
  SAME(nope_dim, r->m->nope_dim);
  SAME(rope_dim, r->m->rope_dim);
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(half_split, r->m->rope_half_split);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME_REAL(eps, r->m->latent_eps);
  SAME(kv_format, r->q->kv_format);
  SAME(scale_kind, r->q->kv_scale);
  return same(r, "the presence of q_scale", a->q_scale != NULL, r->m->q_scale_beta != 0);
}

const reading checks_qkv_rope = {describe, values};
