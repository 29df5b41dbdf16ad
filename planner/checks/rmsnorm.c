/* rmsnorm.c - the checker's reading of the op `rmsnorm`: memory and argument values. See reading.h. */
#include "checks/reading.h"
#include <string.h>

static void describe(writer *w, const void *args) {
  const rmsnorm_args *a = args;
  const uint64_t rows = rows_of(w, a->rows_kind);
  const bool is_draft = w->rows.of_drafts && a->row_index, selects = a->rows_kind == ROWS_LOGITS || is_draft;
  const uint64_t source_rows = is_draft ? w->rows.all : selects ? w->rows.tokens : rows;
  if (is_draft) draft_list_of(w, FIELD(rmsnorm, row_index), false, TYPE_SOURCES);
  else fixed(w, FIELD(rmsnorm, row_index), false, REGION_STEP, IO(logit_row), rows * 4)->must_be_null = !selects;
  table(w, FIELD(rmsnorm, x), false, TYPE_F32, source_rows, a->x_stride, a->dim)->is_optional = a->top_k != 0;
  table(w, FIELD(rmsnorm, delta), false, TYPE_F32, source_rows, a->x_stride, a->dim)->is_optional = 1;
  table(w, FIELD(rmsnorm, experts), false, TYPE_F32, times(source_rows, a->top_k), a->dim, a->dim)->must_be_null = a->top_k == 0;
  table(w, FIELD(rmsnorm, pair_row), false, TYPE_PAIR_ROW, source_rows, a->top_k, a->top_k)->must_be_null = a->top_k == 0;
  table(w, FIELD(rmsnorm, topk_weight), false, TYPE_F32, source_rows, a->top_k, a->top_k)->must_be_null = a->top_k == 0;
  table(w, FIELD(rmsnorm, gate), false, TYPE_F32, source_rows, a->gate_stride, 1)->is_optional = 1;
  check_access *x_out = table(w, FIELD(rmsnorm, x_out), true, TYPE_F32, source_rows, a->x_stride, a->dim);
  x_out->is_optional = 1;
  x_out->must_be_null = selects; /* rows might be selected twice */
  weight(w, FIELD(rmsnorm, weight), TYPE_BF16, a->dim)->is_optional = 1;
  table(w, FIELD(rmsnorm, y), true, a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16, rows, a->y_stride, a->dim);
}

static status values(const reader *r, const void *args) {
  const rmsnorm_args *a = args;
  SAME(rows_kind, r->rows_kind);
  bool is_latent = memcmp(&a->eps, &r->m->latent_eps, sizeof a->eps) == 0;
  if (!is_latent) SAME_REAL(eps, r->m->norm_eps);
  if (!a->weight && r->g->norms != NORMS_AFTER) return same(r, "the presence of a weight", 0, 1);
  SAME_REAL(delta_scale, a->x ? r->m->residual_scale : 1);
  if (a->top_k) {
    SAME(top_k, r->m->top_k);
    TRY(same(r, "the presence of a shared expert", a->delta != NULL, r->m->shared_experts != 0));
    TRY(same(r, "the presence of a gate", a->gate != NULL, r->g->shared_gate));
  }
  else TRY(same(r, "a gate without experts", a->gate != NULL, 0));
  TRY(in_range("y_kind of rmsnorm", a->y_kind, Y_BF16, Y_F32));
  SAME_REAL(y_scale, a->rows_kind == ROWS_LOGITS ? r->m->head_scale : 1);
  return OK;
}

const reading checks_rmsnorm = {describe, values};
