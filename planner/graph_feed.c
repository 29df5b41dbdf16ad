/* graph_feed.c - see graph_feed.h. Dense parts first, then routing and experts.
 *
 * Must not know memory offsets. Read next: specialise.h. */
#include "graph_feed.h"
#include <stdio.h>
#include "graph_product.h"
#include "graph_ranks.h"
#include "graph_rows.h"
#include "model_config.h"
#include "specialise.h"

typedef struct mlp { /* the weights of a dense feed-forward part */
  const char *label;
  uint32_t inter, own_inter, own_hidden; /* own: columns of a rank */
  product_weight gate_up, down;
} mlp;

/* of: "mlp" or "mlp.shared_experts"; its products: gate_up and the one after it in enum config_product. */
static mlp add_mlp_weights(graph *g, const char *of, const char *label, uint32_t inter, uint32_t gate_up) {
  const plan_model *m = g->m;
  char what[NAME_BYTES_MAX];
  mlp part = {.label = label, .inter = inter};
  part.own_inter = graph_ranks_share(g, inter, graph_product_unit(g));
  part.own_hidden = graph_ranks_share(g, m->hidden, graph_product_unit(g));
  const bool is_fused = g->config->fuses_gate_up, has_bias = g->plan->grouped.has_bias & BIAS_FEED;
  const product_part up[] = {{.of = of, .leaf = is_fused ? "gate_up_proj" : "gate_proj", .rows = inter, .product = gate_up,
                              .own = part.own_inter, .whole = is_fused ? 2 * inter : 0, .has_bias = has_bias},
                             {.of = of, .leaf = is_fused ? "gate_up_proj" : "up_proj", .rows = inter, .product = gate_up,
                              .own = part.own_inter, .row0 = is_fused ? inter : 0, .whole = is_fused ? 2 * inter : 0,
                              .has_bias = has_bias}};
  const product_part down = {.of = of, .leaf = "down_proj", .rows = m->hidden, .product = gate_up + 1, .own = part.own_hidden,
                             .has_bias = has_bias};
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
  matrix activated = graph_add_matrix(g, g->rows, part->own_inter, 2, what);
  activated.part = part->own_inter < part->inter ? part->own_inter : 0;
  graph_product_add(g, what, h, part->gate_up, activated, (gemm_args){.n = 2 * part->own_inter, .y_kind = Y_SILU, .order = order});
  return activated;
}

/* activated: whole rows. Returns fp32 [rows][own_hidden]. */
static matrix add_mlp_down(graph *g, product_rows *activated, const mlp *part, uint32_t order) {
  char what[NAME_BYTES_MAX];
  snprintf(what, sizeof what, "%sdown", part->label);
  matrix out = graph_add_matrix(g, g->rows, part->own_hidden, 4, what);
  out.part = part->own_hidden < g->m->hidden ? part->own_hidden : 0;
  graph_product_add(g, what, activated, part->down, out, (gemm_args){.n = part->own_hidden, .y_kind = Y_F32, .order = order});
  return out;
}

/* The norm behind this layer is not before a block. */
static bool is_last(const graph *g) { return g->layer + 1 >= g->m->layers; }

typedef struct routing { /* buffers of the router's decisions */
  uint32_t topk_id, topk_weight, expert_first, row_token, pair_row;
  uint32_t sort_from; /* row count from which on the pairs are sorted by their own op */
} routing;

typedef struct moe { /* the weights of a layer with experts */
  uint32_t router, bias; /* bias: DRAFT_NONE if the model has none */
  product_weight gate_up, down;
  uint32_t own_inter, own_hidden; /* columns of a rank */
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
  const uint32_t sorts_max = g->divides ? min_u32(ROUTER_SORTS_MAX, graph_rows_whole_max(g)) : ROUTER_SORTS_MAX;
  op_call call = {.kernel = OP_router, .what = "router", .args = &a, .args_bytes = sizeof a, .refs = refs, .ref_count = ARRAY_LEN(refs),
                  .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = sorts_max};
  if (g->l->max_batch_tokens > sorts_max) { /* a plan always has the sort as its own op, because audits run it alone */
    a.sorts = 1;
    a.order = order;
    graph_add_op_ordered(g, call, &a.order);
    call.rows_min = sorts_max + 1;
  }
  a.sorts = 0;
  call.rows_max = g->l->max_batch_tokens;
  call.ref_count -= 3;
  graph_add_op_rows(g, call);
  r.sort_from = call.rows_min;
  return r;
}

/* With x and x_sorted it also copies the tokens' rows, whose stride is in words of 16 bits. */
static void add_moe_sort(graph *g, const char *what, const routing *r, matrix x, matrix x_sorted, row_range rows) {
  moe_sort_args a = {.experts = g->m->experts, .top_k = g->m->top_k, .columns = x_sorted.stride};
  const draft_ref refs[] = {ARG(moe_sort_args, step, g->step, 0), ARG(moe_sort_args, topk_id, r->topk_id, 0),
                            ARG(moe_sort_args, expert_first, r->expert_first, 0), ARG(moe_sort_args, row_token, r->row_token, 0),
                            ARG(moe_sort_args, pair_row, r->pair_row, 0), ARG(moe_sort_args, x, x.buffer, x.offset),
                            ARG(moe_sort_args, x_sorted, x_sorted.buffer, x_sorted.offset)};
  graph_add_op_rows(g, (op_call){.kernel = OP_moe_sort, .what = what, .args = &a, .args_bytes = sizeof a, .refs = refs,
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
                  .rows_kind = ROWS_TOKENS, .rows_min = rows.min, .rows_max = rows.max, .rank_columns = y.part};
  if (graph_product_is_e4m3(weight)) {
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

/* Returns the rows in sorted order, for steps of many tokens. has_codes: in steps that divide rows, ranks have codes of all rows and no
 * others. */
static product_rows add_sort(graph *g, const routing *r, const product_rows *h, bool has_codes) {
  const row_range few = {r->sort_from, few_rows(g).max}, many = many_rows(g);
  const row_range plain = {many.min, has_codes ? graph_rows_whole_max(g) : many.max}, coded = {max_u32(many.min, plain.max + 1), many.max};
  const matrix none = {.buffer = DRAFT_NONE};
  product_rows rows = graph_product_rows(none, "experts x");
  rows.mul = g->m->top_k;
  if (few.min <= few.max) add_moe_sort(g, "moe_sort", r, none, none, few);
  if (many.min > many.max) return rows;
  rows.x.stride = h->x.stride;
  if (plain.min <= plain.max) {
    rows.x = graph_add_matrix(g, g->rows * g->m->top_k, h->x.stride, 2, "experts x");
    add_moe_sort(g, "moe_sort", r, h->x, rows.x, plain);
  }
  if (!has_codes) return rows;
  graph_product_add_codes(g, &rows);
  if (plain.min <= plain.max) graph_product_add_quantize(g, &rows, plain);
  const uint32_t code_words = h->x.stride / 2, scale_words = h->x.stride / SCALE_COLUMNS * 2;
  add_moe_sort(g, "moe_sort", r, (matrix){h->codes, code_words, 0, 0}, (matrix){rows.codes, code_words, 0, 0}, coded);
  add_moe_sort(g, "moe_sort scales", r, (matrix){h->scales, scale_words, 0, 0}, (matrix){rows.scales, scale_words, 0, 0}, coded);
  return rows;
}

static void add_experts_up(graph *g, const routing *r, product_rows *h, product_rows rows, product_weight weight, matrix activated) {
  const moe_gemm_args a = {.n = 2 * activated.stride, .y_kind = Y_SILU};
  const row_range many = many_rows(g);
  if (many.min <= many.max && graph_product_is_e4m3(weight)) graph_product_quantize(g, &rows, many);
  add_moe_gemm(g, "experts gate_up", r, r->row_token, h, weight, activated, few_rows(g), a);
  if (many.min <= many.max) add_moe_gemm(g, "experts gate_up", r, DRAFT_NONE, &rows, weight, activated, many, a);
}

static matrix add_experts_down(graph *g, const routing *r, product_rows *activated, const moe *w) {
  matrix y = graph_add_matrix(g, g->rows * g->m->top_k, w->own_hidden, 4, "experts down");
  y.part = w->own_hidden < g->m->hidden ? w->own_hidden : 0;
  if (graph_product_is_e4m3(w->down)) graph_product_quantize(g, activated, graph_product_all(g));
  add_moe_gemm(g, "experts down", r, DRAFT_NONE, activated, w->down, y, graph_product_all(g),
               (moe_gemm_args){.n = w->own_hidden, .y_kind = Y_F32});
  return y;
}

/* The weights of all experts, in ascending id: [experts][2 * own_inter][hidden] and [experts][own_hidden][moe_inter]. */
static void add_expert_weights(graph *g, moe *w) {
  const plan_model *m = g->m;
  w->own_inter = graph_ranks_share(g, m->moe_inter, graph_product_unit(g));
  w->own_hidden = graph_ranks_share(g, m->hidden, graph_product_unit(g));
  const product_part up[] = {{"mlp.experts", "gate_proj", m->moe_inter, PRODUCT_EXPERTS, NULL, w->own_inter, 0, 0, false},
                             {"mlp.experts", "up_proj", m->moe_inter, PRODUCT_EXPERTS, NULL, w->own_inter, 0, 0, false}};
  const product_part down = {"mlp.experts", "down_proj", m->hidden, PRODUCT_EXPERTS, NULL, w->own_hidden, 0, 0, false};
  w->gate_up = graph_product_weight(g, "experts gate_up", up, 2, m->experts, m->hidden);
  w->down = graph_product_weight(g, "experts down", &down, 1, m->experts, m->moe_inter);
}

/* The token's sum of all experts, of the columns that a rank has, then of all columns: with few rows by the next norm. shared: DRAFT_NONE
 * if there is none; side: first op of the side branch, or UINT32_MAX. */
static void add_fold(graph *g, const routing *r, matrix y, uint32_t shared, uint32_t gate, uint32_t side) {
  const addend own = {.delta = shared, .experts = y.buffer, .pair_row = r->pair_row, .topk_weight = r->topk_weight, .gate = DRAFT_NONE};
  const bool is_whole = is_last(g) || gate != DRAFT_NONE; /* a norm that exchanges knows no gate */
  const uint32_t rows_min = (is_whole ? 0 : graph_ranks_own(g, own, y.stride, side)) + 1;
  if (rows_min > g->l->max_batch_tokens) return;
  matrix sum = graph_add_matrix(g, g->rows, y.stride, 4, "experts sum");
  sum.part = y.part;
  moe_fold_args a = {.columns = y.stride, .top_k = g->m->top_k, .delta_stride = y.stride, .y_stride = y.stride,
                    .gate_stride = gate == DRAFT_NONE ? 0 : GRAPH_GATE_COLUMNS};
  const draft_ref refs[] = {ARG(moe_fold_args, step, g->step, 0), ARG(moe_fold_args, experts, y.buffer, 0),
                            ARG(moe_fold_args, pair_row, r->pair_row, 0), ARG(moe_fold_args, topk_weight, r->topk_weight, 0),
                            ARG(moe_fold_args, delta, shared, 0), ARG(moe_fold_args, gate, gate, 0),
                            ARG(moe_fold_args, y, sum.buffer, 0)};
  if (side != UINT32_MAX) graph_add_join(g, side);
  graph_add_op_rows(g, (op_call){.kernel = OP_moe_fold, .what = "experts sum", .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = rows_min,
                                 .rows_max = g->l->max_batch_tokens, .rank_columns = y.part});
  g->branch = BRANCH_MAIN;
  g->adds.delta = graph_ranks_gather_from(g, "experts sum exchange", sum, rows_min, !is_last(g)).buffer;
}

typedef struct moe_state { /* of a layer with experts under construction */
  const moe *w;
  product_rows half, activated; /* of the shared experts and of the others */
  uint32_t side;                /* first op of the side branch             */
  uint32_t shared_order;        /* where the points of the shared down product are, with several ranks */
  bool has_side;
} moe_state;

static uint32_t add_shared_down(graph *g, moe_state *s, uint32_t order) {
  if (!g->m->shared_experts) return DRAFT_NONE;
  g->branch = s->has_side ? BRANCH_SIDE : BRANCH_MAIN;
  g->point_order = s->shared_order;
  const uint32_t shared = add_mlp_down(g, &s->half, &s->w->shared, order).buffer;
  g->point_order = 0;
  g->branch = BRANCH_MAIN;
  return shared;
}

/* Both activations become whole by one exchange, where the branches meet. */
static void exchange_activations(graph *g, moe_state *s) {
  const bool is_shared_scaled = graph_product_is_e4m3(s->w->shared.down);
  const divided_rows all[] = {{&s->activated, graph_product_is_e4m3(s->w->down), 0}, {&s->half, is_shared_scaled, s->shared_order}};
  if (s->has_side) graph_add_join(g, s->side);
  graph_ranks_gather_rows(g, "experts gate_up exchange", all, g->m->shared_experts ? 2 : 1);
  s->side = g->plan->ops.count;
}

/* The gate of the shared expert for every token, or DRAFT_NONE. */
static uint32_t add_shared_gate(graph *g, matrix h) {
  if (!g->plan->grouped.shared_gate) return DRAFT_NONE;
  const uint32_t weight = graph_add_weight_begin(g, "shared gate weight");
  for (uint32_t i = 0; i < GRAPH_GATE_COLUMNS; i++)
    graph_add_tensor(g, "mlp.shared_expert_gate.weight", graph_whole(1, g->m->hidden));
  const matrix gate = graph_add_matrix(g, g->rows, GRAPH_GATE_COLUMNS, 4, "shared gate");
  graph_add_gemm(g, "shared gate", h, weight, gate, (gemm_args){.n = GRAPH_GATE_COLUMNS, .k = g->m->hidden, .y_kind = Y_F32});
  return gate.buffer;
}

/* In steps that divide rows: each rank routes its own, if what it then has of a row is whole words. */
static bool divides_router(const graph *g) { return graph_rows_has(g) && g->pass == 0 && g->m->top_k % 2 == 0; }

static rows_table gate_table(uint32_t gate) {
  const uint32_t bytes = gate == DRAFT_NONE ? 0 : GRAPH_GATE_COLUMNS * 4;
  return (rows_table){gate, bytes, 0, bytes};
}

/* The rows of the block's input, of which ranks then have codes alone if nothing but scaled products reads all of them. Returns whether it
 * is so. */
static bool gather_rows(graph *g, product_rows *h, const moe *w, uint32_t gate) {
  const bool is_scaled = graph_product_is_e4m3(w->gate_up) && (!g->m->shared_experts || graph_product_is_e4m3(w->shared.gate_up));
  const bool are_whole = g->m->hidden / SCALE_COLUMNS * 2 % 8 == 0; /* what moe_sort copies of a row's scales */
  const bool has_codes = g->divides && divides_router(g) && is_scaled && are_whole;
  const rows_table more = gate_table(gate);
  graph_rows_gather(g, "post_norm exchange", h, has_codes, &more, 1);
  return has_codes;
}

static void gather_routing(graph *g, const routing *r) {
  const uint32_t bytes = g->m->top_k * 4;
  const rows_table tables[] = {{r->topk_id, bytes, 0, bytes}, {r->topk_weight, bytes, 0, bytes}};
  graph_rows_gather(g, "router exchange", NULL, false, tables, ARRAY_LEN(tables));
}

/* The shared experts need nothing of the routing. They run concurrently with it and with the experts or, in steps of one branch, between
 * its short ops, so that their weights are loaded meanwhile. */
static void add_moe(graph *g, product_rows *h) {
  const plan_model *m = g->m;
  moe w = {.shared.down = {.scales = DRAFT_NONE, .bias = DRAFT_NONE}};
  add_router_weights(g, &w);
  add_expert_weights(g, &w);
  const uint32_t inter = m->shared_experts * m->moe_inter;
  const char *shared_name = g->plan->grouped.shared_gate ? "mlp.shared_expert" : "mlp.shared_experts";
  if (inter) w.shared = add_mlp_weights(g, shared_name, "shared ", inter, PRODUCT_SHARED_GATE_UP);
  const uint32_t gate = add_shared_gate(g, h->x);
  const bool has_codes = gather_rows(g, h, &w, gate);
  if (graph_product_is_e4m3(w.gate_up)) graph_product_quantize(g, h, graph_product_all(g)); /* for both branches */
  /* The norm behind the last layer, where branches meet if the experts' sum has no op of its own, does not run in every step. */
  const bool is_divided = w.own_hidden < m->hidden;
  const bool may_branch = g->pass == 0 && (!is_last(g) || is_divided); /* drafts may be of one row in steps of more */
  moe_state s = {.w = &w, .side = g->plan->ops.count, .has_side = m->shared_experts && may_branch};
  const uint32_t first = s.has_side ? ORDER_FIRST : ORDER_CHAIN, second = s.has_side ? ORDER_BESIDE : ORDER_CHAIN;
  uint32_t shared = DRAFT_NONE;
  g->branch = s.has_side ? BRANCH_SIDE : BRANCH_MAIN;
  if (inter) s.half = graph_product_rows(add_mlp_up(g, h, &w.shared, first), "shared gate_up");
  g->branch = BRANCH_MAIN;
  if (divides_router(g)) graph_rows_resume(g);
  matrix logits = add_router_logits(g, h->x, w.router, second);
  graph_rows_pause(g);
  const bool exchanges = w.own_inter < m->moe_inter || w.shared.own_inter < inter;
  if (exchanges) s.shared_order = 2 * g->plan->ops.count; /* before those of the next op */
  else shared = add_shared_down(g, &s, first);
  if (divides_router(g)) graph_rows_resume(g);
  routing r = add_router(g, logits, w.bias, exchanges ? ORDER_CHAIN : second);
  if (divides_router(g)) gather_routing(g, &r);
  product_rows sorted = add_sort(g, &r, h, has_codes);
  matrix activated = graph_add_matrix(g, g->rows * m->top_k, w.own_inter, 2, "experts gate_up");
  activated.part = w.own_inter < m->moe_inter ? w.own_inter : 0;
  s.activated = graph_product_rows(activated, "experts gate_up");
  s.activated.mul = m->top_k;
  add_experts_up(g, &r, h, sorted, w.gate_up, activated);
  if (exchanges) {
    exchange_activations(g, &s);
    shared = add_shared_down(g, &s, ORDER_CHAIN);
  }
  matrix y = add_experts_down(g, &r, &s.activated, &w);
  /* Branches join before the next norm or sum, which adds everything. */
  if (y.part) {
    add_fold(g, &r, y, shared, gate, s.has_side ? s.side : UINT32_MAX);
    return;
  }
  if (s.has_side) graph_add_join(g, s.side);
  g->adds = (addend){.delta = shared, .experts = y.buffer, .pair_row = r.pair_row, .topk_weight = r.topk_weight, .gate = gate};
}

/* A layer without experts. */
static void add_dense(graph *g, product_rows *h) {
  const mlp w = add_mlp_weights(g, "mlp", "", g->m->inter, PRODUCT_GATE_UP);
  graph_rows_gather(g, "post_norm exchange", h, graph_product_is_e4m3(w.gate_up), NULL, 0);
  product_rows activated = graph_product_rows(add_mlp_up(g, h, &w, ORDER_CHAIN), "gate_up");
  graph_ranks_gather_rows(g, "gate_up exchange", &(divided_rows){&activated, graph_product_is_e4m3(w.down), 0}, 1);
  const char *norm = g->plan->grouped.norms == NORMS_AROUND ? "post_mlp_layernorm.weight" : "post_feedforward_layernorm.weight";
  graph_ranks_end_block(g, "down", norm, add_mlp_down(g, &activated, &w, ORDER_CHAIN), is_last(g));
}

void graph_feed_add(graph *g) {
  graph_rows_begin(g);
  product_rows h = graph_product_rows(graph_add_block_norm(g, "post_norm", "post_attention_layernorm.weight"), "post_norm");
  if (g->m->experts && g->layer >= g->m->dense_layers) add_moe(g, &h);
  else add_dense(g, &h);
}
