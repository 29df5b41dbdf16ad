/* graph_add.c - see graph_add.h.
 *
 * Ops name their buffers here, which gives buffers their lifetimes; the specialiser chooses the ops' alternatives. Read next:
 * specialise.h. */
#include "graph_add.h"
#include <stdio.h>
#include <string.h>
#include "graph_ranks.h"
#include "graph_rows.h"
#include "specialise.h"

/* === Buffers and weights ================================================================================================ */

static uint32_t name_of(graph *g, const char *what) {
  return g->layer == UINT32_MAX ? draft_string(g->plan, "%s", what) : draft_string(g->plan, "layer %u %s", g->layer, what);
}

/* The prediction layer computes one draft after the other. */
static uint32_t op_name(graph *g, const char *what) {
  return g->pass ? draft_string(g->plan, "draft %u %s", g->pass, what) : name_of(g, what);
}

uint32_t graph_add_fixed(graph *g, uint32_t region, uint64_t bytes, const char *what) {
  return draft_buffer(g->plan, region, bytes, name_of(g, what));
}

uint32_t graph_add_work(graph *g, uint64_t bytes, const char *what) {
  uint32_t buffer = graph_add_fixed(g, REGION_WORK, bytes, what);
  plan_buffer *added = draft_buffer_at(g->plan, buffer);
  added->first_op = UINT32_MAX;
  added->last_op = 0;
  return buffer;
}

matrix graph_add_matrix(graph *g, uint64_t rows, uint32_t columns, uint32_t element_bytes, const char *what) {
  return (matrix){.buffer = graph_add_work(g, rows * columns * element_bytes, what), .stride = columns};
}

/* The next weight of the draft section, which its first pass has added. */
static uint32_t weight_again(graph *g, const char *what) {
  char name[NAME_BYTES_MAX];
  snprintf(name, sizeof name, "layer %u %s", g->layer, what);
  while (draft_buffer_at(g->plan, g->next_weight)->region != REGION_WEIGHTS) g->next_weight++;
  ASSERT(strcmp(draft_string_at(g->plan, draft_buffer_at(g->plan, g->next_weight)->name), name) == 0);
  return g->next_weight++;
}

uint32_t graph_add_weight_begin(graph *g, const char *what) {
  if (g->pass > 1) return weight_again(g, what);
  uint32_t buffer = graph_add_fixed(g, REGION_WEIGHTS, 0, what);
  g->weight_bytes = align_up(g->weight_bytes, 256);
  draft_buffer_at(g->plan, buffer)->offset = g->weight_bytes;
  return buffer;
}

/* Name of a tensor of the current layer. */
static uint32_t tensor_name(graph *g, const char *name) {
  char full[NAME_BYTES_MAX];
  int length = g->layer == UINT32_MAX ? snprintf(full, sizeof full, "%s", name)
                                      : snprintf(full, sizeof full, "model.layers.%u.%s", g->layer, name);
  ASSERT(length > 0 && (size_t)length < sizeof full);
  return draft_text(g->plan, full);
}

static void add_tensor(graph *g, plan_tensor tensor) {
  static const uint32_t ELEMENT_BYTES[] = {[DTYPE_BF16] = 2, [DTYPE_F32] = 4, [DTYPE_E4M3] = 1};
  if (g->pass > 1) return;
  tensor.offset = g->weight_bytes;
  uint64_t bytes = (uint64_t)tensor.row_count * tensor.batches * tensor.cols * ELEMENT_BYTES[tensor.dtype];
  *(plan_tensor *)draft_append(&g->plan->tensors, 1) = tensor;
  g->weight_bytes += bytes;
  draft_buffer_at(g->plan, g->plan->buffers.count - 1)->bytes += bytes;
}

void graph_add_tensor(graph *g, const char *name, plan_tensor tensor) {
  tensor.name = tensor_name(g, name);
  tensor.scale_name = PLAN_NO_SCALE;
  add_tensor(g, tensor);
}

void graph_add_module(graph *g, const char *module, bool is_scaled, plan_tensor tensor) {
  char name[NAME_BYTES_MAX];
  snprintf(name, sizeof name, "%s.weight", module);
  tensor.name = tensor_name(g, name);
  snprintf(name, sizeof name, "%s.weight_scale_inv", module);
  tensor.scale_name = is_scaled ? tensor_name(g, name) : PLAN_NO_SCALE;
  add_tensor(g, tensor);
}

uint32_t graph_add_weight(graph *g, const char *what, const char *name, uint32_t rows, uint32_t cols) {
  uint32_t buffer = graph_add_weight_begin(g, what);
  graph_add_tensor(g, name, graph_whole(rows, cols));
  return buffer;
}

uint32_t graph_add_vector(graph *g, const char *what, const char *name, uint32_t cols) {
  plan_tensor tensor = graph_whole(1, cols);
  tensor.dtype = DTYPE_F32;
  uint32_t buffer = graph_add_weight_begin(g, what);
  graph_add_tensor(g, name, tensor);
  return buffer;
}

/* === Ops ================================================================================================================ */

static void use(graph *g, uint32_t buffer, uint32_t op) {
  plan_buffer *used = draft_buffer_at(g->plan, buffer);
  if (used->region != REGION_WORK) return;
  used->first_op = min_u32(used->first_op, op);
  used->last_op = max_u32(used->last_op, op);
}

/* The launch rows of an op. */
static uint32_t kind_of(const graph *g, const op_call *call) {
  return g->of_drafts ? ROWS_DRAFTS : call->rows_kind == ROWS_TOKENS ? g->token_rows : call->rows_kind;
}

/* The counts of a step that an op of this kind reads: an entry of plan_io.step, the first of those of ranks for the rows that each owns. */
static uint32_t entry_of(const graph *g, uint32_t kernel, uint32_t kind) {
  switch (kind == ROWS_BY_HEADS ? plan_heads_kind(g->l) : kind) {
    case ROWS_MADE: return STEP_MADE;
    case ROWS_PROMPT: return STEP_PROMPT;
    case ROWS_DRAFTS: return STEP_DRAFTS;
    case ROWS_OWN: return STEP_PARTS;
    case ROWS_BY_REQUESTS: return kernel == OP_exchange ? STEP_ALL : STEP_PARTS;
    default: return STEP_ALL;
  }
}

static draft_ref place_of(const graph *g, draft_ref ref, uint32_t kernel, uint32_t kind) {
  const uint32_t entry = entry_of(g, kernel, kind);
  if (ref.buffer == g->step) ref.offset = entry * sizeof(step_in);
  if (ref.buffer == g->step && entry == STEP_PARTS) ref.rank_step = sizeof(step_in);
  if (ref.buffer == g->own_tiles) ref.rank_step = plan_own_tiles(g->l) * (uint32_t)sizeof(attn_tile);
  if (ref.buffer == g->position) ref.offset = g->position_at;
  if (ref.buffer == g->tiles) ref.offset = g->tiles_at;
  return ref;
}

static void add_alternative(graph *g, const op_call *call, const specialise_choice *choice, uint32_t name) {
  draft *plan = g->plan;
  const uint32_t index = plan->ops.count, kind = kind_of(g, call);
  plan_op op = {.kernel = call->kernel, .variant = specialise_kernel(plan, call->kernel, choice), .name = name, .layer = g->layer,
                .rows_kind = kind, .rows_min = choice->rows_min, .rows_max = choice->rows_max,
                .args_offset = plan->args.count, .args_bytes = (uint32_t)call->args_bytes, .first_fixup = plan->refs.count,
                .branch = g->branch, .rank_columns = call->rank_columns,
                .point_order = g->point_order ? g->point_order : 2 * index + 1};
  memcpy(op.grid, choice->grid, sizeof op.grid);
  memcpy(draft_append(&plan->args, op.args_bytes), call->args, op.args_bytes);
  for (size_t i = 0; i < call->ref_count; i++) {
    if (call->refs[i].buffer == DRAFT_NONE) continue;
    *(draft_ref *)draft_append(&plan->refs, 1) = place_of(g, call->refs[i], call->kernel, kind);
    use(g, call->refs[i].buffer, index);
  }
  op.fixup_count = plan->refs.count - op.first_fixup;
  const gemm_args *gemm = call->args;
  if (call->kernel == OP_gemm && gemm->batches == 1 && gemm->y_kind != Y_SILU)
    profile_pin(g->pins, plan, gemm->n, gemm->k, gemm->y_kind == Y_F32, op.rows_min, op.rows_max, &op.first_gemm, &op.gemm_count,
                &g->gemm_workspace_bytes);
  *(plan_op *)draft_append(&plan->ops, 1) = op;
}

/* The specialiser sees which pointers an op has: these are not null. */
static uint32_t specialise(const op_call *call, specialise_choice choices[SPECIALISE_CHOICES_MAX]) {
  uint64_t args[32];
  ASSERT(call->args_bytes <= sizeof args);
  memcpy(args, call->args, call->args_bytes);
  for (size_t i = 0; i < call->ref_count; i++)
    if (call->refs[i].buffer != DRAFT_NONE) args[call->refs[i].args_offset / 8] = 1;
  return specialise_op(call->kernel, args, call->rows_min, call->rows_max, choices);
}

void graph_add_op_rows(graph *g, op_call call) {
  if (g->divides && call.rows_kind == ROWS_TOKENS) {
    graph_rows_add_op(g, call);
    return;
  }
  specialise_choice choices[SPECIALISE_CHOICES_MAX];
  uint32_t count = specialise(&call, choices);
  uint32_t name = op_name(g, call.what);
  for (uint32_t i = 0; i < count; i++) add_alternative(g, &call, &choices[i], name);
}

void graph_add_op_ordered(graph *g, op_call call, uint32_t *order) {
  uint32_t last = call.rows_max;
  if (*order != ORDER_CHAIN) {
    call.rows_max = 1;
    graph_add_op_rows(g, call);
    call.rows_min = 2;
    call.rows_max = last;
    *order = ORDER_CHAIN;
  }
  if (call.rows_min <= call.rows_max) graph_add_op_rows(g, call);
}

typedef struct norm_call { /* a norm besides its x, what is added to that, its weight and its y */
  const char *what;
  uint32_t dim, rows_kind, rows_min;
  uint32_t row_index; /* buffer of the rows of x that it reads, or DRAFT_NONE: all of them */
  float eps, y_scale;
  bool keeps_x;       /* x stays as it is */
  bool is_f32;        /* y is not rounded */
  bool is_of_x;       /* it reads the residual stream, or what is added to it */
} norm_call;

static void add_norm(graph *g, norm_call n, matrix x, addend adds, uint32_t weight, matrix y) {
  rmsnorm_args a = {.rows_kind = n.rows_kind, .dim = n.dim, .x_stride = x.stride, .y_stride = y.stride, .eps = n.eps,
                    .delta_scale = g->m->residual_scale, .y_scale = n.y_scale, .y_kind = n.is_f32 ? Y_F32 : Y_BF16};
  bool adds_nothing = adds.delta == DRAFT_NONE && adds.experts == DRAFT_NONE;
  if (adds.experts != DRAFT_NONE) a.top_k = g->m->top_k;
  if (adds.gate != DRAFT_NONE) a.gate_stride = GRAPH_GATE_COLUMNS;
  const draft_ref refs[] = {ARG(rmsnorm_args, step, g->step, 0),
                            ARG(rmsnorm_args, row_index, n.row_index, 0),
                            ARG(rmsnorm_args, x, x.buffer, x.offset),
                            ARG(rmsnorm_args, delta, adds.delta, 0),
                            ARG(rmsnorm_args, experts, adds.experts, 0),
                            ARG(rmsnorm_args, pair_row, adds.pair_row, 0),
                            ARG(rmsnorm_args, topk_weight, adds.topk_weight, 0),
                            ARG(rmsnorm_args, gate, adds.gate, 0),
                            ARG(rmsnorm_args, x_out, adds_nothing || n.keeps_x ? DRAFT_NONE : x.buffer, x.offset),
                            ARG(rmsnorm_args, weight, weight, 0),
                            ARG(rmsnorm_args, y, y.buffer, y.offset)};
  const uint32_t rows_max = plan_rows_limit(g->l, a.rows_kind);
  if (n.rows_min > rows_max) return;
  /* The stream, and what is added to it, have their rows in place on the ranks that own them. */
  rmsnorm_args own = a;
  draft_ref own_refs[ARRAY_LEN(refs)];
  own.x_stride *= g->ranks;
  if (n.is_f32) own.y_stride *= g->ranks;
  memcpy(own_refs, refs, sizeof refs);
  for (size_t i = 0; i < ARRAY_LEN(refs); i++) {
    const uint32_t field = refs[i].args_offset;
    const bool is_stream = field == offsetof(rmsnorm_args, x) || field == offsetof(rmsnorm_args, delta) ||
                           field == offsetof(rmsnorm_args, x_out) || (field == offsetof(rmsnorm_args, y) && n.is_f32);
    if (is_stream && refs[i].buffer != DRAFT_NONE) own_refs[i].rank_step = a.x_stride * 4;
  }
  ASSERT(!g->divides || !n.is_of_x || adds.experts == DRAFT_NONE);
  graph_add_op_rows(g, (op_call){.kernel = OP_rmsnorm, .what = n.what, .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = a.rows_kind, .rows_min = n.rows_min, .rows_max = rows_max,
                                 .own_args = n.is_of_x ? &own : NULL, .own_refs = n.is_of_x ? own_refs : NULL});
}

void graph_add_norm(graph *g, const char *what, matrix x, addend adds, uint32_t weight, matrix y, uint32_t dim, float eps, bool is_final) {
  const norm_call n = {.what = what, .dim = dim, .rows_kind = is_final ? ROWS_LOGITS : ROWS_TOKENS, .rows_min = 1,
                       .row_index = is_final ? g->logit_row : DRAFT_NONE, .eps = eps, .y_scale = is_final ? g->m->head_scale : 1,
                       .keeps_x = is_final};
  add_norm(g, n, x, adds, weight, y);
}

void graph_add_norm_of(graph *g, const char *what, matrix x, addend adds, uint32_t row_index, uint32_t weight, matrix y) {
  const norm_call n = {.what = what, .dim = g->m->hidden, .rows_kind = ROWS_TOKENS, .rows_min = 1, .row_index = row_index,
                       .eps = g->m->norm_eps, .y_scale = 1, .keeps_x = true};
  add_norm(g, n, x, adds, weight, y);
}

void graph_add_norm_behind(graph *g, const char *what, matrix x, uint32_t weight, matrix y) {
  const norm_call n = {.what = what, .dim = g->m->hidden, .rows_kind = ROWS_TOKENS, .rows_min = 1, .row_index = DRAFT_NONE,
                       .eps = g->m->norm_eps, .y_scale = 1, .keeps_x = true, .is_f32 = true, .is_of_x = true};
  add_norm(g, n, x, GRAPH_NOTHING, weight, y);
}

void graph_add_join(graph *g, uint32_t first) {
  g->branch = BRANCH_JOIN;
  for (uint32_t i = 0; i < g->plan->buffers.count; i++) {
    plan_buffer *b = draft_buffer_at(g->plan, i);
    if (b->region != REGION_WORK || b->first_op == UINT32_MAX || b->last_op < first) continue;
    b->first_op = min_u32(b->first_op, first);
    b->last_op = g->plan->ops.count;
  }
}

matrix graph_add_block_norm(graph *g, const char *what, const char *name) {
  const plan_model *m = g->m;
  char weight_name[NAME_BYTES_MAX];
  snprintf(weight_name, sizeof weight_name, "%s weight", what);
  uint32_t weight = g->plan->grouped.norms == NORMS_AFTER ? DRAFT_NONE : graph_add_weight(g, weight_name, name, 1, m->hidden);
  matrix h = graph_add_matrix(g, g->rows, m->hidden, 2, what);
  graph_ranks_norm(g, what, weight, h);
  const norm_call n = {.what = what, .dim = m->hidden, .rows_kind = ROWS_TOKENS, .rows_min = g->own.rows + 1, .row_index = DRAFT_NONE,
                       .eps = m->norm_eps, .y_scale = 1, .is_of_x = true};
  add_norm(g, n, (matrix){.buffer = g->x, .stride = m->hidden}, g->adds, weight, h);
  g->adds = GRAPH_NOTHING;
  g->own = (own_addend){0};
  return h;
}

void graph_add_gemm_from(graph *g, const char *what, matrix x, uint32_t weight, matrix y, gemm_args shape, uint32_t rows_min) {
  shape.ldx = x.stride;
  shape.ldy = y.stride;
  if (shape.batches == 0) shape.batches = 1;
  const draft_ref refs[] = {ARG(gemm_args, step, g->step, 0), ARG(gemm_args, x, x.buffer, x.offset), ARG(gemm_args, w, weight, 0),
                            ARG(gemm_args, y, y.buffer, y.offset)};
  graph_add_op_ordered(g, (op_call){.kernel = OP_gemm, .what = what, .args = &shape, .args_bytes = sizeof shape, .refs = refs,
                                    .ref_count = ARRAY_LEN(refs), .rows_kind = shape.rows_kind, .rows_min = rows_min,
                                    .rows_max = plan_rows_limit(g->l, shape.rows_kind), .rank_columns = y.part},
                       &shape.order);
}

void graph_add_gemm(graph *g, const char *what, matrix x, uint32_t weight, matrix y, gemm_args shape) {
  graph_add_gemm_from(g, what, x, weight, y, shape, 1);
}
