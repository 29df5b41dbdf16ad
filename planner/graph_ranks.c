/* graph_ranks.c - see graph_ranks.h. Must not know memory offsets. */
#include "graph_ranks.h"
#include <stdio.h>
#include "graph_rows.h"

uint32_t graph_ranks_share(const graph *g, uint32_t n, uint32_t unit) { return n % (g->ranks * unit) == 0 ? n / g->ranks : n; }

plan_tensor graph_ranks_rows(const graph *g, plan_tensor whole, uint32_t own) {
  if (own == whole.rows) return whole;
  ASSERT(own * g->ranks == whole.rows);
  whole.row_count = whole.row_step = whole.rank_step = own;
  return whole;
}

void graph_ranks_begin(graph *g) {
  g->rank_table = g->exchange = g->inbox = g->rank_x = g->rank_head = DRAFT_NONE;
  if (g->ranks == 1) return;
  g->rank_table = graph_add_fixed(g, REGION_STATE, sizeof(exchange_ranks), "ranks");
  g->exchange = graph_add_fixed(g, REGION_STATE, EXCHANGE_STATE_WORDS * UINT64_C(4), "exchange_state");
  g->rank_x = graph_add_fixed(g, REGION_RESULT, g->l->max_batch_tokens * UINT64_C(8), "rank_x");
  g->rank_head = graph_add_fixed(g, REGION_RESULT, g->l->max_logit_rows * UINT64_C(8), "rank_head");
  if (g->l->transport == TRANSPORT_PEER) g->inbox = graph_add_fixed(g, REGION_STATE, EXCHANGE_INBOX_BYTES(g->ranks), "exchange_inbox");
}

typedef struct tables { /* of an exchange under construction */
  exchange_args args;
  draft_ref refs[4 + 2 * EXCHANGE_TABLES];
  uint32_t count;
  uint64_t bytes; /* of all whole rows */
} tables;

/* Adds the table of a rank's columns, and returns the buffer of whole rows. rows: of the step, padded. */
static uint32_t add_table(graph *g, tables *t, const char *what, uint32_t own, uint64_t offset, uint32_t own_bytes, uint64_t rows,
                          uint32_t rows_mul) {
  ASSERT(t->count < EXCHANGE_TABLES && own_bytes % 8 == 0);
  const uint64_t bytes = rows * rows_mul * own_bytes * g->ranks;
  const uint32_t whole = graph_add_work(g, bytes, what), at = 8 * t->count;
  t->refs[2 * t->count] = (draft_ref){.offset = offset, .buffer = own, .args_offset = (uint32_t)offsetof(exchange_args, x) + at};
  t->refs[2 * t->count + 1] = (draft_ref){.buffer = whole, .args_offset = (uint32_t)offsetof(exchange_args, y) + at};
  t->args.part_bytes[t->count] = own_bytes;
  t->args.rows_mul[t->count++] = rows_mul;
  t->bytes += bytes;
  return whole;
}

static void add_exchange(graph *g, tables *t, const char *what, uint32_t kind, uint32_t rows_min, uint32_t rows_max) {
  if (rows_min > rows_max) return;
  /* NCCL gathers one rank's rows after another's; they are put in their places afterwards. */
  const uint32_t inbox = g->l->transport == TRANSPORT_NCCL ? graph_add_work(g, t->bytes, "exchange_inbox") : g->inbox;
  t->args.rows_kind = kind == ROWS_LOGITS ? ROWS_LOGITS : ROWS_TOKENS;
  t->args.nth = g->exchanges++;
  t->args.count = g->ranks;
  draft_ref *others = t->refs + 2 * t->count;
  others[0] = (draft_ref)ARG(exchange_args, step, g->step, 0);
  others[1] = (draft_ref)ARG(exchange_args, ranks, g->rank_table, 0);
  others[2] = (draft_ref)ARG(exchange_args, inbox, inbox, 0);
  others[3] = (draft_ref)ARG(exchange_args, state, g->exchange, 0);
  graph_add_op_rows(g, (op_call){.kernel = OP_exchange, .what = what, .args = &t->args, .args_bytes = sizeof t->args, .refs = t->refs,
                                 .ref_count = 4 + 2 * t->count, .rows_kind = kind, .rows_min = rows_min,
                                 .rows_max = rows_max,
                                 .rank_columns = t->args.form == EXCHANGE_PARTS ? graph_ranks_all(g) : 0});
}

matrix graph_ranks_gather(graph *g, const char *what, matrix own, uint32_t columns, uint32_t element_bytes, uint32_t kind) {
  tables t = {0};
  if (own.part == 0) return own;
  const uint64_t rows = kind == ROWS_LOGITS ? g->logit_rows : g->rows;
  const uint32_t whole = add_table(g, &t, what, own.buffer, own.offset, own.stride * element_bytes, rows, 1);
  add_exchange(g, &t, what, kind, 1, plan_rows_limit(g->l, kind));
  return (matrix){.buffer = whole, .stride = columns};
}

matrix graph_ranks_gather_from(graph *g, const char *what, matrix own, uint32_t rows_min, bool to_owners) {
  const uint32_t last = g->l->max_batch_tokens, whole_max = to_owners ? graph_rows_whole_max(g) : last;
  tables t = {0};
  const uint32_t whole = add_table(g, &t, what, own.buffer, own.offset, own.stride * 4, g->rows, 1);
  add_exchange(g, &t, what, ROWS_TOKENS, rows_min, whole_max);
  t.args.form = EXCHANGE_OWNERS;
  add_exchange(g, &t, what, ROWS_TOKENS, max_u32(rows_min, whole_max + 1), last);
  return (matrix){.buffer = whole, .stride = own.stride * g->ranks};
}

matrix graph_ranks_to_requests(graph *g, const char *what, matrix own, uint64_t rows) {
  tables t = {.args = {.form = EXCHANGE_OWNERS}};
  const uint32_t whole = add_table(g, &t, what, own.buffer, own.offset, own.stride * 2, rows, 1);
  add_exchange(g, &t, what, ROWS_BY_REQUESTS, g->l->requests_rows, g->l->split_rows_max);
  return (matrix){.buffer = whole, .stride = own.stride * g->ranks};
}

void graph_ranks_from_requests(graph *g, const char *what, matrix whole, matrix own) {
  tables t = {.count = 1, .args = {.form = EXCHANGE_PARTS, .part_bytes = {own.stride * 2}, .rows_mul = {1}}};
  t.refs[0] = (draft_ref)ARG(exchange_args, x, whole.buffer, 0);
  t.refs[1] = (draft_ref)ARG(exchange_args, y, own.buffer, 0);
  add_exchange(g, &t, what, ROWS_BY_REQUESTS, g->l->requests_rows, g->l->split_rows_max);
}

void graph_ranks_gather_owned(graph *g, const char *what, const exchange_table *list, uint32_t count, uint32_t rows_min) {
  tables t = {.count = count, .args = {.form = EXCHANGE_ROWS}};
  if (count == 0) return;
  ASSERT(count <= EXCHANGE_TABLES);
  for (uint32_t i = 0; i < count; i++) {
    const exchange_table *of = &list[i];
    t.refs[2 * i] = (draft_ref){.offset = of->x_offset, .buffer = of->x, .rank_step = of->x_rank_step,
                                .args_offset = (uint32_t)offsetof(exchange_args, x) + 8 * i};
    t.refs[2 * i + 1] = (draft_ref){.offset = of->y_offset, .buffer = of->y, .args_offset = (uint32_t)offsetof(exchange_args, y) + 8 * i};
    t.args.part_bytes[i] = of->part_bytes;
    t.args.rows_mul[i] = 1;
    t.args.x_stride[i] = of->x_stride;
    t.args.y_stride[i] = of->y_stride;
  }
  add_exchange(g, &t, what, ROWS_TOKENS, rows_min, g->l->max_batch_tokens);
}

/* Scales are exchanged two at a time. */
static bool has_codes(const divided_rows *of) { return of->is_scaled && of->rows->x.stride % (2 * SCALE_COLUMNS) == 0; }

static void add_rows(graph *g, tables *t, const divided_rows *of) {
  char name[NAME_BYTES_MAX];
  product_rows *rows = of->rows;
  const uint32_t own = rows->x.stride;
  if (!has_codes(of)) {
    snprintf(name, sizeof name, "%s whole", rows->what);
    const uint32_t x = add_table(g, t, name, rows->x.buffer, rows->x.offset, own * 2, g->rows, rows->mul);
    rows->x = (matrix){.buffer = x, .stride = own * g->ranks};
    return;
  }
  snprintf(name, sizeof name, "%s whole codes", rows->what);
  rows->codes = add_table(g, t, name, rows->codes, 0, own, g->rows, rows->mul);
  snprintf(name, sizeof name, "%s whole scales", rows->what);
  rows->scales = add_table(g, t, name, rows->scales, 0, own / SCALE_COLUMNS * 4, g->rows, rows->mul);
  rows->x = (matrix){.buffer = DRAFT_NONE, .stride = own * g->ranks};
}

void graph_ranks_gather_rows(graph *g, const char *what, const divided_rows *list, uint32_t count) {
  tables t = {0};
  for (uint32_t i = 0; i < count; i++) {
    g->point_order = list[i].point_order;
    if (list[i].rows->x.part && has_codes(&list[i])) graph_product_quantize(g, list[i].rows, graph_product_all(g));
  }
  g->point_order = 0;
  for (uint32_t i = 0; i < count; i++)
    if (list[i].rows->x.part) add_rows(g, &t, &list[i]);
  if (t.count) add_exchange(g, &t, what, ROWS_TOKENS, 1, g->l->max_batch_tokens);
}

/* === What norms exchange themselves ========================================================================================= */

uint32_t graph_ranks_own(graph *g, addend own, uint32_t part, uint32_t side) {
  const uint32_t most = min_u32(RANK_NORM_ROWS_MAX, EXCHANGE_TAGGED_BYTES / (part * 4));
  if (g->m->hidden > RANK_NORM_COLUMNS_MAX || g->l->transport == TRANSPORT_NCCL) return 0;
  g->own = (own_addend){.adds = own, .part = part, .rows = min_u32(most, graph_rows_whole_max(g)), .side = side};
  return g->own.rows;
}

void graph_ranks_add(graph *g, const char *what, matrix delta, bool is_last) {
  uint32_t few = 0;
  g->adds.delta = delta.buffer;
  if (delta.part == 0) return;
  ASSERT(delta.offset == 0);
  addend own = GRAPH_NOTHING;
  own.delta = delta.buffer;
  if (!is_last) few = graph_ranks_own(g, own, delta.stride, UINT32_MAX);
  if (few < g->l->max_batch_tokens) g->adds.delta = graph_ranks_gather_from(g, what, delta, few + 1, !is_last).buffer;
}

void graph_ranks_end_block(graph *g, const char *what, const char *name, matrix delta, bool is_last) {
  char text[NAME_BYTES_MAX];
  snprintf(text, sizeof text, "%s exchange", what);
  if (g->plan->grouped.norms == NORMS_BEFORE) {
    graph_ranks_add(g, text, delta, is_last);
    return;
  }
  const matrix whole = delta.part ? graph_ranks_gather_from(g, text, delta, 1, !is_last) : delta;
  snprintf(text, sizeof text, "%s norm weight", what);
  const uint32_t weight = graph_add_weight(g, text, name, 1, g->m->hidden);
  snprintf(text, sizeof text, "%s norm", what);
  const matrix y = graph_add_matrix(g, g->rows, g->m->hidden, 4, text);
  if (!is_last) graph_rows_begin(g);
  graph_add_norm_behind(g, text, whole, weight, y);
  graph_rows_pause(g);
  g->adds.delta = y.buffer;
}

void graph_ranks_norm(graph *g, const char *what, uint32_t weight, matrix y) {
  const plan_model *m = g->m;
  const addend *own = &g->own.adds;
  if (g->own.rows == 0) return;
  const rank_norm_args a = {.dim = m->hidden, .part = g->own.part, .y_stride = y.stride, .top_k = own->experts == DRAFT_NONE ? 0 : m->top_k,
                            .eps = m->norm_eps, .delta_scale = m->residual_scale, .y_scale = 1, .count = g->ranks, .nth = g->exchanges++};
  const draft_ref refs[] = {ARG(rank_norm_args, step, g->step, 0),
                            ARG(rank_norm_args, ranks, g->rank_table, 0),
                            ARG(rank_norm_args, x, g->x, 0),
                            ARG(rank_norm_args, delta, own->delta, 0),
                            ARG(rank_norm_args, experts, own->experts, 0),
                            ARG(rank_norm_args, pair_row, own->pair_row, 0),
                            ARG(rank_norm_args, topk_weight, own->topk_weight, 0),
                            ARG(rank_norm_args, x_out, g->x, 0),
                            ARG(rank_norm_args, weight, weight, 0),
                            ARG(rank_norm_args, y, y.buffer, 0),
                            ARG(rank_norm_args, inbox, g->inbox, 0),
                            ARG(rank_norm_args, state, g->exchange, 0)};
  if (g->own.side != UINT32_MAX) graph_add_join(g, g->own.side);
  graph_add_op_rows(g, (op_call){.kernel = OP_rank_norm, .what = what, .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = g->own.rows});
}

static void add_digest(graph *g, const char *what, uint32_t x, uint32_t to, row_digest_args a) {
  const draft_ref refs[] = {ARG(row_digest_args, step, g->step, 0), ARG(row_digest_args, x, x, 0), ARG(row_digest_args, digest, to, 0)};
  a.stride = a.words;
  ADD_OP(g, OP_row_digest, what, a, refs, a.rows_kind);
}

void graph_ranks_compare(graph *g, matrix rows) {
  const uint32_t hidden = g->m->hidden;
  if (g->ranks == 1) return;
  add_digest(g, "rank_x", g->x, g->rank_x, (row_digest_args){.rows_kind = ROWS_TOKENS, .words = hidden, .of_ranks = 1});
  add_digest(g, "rank_head", rows.buffer, g->rank_head, (row_digest_args){.rows_kind = ROWS_LOGITS, .words = hidden / 2, .of_ranks = 2});
}
