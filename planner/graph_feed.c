/* graph_feed.c - see graph_feed.h. Dense parts first, then routing and experts.
 *
 * Must not know where anything lies in memory. Read next: specialise.h. */
#include "graph_feed.h"
#include <stdio.h>
#include "model_config.h"
#include "specialise.h"

typedef struct mlp { /* a dense feed-forward part: its weights */
  const char *label;
  uint32_t inter, gate_up, down;
} mlp;

/* prefix: "mlp" or "mlp.shared_experts". */
static mlp add_mlp_weights(graph *g, const char *prefix, const char *label, uint32_t inter) {
  const plan_model *m = g->m;
  char name[NAME_BYTES_MAX], what[NAME_BYTES_MAX];
  snprintf(what, sizeof what, "%sgate_up weight", label);
  mlp part = {.label = label, .inter = inter, .gate_up = graph_add_weight_begin(g, what)};
  snprintf(name, sizeof name, "%s.gate_proj.weight", prefix);
  graph_add_tensor(g, name, graph_whole(inter, m->hidden));
  snprintf(name, sizeof name, "%s.up_proj.weight", prefix);
  graph_add_tensor(g, name, graph_whole(inter, m->hidden));
  snprintf(what, sizeof what, "%sdown weight", label);
  snprintf(name, sizeof name, "%s.down_proj.weight", prefix);
  part.down = graph_add_weight(g, what, name, m->hidden, inter);
  return part;
}

/* gate and up as one product with its silu. */
static matrix add_mlp_up(graph *g, matrix h, const mlp *part, uint32_t order) {
  char what[NAME_BYTES_MAX];
  snprintf(what, sizeof what, "%sgate_up", part->label);
  matrix activated = graph_add_matrix(g, g->rows, part->inter, 2, what);
  graph_add_gemm(g, what, h, part->gate_up, activated,
                 (gemm_args){.n = 2 * part->inter, .k = g->m->hidden, .y_kind = Y_SILU, .order = order});
  return activated;
}

/* Returns fp32 [rows][hidden]. */
static matrix add_mlp_down(graph *g, matrix activated, const mlp *part, uint32_t order) {
  char what[NAME_BYTES_MAX];
  snprintf(what, sizeof what, "%sdown", part->label);
  matrix out = graph_add_matrix(g, g->rows, g->m->hidden, 4, what);
  graph_add_gemm(g, what, activated, part->down, out, (gemm_args){.n = g->m->hidden, .k = part->inter, .y_kind = Y_F32, .order = order});
  return out;
}

typedef struct routing { /* buffers of the router's decisions */
  uint32_t topk_id, topk_weight, expert_first, row_token, pair_row;
  uint32_t sort_from; /* rows from which the pairs are sorted by an op of its own */
} routing;

typedef struct row_range { /* launch rows; none where min lies above max */
  uint32_t min, max;
} row_range;

typedef struct moe { /* the weights of a layer with experts */
  uint32_t router, bias, gate_up, down; /* bias: DRAFT_NONE without it */
  mlp shared;
} moe;

static void add_router_weights(graph *g, moe *w) {
  const plan_model *m = g->m;
  w->router = graph_add_weight(g, "router weight", "mlp.gate.weight", m->experts, m->hidden);
  w->bias = DRAFT_NONE;
  if (!model_config_has_bias(m)) return;
  plan_tensor tensor = graph_whole(1, m->experts);
  tensor.dtype = DTYPE_F32;
  w->bias = graph_add_weight_begin(g, "router bias");
  graph_add_tensor(g, "mlp.gate.e_score_correction_bias", tensor);
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
  if (g->l->max_batch_tokens > ROUTER_SORTS_MAX) { /* a plan always has the sort as an op of its own: audits run it alone */
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

/* With x and x_sorted: the tokens' rows as well. */
static void add_moe_sort(graph *g, const routing *r, matrix x, matrix x_sorted, row_range rows) {
  moe_sort_args a = {.experts = g->m->experts, .top_k = g->m->top_k, .columns = x_sorted.stride};
  const draft_ref refs[] = {ARG(moe_sort_args, step, g->step, 0), ARG(moe_sort_args, topk_id, r->topk_id, 0),
                            ARG(moe_sort_args, expert_first, r->expert_first, 0), ARG(moe_sort_args, row_token, r->row_token, 0),
                            ARG(moe_sort_args, pair_row, r->pair_row, 0), ARG(moe_sort_args, x, x.buffer, x.offset),
                            ARG(moe_sort_args, x_sorted, x_sorted.buffer, x_sorted.offset)};
  graph_add_op_rows(g, (op_call){.kernel = OP_moe_sort, .what = "moe_sort", .args = &a, .args_bytes = sizeof a, .refs = refs,
                           .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = rows.min, .rows_max = rows.max});
}

static void add_moe_gemm(graph *g, const char *what, const routing *r, uint32_t row_token, matrix x, uint32_t weight, matrix y,
                         row_range rows, moe_gemm_args a) {
  a.ldx = a.k = x.stride;
  a.experts = g->m->experts;
  a.top_k = g->m->top_k;
  const draft_ref refs[] = {ARG(moe_gemm_args, step, g->step, 0), ARG(moe_gemm_args, expert_first, r->expert_first, 0),
                            ARG(moe_gemm_args, row_token, row_token, 0), ARG(moe_gemm_args, x, x.buffer, x.offset),
                            ARG(moe_gemm_args, w, weight, 0), ARG(moe_gemm_args, y, y.buffer, y.offset)};
  graph_add_op_rows(g, (op_call){.kernel = OP_moe_gemm, .what = what, .args = &a, .args_bytes = sizeof a, .refs = refs,
                           .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = rows.min, .rows_max = rows.max});
}

/* Few rows are gathered by the experts' first product itself; many are copied into sorted order before it. */
static row_range few_rows(const graph *g) {
  return (row_range){1, min_u32(specialise_gathered_rows(g->m->experts, g->m->top_k), g->l->max_batch_tokens)};
}
static row_range many_rows(const graph *g) { return (row_range){few_rows(g).max + 1, g->l->max_batch_tokens}; }

/* Returns the rows of many tokens in sorted order. */
static matrix add_sort(graph *g, const routing *r, matrix h) {
  const row_range few = {r->sort_from, few_rows(g).max}, many = many_rows(g);
  matrix none = {.buffer = DRAFT_NONE}, sorted = none;
  if (few.min <= few.max) add_moe_sort(g, r, none, none, few);
  if (many.min > many.max) return none;
  sorted = graph_add_matrix(g, g->rows * g->m->top_k, h.stride, 2, "experts x");
  add_moe_sort(g, r, h, sorted, many);
  return sorted;
}

static void add_experts_up(graph *g, const routing *r, matrix h, matrix sorted, uint32_t weight, matrix activated) {
  const moe_gemm_args a = {.n = 2 * g->m->moe_inter, .y_kind = Y_SILU};
  const row_range many = many_rows(g);
  add_moe_gemm(g, "experts gate_up", r, r->row_token, h, weight, activated, few_rows(g), a);
  if (many.min <= many.max) add_moe_gemm(g, "experts gate_up", r, DRAFT_NONE, sorted, weight, activated, many, a);
}

/* The weights of all experts, in ascending id: [experts][2 * moe_inter][hidden] and [experts][hidden][moe_inter]. */
static void add_expert_weights(graph *g, uint32_t *gate_up, uint32_t *down) {
  const plan_model *m = g->m;
  char name[NAME_BYTES_MAX];
  *gate_up = graph_add_weight_begin(g, "experts gate_up weight");
  for (uint32_t e = 0; e < m->experts; e++) {
    snprintf(name, sizeof name, "mlp.experts.%u.gate_proj.weight", e);
    graph_add_tensor(g, name, graph_whole(m->moe_inter, m->hidden));
    snprintf(name, sizeof name, "mlp.experts.%u.up_proj.weight", e);
    graph_add_tensor(g, name, graph_whole(m->moe_inter, m->hidden));
  }
  *down = graph_add_weight_begin(g, "experts down weight");
  for (uint32_t e = 0; e < m->experts; e++) {
    snprintf(name, sizeof name, "mlp.experts.%u.down_proj.weight", e);
    graph_add_tensor(g, name, graph_whole(m->hidden, m->moe_inter));
  }
}

/* The op that is added next waits for the ops of the side branch, the first of which is `first`. What ops between these use lives as long
 * as the branches are apart: no byte of one is used again for the other. */
static void join_side(graph *g, uint32_t first) {
  g->branch = BRANCH_JOIN;
  for (uint32_t i = 0; i < g->plan->buffers.count; i++) {
    plan_buffer *b = draft_buffer_at(g->plan, i);
    if (b->region != REGION_WORK || b->first_op == UINT32_MAX || b->last_op < first) continue;
    b->first_op = min_u32(b->first_op, first);
    b->last_op = g->plan->ops.count;
  }
}

/* The shared experts need nothing of the routing: they run beside it and the experts or, in steps of one branch, between its short ops, so
 * that their weights are on their way meanwhile. */
static void add_moe(graph *g, matrix h) {
  const plan_model *m = g->m;
  uint64_t pairs = g->rows * m->top_k;
  uint32_t shared = DRAFT_NONE;
  matrix half = {0};
  moe w = {0};
  add_router_weights(g, &w);
  add_expert_weights(g, &w.gate_up, &w.down);
  bool beside = m->shared_experts && g->layer + 1 < m->layers; /* what follows the last layer does not run in every step */
  if (m->shared_experts) w.shared = add_mlp_weights(g, "mlp.shared_experts", "shared ", m->shared_experts * m->moe_inter);
  const uint32_t first = beside ? ORDER_FIRST : ORDER_CHAIN, second = beside ? ORDER_BESIDE : ORDER_CHAIN;
  uint32_t side = g->plan->ops.count;
  g->branch = beside ? BRANCH_SIDE : BRANCH_MAIN;
  if (m->shared_experts) half = add_mlp_up(g, h, &w.shared, first);
  g->branch = BRANCH_MAIN;
  matrix logits = add_router_logits(g, h, w.router, second);
  g->branch = beside ? BRANCH_SIDE : BRANCH_MAIN;
  if (m->shared_experts) shared = add_mlp_down(g, half, &w.shared, first).buffer;
  g->branch = BRANCH_MAIN;
  routing r = add_router(g, logits, w.bias, second);
  matrix sorted = add_sort(g, &r, h);
  matrix activated = graph_add_matrix(g, pairs, m->moe_inter, 2, "experts gate_up");
  add_experts_up(g, &r, h, sorted, w.gate_up, activated);
  matrix y = graph_add_matrix(g, pairs, m->hidden, 4, "experts down");
  add_moe_gemm(g, "experts down", &r, DRAFT_NONE, activated, w.down, y, (row_range){1, g->l->max_batch_tokens},
               (moe_gemm_args){.n = m->hidden, .y_kind = Y_F32});
  if (beside) join_side(g, side); /* with the next norm, which adds all of it */
  g->adds = (addend){.delta = shared, .experts = y.buffer, .pair_row = r.pair_row, .topk_weight = r.topk_weight};
}

void graph_feed_add(graph *g) {
  const plan_model *m = g->m;
  matrix h = graph_add_block_norm(g, "post_norm", "post_attention_layernorm.weight");
  if (g->layer >= m->dense_layers) {
    add_moe(g, h);
    return;
  }
  mlp dense = add_mlp_weights(g, "mlp", "", m->inter);
  g->adds.delta = add_mlp_down(g, add_mlp_up(g, h, &dense, ORDER_CHAIN), &dense, ORDER_CHAIN).buffer;
}
