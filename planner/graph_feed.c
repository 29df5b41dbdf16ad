/* graph_feed.c - see graph_feed.h. Dense parts first, then routing and experts.
 *
 * Must not know memory offsets. Read next: specialise.h. */
#include "graph_feed.h"
#include <stdio.h>
#include "graph_product.h"
#include "model_config.h"
#include "specialise.h"

typedef struct mlp { /* the weights of a dense feed-forward part */
  const char *label;
  uint32_t inter;
  product_weight gate_up, down;
} mlp;

/* of: "mlp" or "mlp.shared_experts"; its products: gate_up and the one after it in enum config_product. */
static mlp add_mlp_weights(graph *g, const char *of, const char *label, uint32_t inter, uint32_t gate_up) {
  const plan_model *m = g->m;
  char what[NAME_BYTES_MAX];
  const product_part up[] = {{of, "gate_proj", inter, gate_up, NULL}, {of, "up_proj", inter, gate_up, NULL}};
  const product_part down = {of, "down_proj", m->hidden, gate_up + 1, NULL};
  mlp part = {.label = label, .inter = inter};
  snprintf(what, sizeof what, "%sgate_up", label);
  part.gate_up = graph_product_weight(g, what, up, 2, 0, m->hidden);
  snprintf(what, sizeof what, "%sdown", label);
  part.down = graph_product_weight(g, what, &down, 1, 0, inter);
  return part;
}

/* gate and up as one product, with silu. */
static matrix add_mlp_up(graph *g, product_rows *h, const mlp *part, uint32_t order) {
  char what[NAME_BYTES_MAX];
  snprintf(what, sizeof what, "%sgate_up", part->label);
  matrix activated = graph_add_matrix(g, g->rows, part->inter, 2, what);
  graph_product_add(g, what, h, part->gate_up, activated, (gemm_args){.n = 2 * part->inter, .y_kind = Y_SILU, .order = order});
  return activated;
}

/* Returns fp32 [rows][hidden]. */
static matrix add_mlp_down(graph *g, matrix activated, const mlp *part, uint32_t order) {
  char what[NAME_BYTES_MAX], up[NAME_BYTES_MAX];
  snprintf(what, sizeof what, "%sdown", part->label);
  snprintf(up, sizeof up, "%sgate_up", part->label);
  matrix out = graph_add_matrix(g, g->rows, g->m->hidden, 4, what);
  product_rows rows = graph_product_rows(activated, up);
  graph_product_add(g, what, &rows, part->down, out, (gemm_args){.n = g->m->hidden, .y_kind = Y_F32, .order = order});
  return out;
}

typedef struct routing { /* buffers of the router's decisions */
  uint32_t topk_id, topk_weight, expert_first, row_token, pair_row;
  uint32_t sort_from; /* row count from which on the pairs are sorted by their own op */
} routing;

typedef struct moe { /* the weights of a layer with experts */
  uint32_t router, bias; /* bias: DRAFT_NONE if the model has none */
  product_weight gate_up, down;
  mlp shared;
} moe;

static void add_router_weights(graph *g, moe *w) {
  const plan_model *m = g->m;
  w->router = graph_add_weight(g, "router weight", "mlp.gate.weight", m->experts, m->hidden);
  w->bias = DRAFT_NONE;
  if (!model_config_has_bias(m)) return;
  w->bias = graph_add_vector(g, "router bias", "mlp.gate.e_score_correction_bias", m->experts);
}

static matrix add_router_logits(graph *g, matrix h, uint32_t weight, uint32_t order) {
  const plan_model *m = g->m;
  matrix logits = graph_add_matrix(g, g->rows, m->experts, 4, "router_logits");
  graph_add_gemm(g, "router_logits", h, weight, logits, (gemm_args){.n = m->experts, .k = m->hidden, .y_kind = Y_F32, .order = order});
  return logits;
}

static routing add_router(graph *g, matrix logits, uint32_t bias, uint32_t order) {
  const plan_model *m = g->m;
  uint64_t pairs = g->rows * m->top_k;
  routing r = {graph_add_work(g, pairs * 4, "topk_id"), graph_add_work(g, pairs * 4, "topk_weight"),
               graph_add_work(g, (uint64_t)(m->experts + 1) * 4, "expert_first"), graph_add_work(g, pairs * 4, "row_token"),
               graph_add_work(g, pairs * 4, "pair_row"), 0};
  router_args a = {.experts = m->experts, .top_k = m->top_k, .groups = m->groups, .top_groups = m->top_groups, .scoring = m->scoring,
                   .group_mode = m->group_mode, .normalise = m->normalise, .scale = m->routed_scale};
  const draft_ref refs[] = {ARG(router_args, step, g->step, 0), ARG(router_args, logits, logits.buffer, 0), ARG(router_args, bias, bias, 0),
                            ARG(router_args, topk_id, r.topk_id, 0), ARG(router_args, topk_weight, r.topk_weight, 0),
                            ARG(router_args, expert_first, r.expert_first, 0), ARG(router_args, row_token, r.row_token, 0),
                            ARG(router_args, pair_row, r.pair_row, 0)};
  op_call call = {.kernel = OP_router, .what = "router", .args = &a, .args_bytes = sizeof a, .refs = refs, .ref_count = ARRAY_LEN(refs),
                  .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = ROUTER_SORTS_MAX};
  if (g->l->max_batch_tokens > ROUTER_SORTS_MAX) { /* a plan always has the sort as its own op, because audits run it alone */
    a.sorts = 1;
    a.order = order;
    graph_add_op_ordered(g, call, &a.order);
    call.rows_min = ROUTER_SORTS_MAX + 1;
  }
  a.sorts = 0;
  call.rows_max = g->l->max_batch_tokens;
  call.ref_count -= 3;
  graph_add_op_rows(g, call);
  r.sort_from = call.rows_min;
  return r;
}

/* With x and x_sorted it also copies the tokens' rows. */
static void add_moe_sort(graph *g, const routing *r, matrix x, matrix x_sorted, row_range rows) {
  moe_sort_args a = {.experts = g->m->experts, .top_k = g->m->top_k, .columns = x_sorted.stride};
  const draft_ref refs[] = {ARG(moe_sort_args, step, g->step, 0), ARG(moe_sort_args, topk_id, r->topk_id, 0),
                            ARG(moe_sort_args, expert_first, r->expert_first, 0), ARG(moe_sort_args, row_token, r->row_token, 0),
                            ARG(moe_sort_args, pair_row, r->pair_row, 0), ARG(moe_sort_args, x, x.buffer, x.offset),
                            ARG(moe_sort_args, x_sorted, x_sorted.buffer, x_sorted.offset)};
  graph_add_op_rows(g, (op_call){.kernel = OP_moe_sort, .what = "moe_sort", .args = &a, .args_bytes = sizeof a, .refs = refs,
                           .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = rows.min, .rows_max = rows.max});
}

/* row_token: DRAFT_NONE if x is in sorted order. */
static void add_moe_gemm(graph *g, const char *what, const routing *r, uint32_t row_token, product_rows *x, product_weight weight, matrix y,
                         row_range rows, moe_gemm_args a) {
  a.ldx = a.k = x->x.stride;
  a.experts = g->m->experts;
  a.top_k = g->m->top_k;
  fp8_moe_gemm_args f = {.n = a.n, .k = a.k, .experts = a.experts, .top_k = a.top_k, .y_kind = a.y_kind};
  const draft_ref refs[] = {ARG(moe_gemm_args, step, g->step, 0), ARG(moe_gemm_args, expert_first, r->expert_first, 0),
                            ARG(moe_gemm_args, row_token, row_token, 0), ARG(moe_gemm_args, x, x->x.buffer, x->x.offset),
                            ARG(moe_gemm_args, w, weight.w, 0), ARG(moe_gemm_args, y, y.buffer, y.offset)};
  const draft_ref scaled[] = {ARG(fp8_moe_gemm_args, step, g->step, 0), ARG(fp8_moe_gemm_args, expert_first, r->expert_first, 0),
                              ARG(fp8_moe_gemm_args, row_token, row_token, 0), ARG(fp8_moe_gemm_args, x, x->codes, 0),
                              ARG(fp8_moe_gemm_args, x_scale, x->scales, 0), ARG(fp8_moe_gemm_args, w, weight.w, 0),
                              ARG(fp8_moe_gemm_args, w_scale, weight.scales, 0), ARG(fp8_moe_gemm_args, y, y.buffer, y.offset)};
  op_call call = {.kernel = OP_moe_gemm, .what = what, .args = &a, .args_bytes = sizeof a, .refs = refs, .ref_count = ARRAY_LEN(refs),
                  .rows_kind = ROWS_TOKENS, .rows_min = rows.min, .rows_max = rows.max};
  if (weight.scales != DRAFT_NONE) {
    call.kernel = OP_fp8_moe_gemm;
    call.args = &f;
    call.args_bytes = sizeof f;
    call.refs = scaled;
    call.ref_count = ARRAY_LEN(scaled);
  }
  graph_add_op_rows(g, call);
}

/* With few rows, the experts' first product gathers them itself; with many, they are copied into sorted order before it. */
static row_range few_rows(const graph *g) {
  return (row_range){1, min_u32(specialise_gathered_rows(g->m->experts, g->m->top_k), g->l->max_batch_tokens)};
}
static row_range many_rows(const graph *g) { return (row_range){few_rows(g).max + 1, g->l->max_batch_tokens}; }

/* Returns the rows in sorted order, for steps of many tokens. */
static matrix add_sort(graph *g, const routing *r, matrix h) {
  const row_range few = {r->sort_from, few_rows(g).max}, many = many_rows(g);
  matrix none = {.buffer = DRAFT_NONE}, sorted = none;
  if (few.min <= few.max) add_moe_sort(g, r, none, none, few);
  if (many.min > many.max) return none;
  sorted = graph_add_matrix(g, g->rows * g->m->top_k, h.stride, 2, "experts x");
  add_moe_sort(g, r, h, sorted, many);
  return sorted;
}

static void add_experts_up(graph *g, const routing *r, product_rows *h, matrix sorted, product_weight weight, matrix activated) {
  const moe_gemm_args a = {.n = 2 * g->m->moe_inter, .y_kind = Y_SILU};
  const row_range many = many_rows(g);
  product_rows rows = graph_product_rows(sorted, "experts x");
  rows.mul = g->m->top_k;
  if (many.min <= many.max) graph_product_prepare(g, &rows, weight, many);
  add_moe_gemm(g, "experts gate_up", r, r->row_token, h, weight, activated, few_rows(g), a);
  if (many.min <= many.max) add_moe_gemm(g, "experts gate_up", r, DRAFT_NONE, &rows, weight, activated, many, a);
}

static matrix add_experts_down(graph *g, const routing *r, matrix activated, product_weight weight) {
  matrix y = graph_add_matrix(g, g->rows * g->m->top_k, g->m->hidden, 4, "experts down");
  product_rows rows = graph_product_rows(activated, "experts gate_up");
  rows.mul = g->m->top_k;
  graph_product_prepare(g, &rows, weight, graph_product_all(g));
  add_moe_gemm(g, "experts down", r, DRAFT_NONE, &rows, weight, y, graph_product_all(g),
               (moe_gemm_args){.n = g->m->hidden, .y_kind = Y_F32});
  return y;
}

/* The weights of all experts, in ascending id: [experts][2 * moe_inter][hidden] and [experts][hidden][moe_inter]. */
static void add_expert_weights(graph *g, moe *w) {
  const plan_model *m = g->m;
  const product_part up[] = {{"mlp.experts", "gate_proj", m->moe_inter, PRODUCT_EXPERTS, NULL},
                             {"mlp.experts", "up_proj", m->moe_inter, PRODUCT_EXPERTS, NULL}};
  const product_part down = {"mlp.experts", "down_proj", m->hidden, PRODUCT_EXPERTS, NULL};
  w->gate_up = graph_product_weight(g, "experts gate_up", up, 2, m->experts, m->hidden);
  w->down = graph_product_weight(g, "experts down", &down, 1, m->experts, m->moe_inter);
}

/* The next op waits for the ops of the side branch, whose first is `first`. Buffers used by ops in between stay alive until the join, so
 * that neither branch reuses bytes of the other. */
static void join_side(graph *g, uint32_t first) {
  g->branch = BRANCH_JOIN;
  for (uint32_t i = 0; i < g->plan->buffers.count; i++) {
    plan_buffer *b = draft_buffer_at(g->plan, i);
    if (b->region != REGION_WORK || b->first_op == UINT32_MAX || b->last_op < first) continue;
    b->first_op = min_u32(b->first_op, first);
    b->last_op = g->plan->ops.count;
  }
}

/* The shared experts need nothing of the routing. They run concurrently with it and with the experts or, in steps of one branch, between
 * its short ops, so that their weights are loaded meanwhile. */
static void add_moe(graph *g, product_rows *h) {
  const plan_model *m = g->m;
  uint64_t pairs = g->rows * m->top_k;
  uint32_t shared = DRAFT_NONE;
  matrix half = {0};
  moe w = {0};
  add_router_weights(g, &w);
  add_expert_weights(g, &w);
  bool has_side = m->shared_experts && g->layer + 1 < m->layers; /* the op after the last layer does not run in every step */
  const uint32_t inter = m->shared_experts * m->moe_inter;
  if (inter) w.shared = add_mlp_weights(g, "mlp.shared_experts", "shared ", inter, PRODUCT_SHARED_GATE_UP);
  graph_product_prepare(g, h, w.gate_up, graph_product_all(g)); /* for both branches */
  const uint32_t first = has_side ? ORDER_FIRST : ORDER_CHAIN, second = has_side ? ORDER_BESIDE : ORDER_CHAIN;
  uint32_t side = g->plan->ops.count;
  g->branch = has_side ? BRANCH_SIDE : BRANCH_MAIN;
  if (m->shared_experts) half = add_mlp_up(g, h, &w.shared, first);
  g->branch = BRANCH_MAIN;
  matrix logits = add_router_logits(g, h->x, w.router, second);
  g->branch = has_side ? BRANCH_SIDE : BRANCH_MAIN;
  if (m->shared_experts) shared = add_mlp_down(g, half, &w.shared, first).buffer;
  g->branch = BRANCH_MAIN;
  routing r = add_router(g, logits, w.bias, second);
  matrix sorted = add_sort(g, &r, h->x);
  matrix activated = graph_add_matrix(g, pairs, m->moe_inter, 2, "experts gate_up");
  add_experts_up(g, &r, h, sorted, w.gate_up, activated);
  matrix y = add_experts_down(g, &r, activated, w.down);
  if (has_side) join_side(g, side); /* joins before the next norm, which adds everything */
  g->adds = (addend){.delta = shared, .experts = y.buffer, .pair_row = r.pair_row, .topk_weight = r.topk_weight};
}

void graph_feed_add(graph *g) {
  const plan_model *m = g->m;
  product_rows h = graph_product_rows(graph_add_block_norm(g, "post_norm", "post_attention_layernorm.weight"), "post_norm");
  if (g->layer >= m->dense_layers) {
    add_moe(g, &h);
    return;
  }
  mlp dense = add_mlp_weights(g, "mlp", "", m->inter, PRODUCT_GATE_UP);
  g->adds.delta = add_mlp_down(g, add_mlp_up(g, &h, &dense, ORDER_CHAIN), &dense, ORDER_CHAIN).buffer;
}
