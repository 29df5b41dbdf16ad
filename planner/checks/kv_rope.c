/* kv_rope.c - the checker's reading of the op `kv_rope`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const kv_rope_args *a = args;
  const uint64_t t = w->rows.tokens, q = times(a->heads, a->head_dim);
  const uint64_t k = times(a->kv_heads, a->head_dim), v = times(a->kv_heads, a->v_dim);
  table(w, FIELD(kv_rope, x), false, TYPE_F32, t, a->x_stride, plus(q, plus(k, v)));
  weight(w, FIELD(kv_rope, bias), TYPE_BF16, plus(q, plus(k, v)))->is_optional = 1;
  weight(w, FIELD(kv_rope, q_norm), TYPE_BF16, a->norms_row ? q : a->head_dim)->is_optional = 1;
  weight(w, FIELD(kv_rope, k_norm), TYPE_BF16, a->norms_row ? k : a->head_dim)->must_be_null = a->q_norm == NULL;
  fixed(w, FIELD(kv_rope, cos_sin), false, REGION_TABLES, IO(cos_sin), times(w->l->max_len, a->rope_dim * UINT64_C(4)))->is_optional = 1;
  describe_positions(w, FIELD(kv_rope, position));
  describe_seqs(w, FIELD(kv_rope, seq));
  describe_block_table(w, FIELD(kv_rope, block_table), a->block_table_stride);
  table(w, FIELD(kv_rope, q_out), true, TYPE_BF16, t, q, q);
  kv_pages(w, FIELD(kv_rope, kv), true, a->kv_format, k, v);
  weight(w, FIELD(kv_rope, kv_scale), TYPE_F32, 1)->must_be_null = a->kv_format != KV_FP8;
}

static status values(const reader *r, const void *args) {
  const kv_rope_args *a = args;
  const bool rotates = !(r->layer < LAYERS_MAX && r->g->unrotated[r->layer / 64] >> r->layer % 64 & 1);
  SAME(heads, r->m->heads / ranks_of_heads(r));
  SAME(kv_heads, r->g->kv_heads / ranks_of_heads(r));
  SAME(head_dim, r->m->nope_dim + r->m->rope_dim);
  SAME(v_dim, r->m->v_dim);
  SAME(rope_dim, r->m->rope_dim);
  SAME(half_split, r->m->rope_half_split);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME_REAL(eps, r->m->norm_eps);
  SAME(norms_row, r->g->qk_norm == QK_NORM_ROW);
  SAME(kv_format, r->q->kv_format);
  TRY(same(r, "the presence of a bias", a->bias != NULL, (r->g->has_bias & BIAS_QKV) != 0));
  TRY(same(r, "the presence of a norm", a->q_norm != NULL, r->g->qk_norm != QK_NORM_NONE));
  TRY(same(r, "the presence of cos_sin", a->cos_sin != NULL, rotates));
  TRY(same(r, "kv_format that is scaled by columns", a->kv_format == KV_FP8_DS_MLA, 0));
  TRY(same(r, "head_dim % 16", a->head_dim % 16, 0));
  TRY(same(r, "v_dim % 16", a->v_dim % 16, 0));
  TRY(same(r, "rope_dim % 8", a->rope_dim % 8, 0));
  TRY(same(r, "x_stride % 4", a->x_stride % 4, 0)); /* vectors of four columns */
  TRY(in_range("kv_heads of kv_rope", a->kv_heads, 1, HEADS_MAX));
  TRY(same(r, "heads % kv_heads", a->heads % a->kv_heads, 0));
  TRY(in_range("head_dim of kv_rope", a->head_dim, 16, HEAD_DIM_MAX));
  return in_range("v_dim of kv_rope", a->v_dim, 16, HEAD_DIM_MAX);
}

const reading checks_kv_rope = {describe, values};
