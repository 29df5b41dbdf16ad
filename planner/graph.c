/* graph.c - see graph.h. One function per part of a layer, in the order of the forward pass. */
#include "graph.h"
#include <stdio.h>
#include <string.h>
#include "abi.h"
#include "attn_cut.h"
#include "model_config.h"
#include "specialise.h"

typedef struct addend { /* buffers, or DRAFT_NONE: see rmsnorm_args */
  uint32_t delta, experts, pair_row, topk_weight;
} addend;

static const addend NOTHING = {DRAFT_NONE, DRAFT_NONE, DRAFT_NONE, DRAFT_NONE};

typedef struct graph {
  draft *plan;
  const profile *known;
  const plan_model *m;
  const plan_limits *l;
  uint64_t rows, logit_rows; /* padded */
  uint64_t weight_bytes;     /* cursor in REGION_WEIGHTS */
  uint64_t gemm_workspace_bytes;
  uint32_t layer;            /* UINT32_MAX outside layers */
  uint32_t step, token, position, seq, tiles, logit_row, sample, block_table; /* buffers of the step's inputs */
  uint32_t lists, sampled, result, digest, top, cos_sin, q_scale, kv, history; /* q_scale: DRAFT_NONE without it */
  uint32_t prompt_tiles, contexts; /* DRAFT_NONE unless prompts attend in a form of their own */
  uint32_t table;            /* the embedding */
  uint32_t x;                /* residual stream */
  uint32_t counts, pieces, parts, slots; /* of the cut attention; slots: how many of its partial results there is room for */
  addend adds;               /* to it, by the next norm */
  uint32_t branch;           /* of the ops that are added: enum plan_branch */
  enum rows_kind token_rows; /* of the ops that are added: ROWS_TOKENS, or those of a part of the step */
} graph;

typedef struct matrix { /* a GEMM operand, result or source: columns start at byte `offset` of the buffer */
  uint32_t buffer, stride; /* elements between rows */
  uint64_t offset;
} matrix;

#define ARG(type, field, buffer_, offset_) \
  { .offset = (offset_), .buffer = (buffer_), .args_offset = (uint32_t)offsetof(type, field) }

/* === Buffers and weights ================================================================================================ */

static uint32_t name_of(graph *g, const char *what) {
  return g->layer == UINT32_MAX ? draft_string(g->plan, "%s", what) : draft_string(g->plan, "layer %u %s", g->layer, what);
}

static uint32_t add_fixed(graph *g, uint32_t region, uint64_t bytes, const char *what) {
  return draft_buffer(g->plan, region, bytes, name_of(g, what));
}

/* A work buffer; its lifetime is empty until an op uses it. */
static uint32_t add_work(graph *g, uint64_t bytes, const char *what) {
  uint32_t buffer = add_fixed(g, REGION_WORK, bytes, what);
  plan_buffer *added = draft_buffer_at(g->plan, buffer);
  added->first_op = UINT32_MAX;
  added->last_op = 0;
  return buffer;
}

static matrix add_matrix(graph *g, uint64_t rows, uint32_t columns, uint32_t element_bytes, const char *what) {
  return (matrix){add_work(g, rows * columns * element_bytes, what), columns, 0};
}

static uint32_t begin_weight(graph *g, const char *what) {
  uint32_t buffer = add_fixed(g, REGION_WEIGHTS, 0, what);
  g->weight_bytes = align_up(g->weight_bytes, 256);
  draft_buffer_at(g->plan, buffer)->offset = g->weight_bytes;
  return buffer;
}

/* Adds a source tensor behind the last one of the weight begun last. name: without "model.layers.N." inside a layer. */
static void add_tensor(graph *g, const char *name, plan_tensor tensor) {
  char full[NAME_BYTES_MAX];
  int length = g->layer == UINT32_MAX ? snprintf(full, sizeof full, "%s", name)
                                      : snprintf(full, sizeof full, "model.layers.%u.%s", g->layer, name);
  ASSERT(length > 0 && (size_t)length < sizeof full);
  tensor.name = draft_text(g->plan, full);
  tensor.scale_name = PLAN_NO_SCALE;
  tensor.offset = g->weight_bytes;
  uint64_t bytes = (uint64_t)tensor.row_count * tensor.batches * tensor.cols * (tensor.dtype == DTYPE_F32 ? 4 : 2);
  *(plan_tensor *)draft_append(&g->plan->tensors, 1) = tensor;
  g->weight_bytes += bytes;
  draft_buffer_at(g->plan, g->plan->buffers.count - 1)->bytes += bytes;
}

static plan_tensor whole(uint32_t rows, uint32_t cols) {
  return (plan_tensor){.dtype = DTYPE_BF16, .rows = rows, .cols = cols, .row_count = rows, .row_step = rows, .batches = 1};
}

static uint32_t add_weight(graph *g, const char *what, const char *name, uint32_t rows, uint32_t cols) {
  uint32_t buffer = begin_weight(g, what);
  add_tensor(g, name, whole(rows, cols));
  return buffer;
}

/* === Ops ================================================================================================================ */

static void use(graph *g, uint32_t buffer, uint32_t op) {
  plan_buffer *used = draft_buffer_at(g->plan, buffer);
  if (used->region != REGION_WORK) return;
  used->first_op = min_u32(used->first_op, op);
  used->last_op = max_u32(used->last_op, op);
}

typedef struct op_call { /* one op before its alternatives are known */
  uint32_t kernel, rows_kind, rows_min, rows_max;
  const char *what;
  const void *args;
  size_t args_bytes;
  const draft_ref *refs; /* buffer DRAFT_NONE: a null pointer */
  size_t ref_count;
} op_call;

static void add_alternative(graph *g, const op_call *call, const specialise_choice *choice, uint32_t name) {
  draft *plan = g->plan;
  uint32_t index = plan->ops.count;
  bool is_part = call->rows_kind == ROWS_TOKENS && g->token_rows != ROWS_TOKENS;
  uint64_t part = !is_part ? STEP_ALL : g->token_rows == ROWS_MADE ? STEP_MADE : STEP_PROMPT;
  plan_op op = {.kernel = call->kernel, .variant = specialise_kernel(plan, call->kernel, choice), .name = name, .layer = g->layer,
                .rows_kind = is_part ? g->token_rows : call->rows_kind, .rows_min = choice->rows_min, .rows_max = choice->rows_max,
                .args_offset = plan->args.count, .args_bytes = (uint32_t)call->args_bytes, .first_fixup = plan->refs.count,
                .branch = g->branch};
  memcpy(op.grid, choice->grid, sizeof op.grid);
  memcpy(draft_append(&plan->args, op.args_bytes), call->args, op.args_bytes);
  for (size_t i = 0; i < call->ref_count; i++) {
    if (call->refs[i].buffer == DRAFT_NONE) continue;
    draft_ref *ref = draft_append(&plan->refs, 1);
    *ref = call->refs[i];
    if (ref->buffer == g->step) ref->offset = part * sizeof(step_in);
    use(g, call->refs[i].buffer, index);
  }
  op.fixup_count = plan->refs.count - op.first_fixup;
  const gemm_args *gemm = call->args;
  if (call->kernel == OP_gemm && gemm->batches == 1 && gemm->y_kind != Y_SILU)
    profile_pin(g->known, plan, gemm->n, gemm->k, gemm->y_kind == Y_F32, op.rows_min, op.rows_max, &op.first_gemm, &op.gemm_count,
                &g->gemm_workspace_bytes);
  *(plan_op *)draft_append(&plan->ops, 1) = op;
}

static void add_op_rows(graph *g, op_call call) {
  specialise_choice choices[SPECIALISE_CHOICES_MAX];
  uint32_t count = specialise_op(call.kernel, call.args, call.rows_min, call.rows_max, choices);
  uint32_t name = name_of(g, call.what);
  for (uint32_t i = 0; i < count; i++) add_alternative(g, &call, &choices[i], name);
}

/* order: a member of the arguments, for steps of one token; those of more have branches instead. */
static void add_op_ordered(graph *g, op_call call, uint32_t *order) {
  uint32_t last = call.rows_max;
  if (*order != ORDER_CHAIN) {
    call.rows_max = 1;
    add_op_rows(g, call);
    call.rows_min = 2;
    call.rows_max = last;
    *order = ORDER_CHAIN;
  }
  if (call.rows_min <= call.rows_max) add_op_rows(g, call);
}

#define ADD_OP(g, kernel_, what_, args_, refs_, kind_)                                                                     \
  add_op_rows((g), (op_call){.kernel = (kernel_), .what = (what_), .args = &(args_), .args_bytes = sizeof(args_),          \
                             .refs = (refs_), .ref_count = ARRAY_LEN(refs_), .rows_kind = (kind_), .rows_min = 1,          \
                             .rows_max = plan_rows_limit((g)->l, (kind_))})

static void add_norm(graph *g, const char *what, matrix x, addend adds, uint32_t weight, matrix y, uint32_t dim, float eps,
                     bool is_final) {
  rmsnorm_args a = {.rows_kind = is_final ? ROWS_LOGITS : ROWS_TOKENS, .dim = dim, .x_stride = x.stride, .y_stride = y.stride, .eps = eps,
                    .delta_scale = g->m->residual_scale, .y_scale = is_final ? g->m->head_scale : 1};
  bool adds_nothing = adds.delta == DRAFT_NONE && adds.experts == DRAFT_NONE;
  if (adds.experts != DRAFT_NONE) a.top_k = g->m->top_k;
  const draft_ref refs[] = {ARG(rmsnorm_args, step, g->step, 0),
                            ARG(rmsnorm_args, row_index, is_final ? g->logit_row : DRAFT_NONE, 0),
                            ARG(rmsnorm_args, x, x.buffer, x.offset),
                            ARG(rmsnorm_args, delta, adds.delta, 0),
                            ARG(rmsnorm_args, experts, adds.experts, 0),
                            ARG(rmsnorm_args, pair_row, adds.pair_row, 0),
                            ARG(rmsnorm_args, topk_weight, adds.topk_weight, 0),
                            ARG(rmsnorm_args, x_out, adds_nothing || is_final ? DRAFT_NONE : x.buffer, x.offset),
                            ARG(rmsnorm_args, weight, weight, 0),
                            ARG(rmsnorm_args, y, y.buffer, y.offset)};
  ADD_OP(g, OP_rmsnorm, what, a, refs, a.rows_kind);
}

/* The norm before a block: adds what the last block left, and gives the block's input. */
static matrix add_block_norm(graph *g, const char *what, const char *name) {
  const plan_model *m = g->m;
  char weight_name[NAME_BYTES_MAX];
  snprintf(weight_name, sizeof weight_name, "%s weight", what);
  uint32_t weight = add_weight(g, weight_name, name, 1, m->hidden);
  matrix h = add_matrix(g, g->rows, m->hidden, 2, what);
  add_norm(g, what, (matrix){g->x, m->hidden, 0}, g->adds, weight, h, m->hidden, m->norm_eps, false);
  g->adds = NOTHING;
  return h;
}

/* For launch rows from rows_min on. */
static void add_gemm_from(graph *g, const char *what, matrix x, uint32_t weight, matrix y, gemm_args shape, uint32_t rows_min) {
  shape.ldx = x.stride;
  shape.ldy = y.stride;
  if (shape.batches == 0) shape.batches = 1;
  const draft_ref refs[] = {ARG(gemm_args, step, g->step, 0), ARG(gemm_args, x, x.buffer, x.offset), ARG(gemm_args, w, weight, 0),
                            ARG(gemm_args, y, y.buffer, y.offset)};
  add_op_ordered(g, (op_call){.kernel = OP_gemm, .what = what, .args = &shape, .args_bytes = sizeof shape, .refs = refs,
                              .ref_count = ARRAY_LEN(refs), .rows_kind = shape.rows_kind, .rows_min = rows_min,
                              .rows_max = plan_rows_limit(g->l, shape.rows_kind)},
                 &shape.order);
}

static void add_gemm(graph *g, const char *what, matrix x, uint32_t weight, matrix y, gemm_args shape) {
  add_gemm_from(g, what, x, weight, y, shape, 1);
}

/* === Attention ========================================================================================================== */

typedef struct projections { /* fp32 sources of qkv_rope */
  matrix q, kv;
} projections;

/* One product for everything that reads the block's input; the query's second factor, if it has one, follows. */
static projections add_projections(graph *g, matrix h) {
  const plan_model *m = g->m;
  uint32_t q_columns = m->heads * (m->nope_dim + m->rope_dim);
  uint32_t first = m->q_lora_rank ? m->q_lora_rank : q_columns;
  uint32_t n = first + m->kv_lora_rank + m->rope_dim;
  uint32_t weight = begin_weight(g, "qkv_a weight");
  add_tensor(g, m->q_lora_rank ? "self_attn.q_a_proj.weight" : "self_attn.q_proj.weight", whole(first, m->hidden));
  add_tensor(g, "self_attn.kv_a_proj_with_mqa.weight", whole(m->kv_lora_rank + m->rope_dim, m->hidden));
  matrix both = add_matrix(g, g->rows, n, 4, "qkv_a");
  add_gemm(g, "qkv_a", h, weight, both, (gemm_args){.n = n, .k = m->hidden, .y_kind = Y_F32});
  projections p = {both, {both.buffer, n, (uint64_t)first * 4}};
  if (m->q_lora_rank == 0) return p;
  uint32_t norm = add_weight(g, "q_a_norm weight", "self_attn.q_a_layernorm.weight", 1, m->q_lora_rank);
  matrix q_a = add_matrix(g, g->rows, m->q_lora_rank, 2, "q_a");
  add_norm(g, "q_a_norm", both, NOTHING, norm, q_a, m->q_lora_rank, m->latent_eps, false);
  uint32_t q_b = add_weight(g, "q_b weight", "self_attn.q_b_proj.weight", q_columns, m->q_lora_rank);
  p.q = add_matrix(g, g->rows, q_columns, 4, "q");
  add_gemm(g, "q_b", q_a, q_b, p.q, (gemm_args){.n = q_columns, .k = m->q_lora_rank, .y_kind = Y_F32});
  return p;
}

/* Rows that attend in the absorbed form. */
static enum rows_kind made_rows(const graph *g) { return g->l->parity == PARITY_STRICT ? ROWS_TOKENS : ROWS_MADE; }

typedef struct queries {
  matrix nope, latent;
} queries;

static uint64_t kv_layer_bytes(const graph *g) {
  return (uint64_t)g->l->kv_pages * PAGE_TOKENS * (g->m->kv_lora_rank + g->m->rope_dim) * 2;
}

/* The token's KV row, and the queries in latent form: rotated columns by qkv_rope, the others through W_uk; of one token by one op. */
static queries add_queries(graph *g, projections p) {
  const plan_model *m = g->m;
  uint32_t row = m->kv_lora_rank + m->rope_dim;
  matrix q_nope = add_matrix(g, g->rows, m->heads * m->nope_dim, 2, "q_nope");
  matrix q_latent = add_matrix(g, g->rows, m->heads * row, 2, "q_latent");
  uint32_t w_uk = begin_weight(g, "w_uk");
  add_tensor(g, "self_attn.kv_b_proj.weight",
             (plan_tensor){.dtype = DTYPE_BF16,
                           .rows = m->heads * (m->nope_dim + m->v_dim),
                           .cols = m->kv_lora_rank,
                           .row_count = m->nope_dim,
                           .row_step = m->nope_dim + m->v_dim,
                           .batches = m->heads,
                           .transform = TRANSFORM_TRANSPOSE});
  uint32_t norm = add_weight(g, "kv_a_norm weight", "self_attn.kv_a_layernorm.weight", 1, m->kv_lora_rank);
  qkv_rope_args a = {.q_stride = p.q.stride, .kv_in_stride = p.kv.stride, .heads = m->heads, .nope_dim = m->nope_dim,
                     .rope_dim = m->rope_dim, .kv_lora_rank = m->kv_lora_rank, .block_table_stride = g->l->pages_per_seq,
                     .eps = m->latent_eps, .half_split = m->rope_half_split};
  const draft_ref refs[] = {ARG(qkv_rope_args, step, g->step, 0),
                            ARG(qkv_rope_args, q, p.q.buffer, p.q.offset),
                            ARG(qkv_rope_args, kv_in, p.kv.buffer, p.kv.offset),
                            ARG(qkv_rope_args, weight, norm, 0),
                            ARG(qkv_rope_args, cos_sin, g->cos_sin, 0),
                            ARG(qkv_rope_args, position, g->position, 0),
                            ARG(qkv_rope_args, seq, g->seq, 0),
                            ARG(qkv_rope_args, block_table, g->block_table, 0),
                            ARG(qkv_rope_args, q_scale, g->q_scale, 0),
                            ARG(qkv_rope_args, q_nope, q_nope.buffer, 0),
                            ARG(qkv_rope_args, q_latent, q_latent.buffer, 0),
                            ARG(qkv_rope_args, kv, g->kv, g->layer * kv_layer_bytes(g)),
                            ARG(qkv_rope_args, w_uk, w_uk, 0)};
  op_call call = {.kernel = OP_qkv_rope, .what = "qkv_rope", .args = &a, .args_bytes = sizeof a, .refs = refs, .ref_count = ARRAY_LEN(refs),
                  .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = g->l->max_batch_tokens};
  a.absorbs = made_rows(g) == ROWS_TOKENS; /* else the one token may be of a prompt */
  if (a.absorbs) {
    call.rows_max = 1;
    add_op_rows(g, call);
    call.rows_min = 2;
    call.rows_max = g->l->max_batch_tokens;
    a.absorbs = 0;
  }
  call.ref_count--;
  if (call.rows_min <= call.rows_max) add_op_rows(g, call);
  g->token_rows = made_rows(g);
  add_gemm_from(g, "absorb", q_nope, w_uk, q_latent,
           (gemm_args){.n = m->kv_lora_rank, .k = m->nope_dim, .batches = m->heads, .x_batch = m->nope_dim,
                       .w_batch = (uint64_t)m->kv_lora_rank * m->nope_dim, .y_batch = row}, call.rows_min);
  g->token_rows = ROWS_TOKENS;
  return (queries){q_nope, q_latent};
}

typedef struct attn_buffers {
  uint32_t q, out, scratch, partial_o, partial_ml, counts, pieces; /* the last four: DRAFT_NONE where nothing is cut */
} attn_buffers;

static void add_attn_form(graph *g, mla_attn_args a, attn_buffers b, uint32_t rows_min, uint32_t rows_max) {
  const draft_ref refs[] = {ARG(mla_attn_args, step, g->step, 0),
                            ARG(mla_attn_args, tiles, g->tiles, 0),
                            ARG(mla_attn_args, q, b.q, 0),
                            ARG(mla_attn_args, kv, g->kv, g->layer * kv_layer_bytes(g)),
                            ARG(mla_attn_args, block_table, g->block_table, 0),
                            ARG(mla_attn_args, out, b.out, 0),
                            ARG(mla_attn_args, partial_o, b.partial_o, 0),
                            ARG(mla_attn_args, partial_ml, b.partial_ml, 0),
                            ARG(mla_attn_args, counts, b.counts, 0),
                            ARG(mla_attn_args, pieces, b.pieces, 0),
                            ARG(mla_attn_args, scratch, b.scratch, 0)};
  add_op_rows(g, (op_call){.kernel = OP_mla_attn, .what = "mla_attn", .args = &a, .args_bytes = sizeof a, .refs = refs,
                           .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = rows_min, .rows_max = rows_max});
}

/* Steps of one token go on to the values by the same op, as long as its units are few: every block of a head folds them. */
#define LIFT_UNITS_MAX 64u

/* Returns the rows from which the values have an op of their own. */
static uint32_t add_fold(graph *g, attn_buffers b, uint32_t w_uv, matrix value) {
  const plan_model *m = g->m;
  mla_fold_args a = {.heads = m->heads, .kv_lora_rank = m->kv_lora_rank, .group_chunks = g->l->group_chunks, .slots_max = g->slots,
                     .v_dim = m->v_dim};
  const draft_ref refs[] = {ARG(mla_fold_args, step, g->step, 0), ARG(mla_fold_args, counts, g->counts, 0),
                            ARG(mla_fold_args, parts, g->parts, 0), ARG(mla_fold_args, partial_o, b.partial_o, 0),
                            ARG(mla_fold_args, partial_ml, b.partial_ml, 0), ARG(mla_fold_args, out, b.out, 0),
                            ARG(mla_fold_args, w_uv, w_uv, 0), ARG(mla_fold_args, value, value.buffer, 0)};
  op_call call = {.kernel = OP_mla_fold, .what = "mla_fold", .args = &a, .args_bytes = sizeof a, .refs = refs, .ref_count = ARRAY_LEN(refs),
                  .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = g->l->split_rows_max};
  if (div_up(g->l->max_len, g->l->chunk_tokens) <= LIFT_UNITS_MAX) {
    a.lifts = call.rows_max = 1;
    add_op_rows(g, call);
    a.lifts = 0;
    call.rows_min = 2;
    call.rows_max = g->l->split_rows_max;
  }
  call.ref_count -= 2;
  if (call.rows_min <= call.rows_max) add_op_rows(g, call);
  return call.rows_min;
}

/* lifted_from: rows from which the values have an op of their own. */
static matrix add_attention(graph *g, matrix q_latent, uint32_t w_uv, matrix value, uint32_t *lifted_from) {
  const plan_model *m = g->m;
  const plan_limits *l = g->l;
  matrix out = add_matrix(g, g->rows, m->heads * m->kv_lora_rank, 2, "attn_latent");
  mla_attn_args a = {.heads = m->heads, .kv_lora_rank = m->kv_lora_rank, .rope_dim = m->rope_dim, .block_table_stride = l->pages_per_seq,
                     .chunk_tokens = l->chunk_tokens, .group_chunks = l->group_chunks, .scale_log2 = m->softmax_scale_log2};
  attn_buffers b = {q_latent.buffer, out.buffer, DRAFT_NONE, DRAFT_NONE, DRAFT_NONE, DRAFT_NONE, DRAFT_NONE};
  bool has_whole = l->split_rows_max < l->max_batch_tokens;
  uint32_t wide = has_whole ? attn_scratch_floats(64, m->kv_lora_rank) : 0; /* one memory for both forms */
  uint32_t floats = max_u32(wide, attn_scratch_floats(attn_pass_rows(m->heads), m->kv_lora_rank));
  b.scratch = add_work(g, (uint64_t)SPECIALISE_ATTN_CTAS * floats * 4, "attn_scratch");
  if (has_whole) add_attn_form(g, a, b, l->split_rows_max + 1, l->max_batch_tokens);
  a.slots_max = g->slots;
  b.partial_o = add_work(g, (uint64_t)g->slots * m->heads * m->kv_lora_rank * 4, "partial_o");
  b.partial_ml = add_work(g, (uint64_t)g->slots * m->heads * 2 * 4, "partial_ml");
  b.counts = g->counts;
  b.pieces = g->pieces;
  add_attn_form(g, a, b, 1, l->split_rows_max);
  *lifted_from = add_fold(g, b, w_uv, value);
  return out;
}

/* The workspace of a piece of the contexts, and from one piece to the next what the rows have so far; one of both for all layers. */
static void add_prompt_attention(graph *g, queries q, matrix value) {
  const plan_model *m = g->m;
  const plan_limits *l = g->l;
  uint32_t n = m->heads * (m->nope_dim + m->v_dim), latent_row = m->kv_lora_rank + m->rope_dim;
  uint32_t weight = add_weight(g, "kv_b weight", "self_attn.kv_b_proj.weight", n, m->kv_lora_rank);
  matrix expanded = add_matrix(g, (uint64_t)l->expand_pages * PAGE_TOKENS, n + m->rope_dim, 2, "expanded");
  matrix state = add_matrix(g, g->rows, m->heads * (m->v_dim + 2), 4, "prefill_state");
  mla_expand_args e = {.n = n, .kv_lora_rank = m->kv_lora_rank, .rope_dim = m->rope_dim, .block_table_stride = l->pages_per_seq,
                       .piece_pages = l->expand_pages};
  const draft_ref expand_refs[] = {ARG(mla_expand_args, step, g->step, 0), ARG(mla_expand_args, contexts, g->contexts, 0),
                                   ARG(mla_expand_args, kv, g->kv, g->layer * kv_layer_bytes(g)),
                                   ARG(mla_expand_args, block_table, g->block_table, 0), ARG(mla_expand_args, w, weight, 0),
                                   ARG(mla_expand_args, y, expanded.buffer, 0)};
  g->token_rows = ROWS_PROMPT;
  ADD_OP(g, OP_mla_expand, "mla_expand", e, expand_refs, ROWS_TOKENS);
  mla_prefill_args a = {.heads = m->heads, .nope_dim = m->nope_dim, .rope_dim = m->rope_dim, .v_dim = m->v_dim,
                        .q_rope_stride = latent_row, .piece_pages = l->expand_pages, .scale_log2 = m->softmax_scale_log2};
  const draft_ref refs[] = {ARG(mla_prefill_args, step, g->step, 0), ARG(mla_prefill_args, tiles, g->prompt_tiles, 0),
                            ARG(mla_prefill_args, contexts, g->contexts, 0), ARG(mla_prefill_args, q_nope, q.nope.buffer, 0),
                            ARG(mla_prefill_args, q_rope, q.latent.buffer, m->kv_lora_rank * UINT64_C(2)),
                            ARG(mla_prefill_args, expanded, expanded.buffer, 0), ARG(mla_prefill_args, out, value.buffer, 0),
                            ARG(mla_prefill_args, state, state.buffer, 0)};
  ADD_OP(g, OP_mla_prefill, "mla_prefill", a, refs, ROWS_TOKENS);
  g->token_rows = ROWS_TOKENS;
}

static void add_attention_block(graph *g) {
  const plan_model *m = g->m;
  matrix h = add_block_norm(g, "input_norm", "input_layernorm.weight");
  projections p = add_projections(g, h);
  queries q = add_queries(g, p);
  uint32_t w_uv = begin_weight(g, "w_uv");
  add_tensor(g, "self_attn.kv_b_proj.weight",
             (plan_tensor){.dtype = DTYPE_BF16, .rows = m->heads * (m->nope_dim + m->v_dim), .cols = m->kv_lora_rank, .row0 = m->nope_dim,
                           .row_count = m->v_dim, .row_step = m->nope_dim + m->v_dim, .batches = m->heads});
  matrix value = add_matrix(g, g->rows, m->heads * m->v_dim, 2, "attn_value");
  g->token_rows = made_rows(g);
  uint32_t lifted_from;
  matrix latent = add_attention(g, q.latent, w_uv, value, &lifted_from);
  add_gemm_from(g, "v_up", latent, w_uv, value,
                (gemm_args){.n = m->v_dim, .k = m->kv_lora_rank, .batches = m->heads, .x_batch = m->kv_lora_rank,
                            .w_batch = (uint64_t)m->v_dim * m->kv_lora_rank, .y_batch = m->v_dim}, lifted_from);
  g->token_rows = ROWS_TOKENS;
  if (g->l->parity == PARITY_FAST_PREFILL) add_prompt_attention(g, q, value);
  uint32_t w_o = add_weight(g, "o_proj weight", "self_attn.o_proj.weight", m->hidden, m->heads * m->v_dim);
  matrix delta = add_matrix(g, g->rows, m->hidden, 4, "attn_delta");
  add_gemm(g, "o_proj", value, w_o, delta, (gemm_args){.n = m->hidden, .k = m->heads * m->v_dim, .y_kind = Y_F32});
  g->adds.delta = delta.buffer;
}

/* === Feed-forward ======================================================================================================= */

typedef struct mlp { /* a dense feed-forward part: its weights */
  const char *label;
  uint32_t inter, gate_up, down;
} mlp;

/* prefix: "mlp" or "mlp.shared_experts". */
static mlp add_mlp_weights(graph *g, const char *prefix, const char *label, uint32_t inter) {
  const plan_model *m = g->m;
  char name[NAME_BYTES_MAX], what[NAME_BYTES_MAX];
  snprintf(what, sizeof what, "%sgate_up weight", label);
  mlp part = {.label = label, .inter = inter, .gate_up = begin_weight(g, what)};
  snprintf(name, sizeof name, "%s.gate_proj.weight", prefix);
  add_tensor(g, name, whole(inter, m->hidden));
  snprintf(name, sizeof name, "%s.up_proj.weight", prefix);
  add_tensor(g, name, whole(inter, m->hidden));
  snprintf(what, sizeof what, "%sdown weight", label);
  snprintf(name, sizeof name, "%s.down_proj.weight", prefix);
  part.down = add_weight(g, what, name, m->hidden, inter);
  return part;
}

/* gate and up as one product with its silu. */
static matrix add_mlp_up(graph *g, matrix h, const mlp *part, uint32_t order) {
  char what[NAME_BYTES_MAX];
  snprintf(what, sizeof what, "%sgate_up", part->label);
  matrix activated = add_matrix(g, g->rows, part->inter, 2, what);
  add_gemm(g, what, h, part->gate_up, activated, (gemm_args){.n = 2 * part->inter, .k = g->m->hidden, .y_kind = Y_SILU, .order = order});
  return activated;
}

/* Returns fp32 [rows][hidden]. */
static matrix add_mlp_down(graph *g, matrix activated, const mlp *part, uint32_t order) {
  char what[NAME_BYTES_MAX];
  snprintf(what, sizeof what, "%sdown", part->label);
  matrix out = add_matrix(g, g->rows, g->m->hidden, 4, what);
  add_gemm(g, what, activated, part->down, out, (gemm_args){.n = g->m->hidden, .k = part->inter, .y_kind = Y_F32, .order = order});
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
  w->router = add_weight(g, "router weight", "mlp.gate.weight", m->experts, m->hidden);
  w->bias = DRAFT_NONE;
  if (!model_config_has_bias(m)) return;
  plan_tensor tensor = whole(1, m->experts);
  tensor.dtype = DTYPE_F32;
  w->bias = begin_weight(g, "router bias");
  add_tensor(g, "mlp.gate.e_score_correction_bias", tensor);
}

static matrix add_router_logits(graph *g, matrix h, uint32_t weight, uint32_t order) {
  const plan_model *m = g->m;
  matrix logits = add_matrix(g, g->rows, m->experts, 4, "router_logits");
  add_gemm(g, "router_logits", h, weight, logits, (gemm_args){.n = m->experts, .k = m->hidden, .y_kind = Y_F32, .order = order});
  return logits;
}

static routing add_router(graph *g, matrix logits, uint32_t bias, uint32_t order) {
  const plan_model *m = g->m;
  uint64_t pairs = g->rows * m->top_k;
  routing r = {add_work(g, pairs * 4, "topk_id"), add_work(g, pairs * 4, "topk_weight"),
               add_work(g, (uint64_t)(m->experts + 1) * 4, "expert_first"), add_work(g, pairs * 4, "row_token"),
               add_work(g, pairs * 4, "pair_row"), 0};
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
    add_op_ordered(g, call, &a.order);
    call.rows_min = ROUTER_SORTS_MAX + 1;
  }
  a.sorts = 0;
  call.rows_max = g->l->max_batch_tokens;
  call.ref_count -= 3;
  add_op_rows(g, call);
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
  add_op_rows(g, (op_call){.kernel = OP_moe_sort, .what = "moe_sort", .args = &a, .args_bytes = sizeof a, .refs = refs,
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
  add_op_rows(g, (op_call){.kernel = OP_moe_gemm, .what = what, .args = &a, .args_bytes = sizeof a, .refs = refs,
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
  sorted = add_matrix(g, g->rows * g->m->top_k, h.stride, 2, "experts x");
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
  *gate_up = begin_weight(g, "experts gate_up weight");
  for (uint32_t e = 0; e < m->experts; e++) {
    snprintf(name, sizeof name, "mlp.experts.%u.gate_proj.weight", e);
    add_tensor(g, name, whole(m->moe_inter, m->hidden));
    snprintf(name, sizeof name, "mlp.experts.%u.up_proj.weight", e);
    add_tensor(g, name, whole(m->moe_inter, m->hidden));
  }
  *down = begin_weight(g, "experts down weight");
  for (uint32_t e = 0; e < m->experts; e++) {
    snprintf(name, sizeof name, "mlp.experts.%u.down_proj.weight", e);
    add_tensor(g, name, whole(m->hidden, m->moe_inter));
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
  matrix activated = add_matrix(g, pairs, m->moe_inter, 2, "experts gate_up");
  add_experts_up(g, &r, h, sorted, w.gate_up, activated);
  matrix y = add_matrix(g, pairs, m->hidden, 4, "experts down");
  add_moe_gemm(g, "experts down", &r, DRAFT_NONE, activated, w.down, y, (row_range){1, g->l->max_batch_tokens},
               (moe_gemm_args){.n = m->hidden, .y_kind = Y_F32});
  if (beside) join_side(g, side); /* with the next norm, which adds all of it */
  g->adds = (addend){.delta = shared, .experts = y.buffer, .pair_row = r.pair_row, .topk_weight = r.topk_weight};
}

static void add_feed_forward_block(graph *g) {
  const plan_model *m = g->m;
  matrix h = add_block_norm(g, "post_norm", "post_attention_layernorm.weight");
  if (g->layer >= m->dense_layers) {
    add_moe(g, h);
    return;
  }
  mlp dense = add_mlp_weights(g, "mlp", "", m->inter);
  g->adds.delta = add_mlp_down(g, add_mlp_up(g, h, &dense, ORDER_CHAIN), &dense, ORDER_CHAIN).buffer;
}

/* === Ends =============================================================================================================== */

static void add_io(graph *g) {
  const plan_model *m = g->m;
  const plan_limits *l = g->l;
  uint64_t tokens = l->max_batch_tokens, results = l->max_logit_rows;
  g->step = add_fixed(g, REGION_STEP, STEP_PARTS * sizeof(step_in), "step");
  g->logit_row = add_fixed(g, REGION_STEP, results * 4, "logit_row"); /* these three are one upload: they are short */
  g->sample = add_fixed(g, REGION_STEP, results * sizeof(sample_param), "sample_param");
  g->token = add_fixed(g, REGION_STEP, tokens * 4, "token");
  g->position = add_fixed(g, REGION_STEP, tokens * 4, "position");
  g->seq = add_fixed(g, REGION_STEP, tokens * 4, "seq");
  g->tiles = add_fixed(g, REGION_STEP, tokens * sizeof(attn_tile), "tiles");
  bool is_fast = l->parity == PARITY_FAST_PREFILL;
  g->prompt_tiles = is_fast ? add_fixed(g, REGION_STEP, tokens * sizeof(attn_tile), "prompt_tiles") : DRAFT_NONE;
  g->contexts = is_fast ? add_fixed(g, REGION_STEP, l->max_seqs * sizeof(step_context), "contexts") : DRAFT_NONE;
  g->block_table = add_fixed(g, REGION_STEP, (uint64_t)l->max_seqs * l->pages_per_seq * 4, "block_table");
  g->lists = add_fixed(g, REGION_STEP, (uint64_t)l->max_seqs * TOKEN_LIST_MAX * sizeof(token_bias), "token_lists");
  g->sampled = add_fixed(g, REGION_STATE, (uint64_t)l->max_seqs * 4, "sampled");
  g->result = add_fixed(g, REGION_RESULT, results * sizeof(sample_result), "result");
  g->digest = add_fixed(g, REGION_RESULT, results * 8, "digest");
  g->top = add_fixed(g, REGION_RESULT, results * TOP_LOGPROBS_MAX * sizeof(top_logprob), "top_logprobs");
  g->cos_sin = add_fixed(g, REGION_TABLES, (uint64_t)l->max_len * m->rope_dim * 4, "cos_sin");
  g->q_scale = m->q_scale_beta != 0 ? add_fixed(g, REGION_TABLES, l->max_len * UINT64_C(4), "q_scale") : DRAFT_NONE;
  g->kv = add_fixed(g, REGION_KV, m->layers * kv_layer_bytes(g), "kv");
  g->history = add_fixed(g, REGION_KV, (uint64_t)l->kv_pages * PAGE_TOKENS * 4, "history");
}

static void add_embed(graph *g) {
  const plan_model *m = g->m;
  g->table = add_weight(g, "embed weight", "model.embed_tokens.weight", m->vocab, m->hidden);
  embed_args a = {.hidden = m->hidden, .vocab = m->vocab, .block_table_stride = g->l->pages_per_seq, .scale = m->embed_scale};
  g->x = add_work(g, g->rows * m->hidden * 4, "x");
  g->adds = NOTHING;
  const draft_ref refs[] = {ARG(embed_args, step, g->step, 0), ARG(embed_args, token, g->token, 0), ARG(embed_args, sampled, g->sampled, 0),
                            ARG(embed_args, table, g->table, 0), ARG(embed_args, position, g->position, 0), ARG(embed_args, seq, g->seq, 0),
                            ARG(embed_args, block_table, g->block_table, 0), ARG(embed_args, x, g->x, 0),
                            ARG(embed_args, history, g->history, 0)};
  ADD_OP(g, OP_embed, "embed", a, refs, ROWS_TOKENS);
}

/* Room for units: all groups of every sequence, and for every worker a group cut into chunks, within a bound. */
static uint32_t count_slots(const graph *g) {
  const plan_limits *l = g->l;
  uint64_t chunks = div_up(l->max_len, l->chunk_tokens), groups = div_up(chunks, l->group_chunks);
  uint64_t slots = l->split_rows_max * groups + (uint64_t)SPECIALISE_ATTN_CTAS * l->group_chunks;
  uint64_t slot_bytes = (uint64_t)g->m->heads * (g->m->kv_lora_rank + 2) * 4, most = GRAPH_PARTIAL_BYTES_MAX / slot_bytes;
  if (slots > l->split_rows_max * chunks) slots = l->split_rows_max * chunks;
  return (uint32_t)(slots > most ? most : slots);
}

/* The cut of the attention, for all layers. The estimates: what an H200 needs, in nanoseconds, as measured there. Only the cut depends on
 * them, and no bit. */
static void add_cut(graph *g) {
  const plan_model *m = g->m;
  const plan_limits *l = g->l;
  const bool is_narrow = m->heads <= 32;
  attn_cut_args a = {.heads = m->heads, .block_table_stride = l->pages_per_seq, .chunk_tokens = l->chunk_tokens,
                     .group_chunks = l->group_chunks, .slots_max = count_slots(g), .split_ns = 2500};
  a.workers = is_narrow ? SPECIALISE_ATTN_CTAS : SPECIALISE_ATTN_CTAS / 2; /* pairs of blocks */
  a.block_ns = is_narrow ? 1000 : 1500;
  a.piece_ns = is_narrow ? 500 : 2000;
  a.stream_ns = (m->kv_lora_rank + m->rope_dim) * 128 / 4300;
  a.slot_ns = m->heads * m->kv_lora_rank * 8 / 3000;
  g->slots = a.slots_max;
  g->counts = add_work(g, sizeof(attn_counts), "attn_counts");
  g->pieces = add_work(g, ((uint64_t)l->split_rows_max + g->slots) * sizeof(attn_piece), "attn_pieces");
  g->parts = add_work(g, (uint64_t)l->split_rows_max * sizeof(attn_part), "attn_parts");
  const draft_ref refs[] = {ARG(attn_cut_args, step, g->step, 0),     ARG(attn_cut_args, tiles, g->tiles, 0),
                            ARG(attn_cut_args, block_table, g->block_table, 0), ARG(attn_cut_args, counts, g->counts, 0),
                            ARG(attn_cut_args, pieces, g->pieces, 0), ARG(attn_cut_args, parts, g->parts, 0)};
  g->token_rows = made_rows(g);
  add_op_rows(g, (op_call){.kernel = OP_attn_cut, .what = "attn_cut", .args = &a, .args_bytes = sizeof a, .refs = refs,
                           .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = l->split_rows_max});
  g->token_rows = ROWS_TOKENS;
}

static uint32_t add_head(graph *g, bool is_tied) {
  const plan_model *m = g->m;
  uint32_t norm = add_weight(g, "final_norm weight", "model.norm.weight", 1, m->hidden);
  matrix h = add_matrix(g, g->logit_rows, m->hidden, 2, "final_norm");
  add_norm(g, "final_norm", (matrix){g->x, m->hidden, 0}, g->adds, norm, h, m->hidden, m->norm_eps, true);
  uint32_t weight = is_tied ? g->table : add_weight(g, "lm_head weight", "lm_head.weight", m->vocab, m->hidden);
  matrix logits = add_matrix(g, g->logit_rows, m->vocab, 4, "logits");
  add_gemm(g, "lm_head", h, weight, logits, (gemm_args){.n = m->vocab, .k = m->hidden, .y_kind = Y_F32, .rows_kind = ROWS_LOGITS});
  row_digest_args digest = {.rows_kind = ROWS_LOGITS, .words = m->vocab, .stride = m->vocab};
  const draft_ref digest_refs[] = {ARG(row_digest_args, step, g->step, 0), ARG(row_digest_args, x, logits.buffer, 0),
                                   ARG(row_digest_args, digest, g->digest, 0)};
  ADD_OP(g, OP_row_digest, "row_digest", digest, digest_refs, ROWS_LOGITS);
  matrix adjusted = add_matrix(g, g->logit_rows, m->vocab, 4, "adjusted");
  adjust_args adjust = {.vocab = m->vocab, .block_table_stride = g->l->pages_per_seq};
  const draft_ref adjust_refs[] = {ARG(adjust_args, step, g->step, 0),          ARG(adjust_args, logits, logits.buffer, 0),
                                   ARG(adjust_args, param, g->sample, 0),       ARG(adjust_args, lists, g->lists, 0),
                                   ARG(adjust_args, history, g->history, 0),    ARG(adjust_args, block_table, g->block_table, 0),
                                   ARG(adjust_args, adjusted, adjusted.buffer, 0)};
  ADD_OP(g, OP_adjust, "adjust", adjust, adjust_refs, ROWS_LOGITS);
  sample_args sample = {.vocab = m->vocab};
  const draft_ref refs[] = {ARG(sample_args, step, g->step, 0), ARG(sample_args, logits, logits.buffer, 0),
                            ARG(sample_args, adjusted, adjusted.buffer, 0), ARG(sample_args, param, g->sample, 0),
                            ARG(sample_args, sampled, g->sampled, 0), ARG(sample_args, result, g->result, 0),
                            ARG(sample_args, top, g->top, 0)};
  ADD_OP(g, OP_sample, "sample", sample, refs, ROWS_LOGITS);
  return logits.buffer;
}

void graph_build(draft *plan, const profile *known, bool is_tied) {
  graph *g = &(graph){.plan = plan, .known = known, .m = &plan->model, .l = &plan->limits, .layer = UINT32_MAX};
  ASSERT(g->l->split_rows_max >= 1 && g->l->split_rows_max <= g->l->max_batch_tokens);
  ASSERT(g->m->dense_layers == g->m->layers || g->m->experts > 0);
  g->rows = align_up(g->l->max_batch_tokens, GRAPH_ROWS_PAD);
  g->logit_rows = align_up(g->l->max_logit_rows, GRAPH_ROWS_PAD);
  add_io(g);
  add_embed(g);
  add_cut(g);
  for (g->layer = 0; g->layer < g->m->layers; g->layer++) {
    add_attention_block(g);
    add_feed_forward_block(g);
  }
  g->layer = UINT32_MAX;
  uint32_t logits = add_head(g, is_tied);
  const uint32_t io[] = {g->step,   g->token,       g->position, g->seq,    g->tiles,  g->logit_row, g->sample,
                         g->block_table, g->lists, g->sampled, g->result, g->digest, g->top, logits, g->cos_sin, g->q_scale, g->history,
                         g->prompt_tiles, g->contexts};
  _Static_assert(sizeof io / sizeof io[0] == sizeof(plan_io) / 8, "one buffer per field, in its order");
  memcpy(plan->io_buffer, io, sizeof io);
  if (g->gemm_workspace_bytes) plan->gemm_workspace = add_fixed(g, REGION_WORK, g->gemm_workspace_bytes, "gemm_workspace");
}
