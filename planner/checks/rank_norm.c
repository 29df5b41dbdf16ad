/* rank_norm.c - the checker's reading of the op `rank_norm`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const rank_norm_args *a = args;
  const uint64_t t = w->rows.tokens;
  fixed(w, FIELD(rank_norm, ranks), false, REGION_STATE, IO(ranks), sizeof(exchange_ranks));
  table(w, FIELD(rank_norm, x), false, TYPE_F32, t, a->dim, a->dim);
  table(w, FIELD(rank_norm, delta), false, TYPE_F32, t, a->part, a->part)->is_optional = a->top_k != 0;
  table(w, FIELD(rank_norm, experts), false, TYPE_F32, times(t, a->top_k), a->part, a->part)->must_be_null = a->top_k == 0;
  table(w, FIELD(rank_norm, pair_row), false, TYPE_PAIR_ROW, t, a->top_k, a->top_k)->must_be_null = a->top_k == 0;
  table(w, FIELD(rank_norm, topk_weight), false, TYPE_F32, t, a->top_k, a->top_k)->must_be_null = a->top_k == 0;
  table(w, FIELD(rank_norm, x_out), true, TYPE_F32, t, a->dim, a->dim);
  weight(w, FIELD(rank_norm, weight), TYPE_BF16, a->dim);
  table(w, FIELD(rank_norm, y), true, TYPE_BF16, t, a->y_stride, a->dim);
  fixed(w, FIELD(rank_norm, inbox), true, REGION_STATE, IO(inbox), EXCHANGE_INBOX_BYTES((uint64_t)a->count));
  fixed(w, FIELD(rank_norm, state), true, REGION_STATE, IO(exchange), EXCHANGE_STATE_WORDS * 4);
}

static status values(const reader *r, const void *args) {
  const rank_norm_args *a = args;
  SAME_REAL(eps, r->m->norm_eps);
  SAME_REAL(delta_scale, r->m->residual_scale);
  SAME_REAL(y_scale, 1);
  SAME(count, r->l->ranks);
  TRY(same(r, "a norm that exchanges through NCCL", r->l->transport, TRANSPORT_PEER));
  TRY(in_range("nth of an exchange", a->nth, 0, EXCHANGE_PER_STEP_MAX - 1));
  TRY(same(r, "part % 4", a->part % 4, 0));
  TRY(same(r, "columns of all ranks", times(a->part, a->count), a->dim));
  if (a->top_k == 0) return OK;
  SAME(top_k, r->m->top_k);
  return same(r, "the presence of a shared expert", a->delta != NULL, r->m->shared_experts != 0);
}

const reading checks_rank_norm = {describe, values};
