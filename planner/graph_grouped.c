/* graph_grouped.c - see graph_grouped.h. One function per op, in the order of the forward pass.
 *
 * The product of queries, keys and values has its columns in the order of the KV heads, so that ranks can divide it. Must not know memory
 * offsets. Read next: graph_feed.c. */
#include "graph_grouped.h"
#include "attn/attn_cut.h"
#include "graph_product.h"
#include "graph_ranks.h"
#include "specialise.h"

#define PARTIAL_BYTES_MAX (UINT64_C(256) << 20) /* for the attention's units; with less room, contexts are split less */

typedef struct shape { /* of a rank */
  uint32_t heads, kv_heads, group, head_dim, v_dim;
  uint32_t head_columns; /* of the product, for each KV head */
  uint32_t all_heads, all_kv_heads; /* of all ranks */
} shape;

static shape shape_of(const graph *g) {
  const plan_grouped *grouped = &g->plan->grouped;
  shape s = {.heads = g->heads, .kv_heads = grouped->kv_heads / plan_attention_ranks(grouped, g->l), .all_heads = g->m->heads,
             .all_kv_heads = grouped->kv_heads, .head_dim = g->m->nope_dim + g->m->rope_dim, .v_dim = g->m->v_dim};
  s.group = s.heads / s.kv_heads;
  s.head_columns = (s.group + 1) * s.head_dim + s.v_dim;
  return s;
}

/* rank_columns of what is divided by heads. */
static uint32_t by_heads(const graph *g) { return g->heads < g->m->heads ? UINT32_MAX : 0; }

/* === The product of queries, keys and values ================================================================================ */

typedef struct source { /* one of the three projections: `rows` of every KV head of all ranks, from row0 on in a tensor of `whole` rows */
  const char *module;
  uint32_t row0, rows, whole;
} source;

static void list_sources(const graph *g, const shape *s, source list[3]) {
  const uint32_t q = s->all_heads * s->head_dim, k = s->all_kv_heads * s->head_dim, v = s->all_kv_heads * s->v_dim;
  const bool is_fused = g->config->fuses_qkv;
  list[0] = (source){is_fused ? "self_attn.qkv_proj" : "self_attn.q_proj", 0, s->group * s->head_dim, is_fused ? q + k + v : q};
  list[1] = (source){is_fused ? list[0].module : "self_attn.k_proj", is_fused ? q : 0, s->head_dim, is_fused ? q + k + v : k};
  list[2] = (source){is_fused ? list[0].module : "self_attn.v_proj", is_fused ? q + k : 0, s->v_dim, is_fused ? q + k + v : v};
}

/* Rows of one KV head: of this rank's number `head`. unit: rows of the files' tensor for each row of its scales, else 1. */
static void add_slice(graph *g, const shape *s, const source *from, uint32_t head, const char *leaf, uint32_t cols, uint32_t unit,
                      uint32_t dtype) {
  char name[NAME_BYTES_MAX];
  const uint32_t rows = from->rows / unit, own = rows * s->kv_heads;
  plan_tensor slice = {.dtype = dtype, .rows = (uint32_t)div_up(from->whole, unit), .cols = cols, .row0 = from->row0 / unit + head * rows,
                       .row_count = rows, .row_step = own, .batches = 1, .rank_step = by_heads(g) ? own : 0};
  snprintf(name, sizeof name, "%s.%s", from->module, leaf);
  graph_add_tensor(g, name, slice);
}

static uint32_t add_slices(graph *g, const shape *s, const char *what, const char *leaf, uint32_t cols, uint32_t unit, uint32_t dtype) {
  source list[3];
  list_sources(g, s, list);
  const uint32_t buffer = graph_add_weight_begin(g, what);
  for (uint32_t head = 0; head < s->kv_heads; head++)
    for (uint32_t i = 0; i < ARRAY_LEN(list); i++) add_slice(g, s, &list[i], head, leaf, cols, unit, dtype);
  return buffer;
}

static matrix add_product(graph *g, const shape *s, product_rows *rows) {
  const bool is_scaled = graph_product_is_scaled(g, PRODUCT_QKV);
  product_weight weight = {.scales = DRAFT_NONE, .bias = DRAFT_NONE};
  weight.w = add_slices(g, s, "qkv weight", "weight", g->m->hidden, 1, is_scaled ? DTYPE_E4M3 : DTYPE_BF16);
  if (is_scaled)
    weight.scales = add_slices(g, s, "qkv scales", "weight_scale_inv", g->m->hidden / SCALE_COLUMNS, SCALE_COLUMNS, DTYPE_F32);
  matrix all = graph_add_matrix(g, g->rows, s->kv_heads * s->head_columns, 4, "qkv");
  all.part = by_heads(g);
  graph_product_add(g, "qkv", rows, weight, all, (gemm_args){.n = all.stride, .y_kind = Y_F32});
  return all;
}

/* === Queries and the KV row ================================================================================================= */

static uint32_t add_norm_weight(graph *g, const char *what, const char *name, uint32_t heads, uint32_t head_dim) {
  const uint32_t norm = g->plan->grouped.qk_norm;
  if (norm == QK_NORM_NONE) return DRAFT_NONE;
  return graph_add_weight(g, what, name, 1, norm == QK_NORM_ROW ? heads * head_dim : head_dim);
}

static matrix add_kv_rope(graph *g, const shape *s, matrix all) {
  const plan_model *m = g->m;
  const plan_grouped *grouped = &g->plan->grouped;
  const bool is_unrotated = grouped->unrotated[g->layer / 64] >> g->layer % 64 & 1;
  matrix q = graph_add_matrix(g, g->rows, s->heads * s->head_dim, 2, "q");
  const uint32_t bias = grouped->has_bias & BIAS_QKV ? add_slices(g, s, "qkv bias", "bias", 1, 1, DTYPE_BF16) : DRAFT_NONE;
  const uint32_t q_norm = add_norm_weight(g, "q_norm weight", "self_attn.q_norm.weight", s->heads, s->head_dim);
  const uint32_t k_norm = add_norm_weight(g, "k_norm weight", "self_attn.k_norm.weight", s->kv_heads, s->head_dim);
  if (g->plan->quant.kv_format == KV_FP8) g->kv_scale = graph_add_vector(g, "kv_scale", PLAN_KV_SCALE, 1);
  const kv_rope_args a = {.x_stride = all.stride, .heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->head_dim, .v_dim = s->v_dim,
                          .rope_dim = m->rope_dim, .block_table_stride = g->l->pages_per_seq, .eps = m->norm_eps,
                          .half_split = m->rope_half_split, .norms_row = grouped->qk_norm == QK_NORM_ROW,
                          .kv_format = g->plan->quant.kv_format};
  const draft_ref refs[] = {ARG(kv_rope_args, step, g->step, 0),
                            ARG(kv_rope_args, x, all.buffer, 0),
                            ARG(kv_rope_args, bias, bias, 0),
                            ARG(kv_rope_args, q_norm, q_norm, 0),
                            ARG(kv_rope_args, k_norm, k_norm, 0),
                            ARG(kv_rope_args, cos_sin, is_unrotated ? DRAFT_NONE : g->cos_sin, 0),
                            ARG(kv_rope_args, position, g->position, 0),
                            ARG(kv_rope_args, seq, g->seq, 0),
                            ARG(kv_rope_args, block_table, g->block_table, 0),
                            ARG(kv_rope_args, q_out, q.buffer, 0),
                            ARG(kv_rope_args, kv, g->kv, g->layer * g->kv_layer_bytes),
                            ARG(kv_rope_args, kv_scale, g->kv_scale, 0)};
  graph_add_op_rows(g, (op_call){.kernel = OP_kv_rope, .what = "kv_rope", .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = g->l->max_batch_tokens,
                                 .rank_columns = by_heads(g)});
  return q;
}

/* === Attention ============================================================================================================== */

typedef struct units { /* buffers of split attention, or DRAFT_NONE */
  uint32_t o, ml;
} units;

static void add_form(graph *g, const shape *s, matrix q, matrix out, uint32_t scratch, units u, uint32_t rows_min, uint32_t rows_max) {
  const plan_model *m = g->m;
  const bool is_split = u.o != DRAFT_NONE;
  const attn_args a = {.heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->head_dim, .v_dim = s->v_dim,
                       .block_table_stride = g->l->pages_per_seq, .chunk_tokens = g->l->chunk_tokens,
                       .slots_max = is_split ? g->split.slots : 0, .scale_log2 = m->softmax_scale_log2,
                       .kv_format = g->plan->quant.kv_format};
  const draft_ref refs[] = {ARG(attn_args, step, g->step, 0),
                            ARG(attn_args, tiles, g->tiles, 0),
                            ARG(attn_args, q, q.buffer, 0),
                            ARG(attn_args, kv, g->kv, g->layer * g->kv_layer_bytes),
                            ARG(attn_args, kv_scale, g->kv_scale, 0),
                            ARG(attn_args, block_table, g->block_table, 0),
                            ARG(attn_args, out, out.buffer, 0),
                            ARG(attn_args, partial_o, u.o, 0),
                            ARG(attn_args, partial_ml, u.ml, 0),
                            ARG(attn_args, counts, is_split ? g->split.counts : DRAFT_NONE, 0),
                            ARG(attn_args, pieces, is_split ? g->split.pieces : DRAFT_NONE, 0),
                            ARG(attn_args, scratch, scratch, 0)};
  graph_add_op_rows(g, (op_call){.kernel = OP_attn, .what = "attn", .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = rows_min, .rows_max = rows_max,
                                 .rank_columns = by_heads(g)});
}

static void add_fold(graph *g, const shape *s, units u, matrix out) {
  const attn_fold_args a = {.heads = s->heads, .v_dim = s->v_dim, .slots_max = g->split.slots};
  const draft_ref refs[] = {ARG(attn_fold_args, step, g->step, 0), ARG(attn_fold_args, counts, g->split.counts, 0),
                            ARG(attn_fold_args, parts, g->split.parts, 0), ARG(attn_fold_args, partial_o, u.o, 0),
                            ARG(attn_fold_args, partial_ml, u.ml, 0), ARG(attn_fold_args, out, out.buffer, 0)};
  graph_add_op_rows(g, (op_call){.kernel = OP_attn_fold, .what = "attn_fold", .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = g->l->split_rows_max,
                                 .rank_columns = by_heads(g)});
}

/* Over whole contexts, then over split ones. */
static matrix add_attention(graph *g, const shape *s, matrix q) {
  const plan_limits *l = g->l;
  const uint64_t floats = (uint64_t)SPECIALISE_GROUPED_CTAS * attn_grouped_floats(s->v_dim);
  matrix out = graph_add_matrix(g, g->rows, s->heads * s->v_dim, 2, "attn_value");
  out.part = by_heads(g);
  const uint32_t scratch = graph_add_work(g, floats * 4, "attn_scratch");
  if (l->split_rows_max < l->max_batch_tokens)
    add_form(g, s, q, out, scratch, (units){DRAFT_NONE, DRAFT_NONE}, l->split_rows_max + 1, l->max_batch_tokens);
  const units u = {graph_add_work(g, (uint64_t)g->split.slots * s->heads * s->v_dim * 4, "partial_o"),
                   graph_add_work(g, (uint64_t)g->split.slots * s->heads * 2 * 4, "partial_ml")};
  add_form(g, s, q, out, scratch, u, 1, l->split_rows_max);
  add_fold(g, s, u, out);
  return out;
}

matrix graph_grouped_add(graph *g, product_rows *rows) {
  const plan_model *m = g->m;
  const shape s = shape_of(g);
  const matrix all = add_product(g, &s, rows), q = add_kv_rope(g, &s, all);
  product_rows values = graph_product_rows(add_attention(g, &s, q), "attn_value");
  const bool is_scaled = graph_product_is_scaled(g, PRODUCT_O);
  const uint32_t own = graph_ranks_share(g, m->hidden, graph_product_unit(g));
  const product_part o_proj = {.of = "self_attn", .leaf = "o_proj", .rows = m->hidden, .product = PRODUCT_O, .what = "o_proj", .own = own,
                               .has_bias = g->plan->grouped.has_bias & BIAS_OUTPUT};
  graph_ranks_gather_rows(g, "attn_value exchange", &(divided_rows){&values, is_scaled, 0}, 1);
  return graph_product_parts(g, "attn_delta", &values, &o_proj, 1);
}

/* Room for units: a chunk each of every sequence, up to a limit. */
static uint32_t count_slots(const graph *g, const shape *s) {
  const plan_limits *l = g->l;
  const uint64_t slots = l->split_rows_max * div_up(l->max_len, l->chunk_tokens), slot_bytes = (uint64_t)s->heads * (s->v_dim + 2) * 4;
  return (uint32_t)min_u64(slots, PARTIAL_BYTES_MAX / slot_bytes);
}

/* The estimates are nanoseconds on an H200; only the split depends on them, and no bit. */
void graph_grouped_cut(graph *g) {
  const plan_limits *l = g->l;
  const shape s = shape_of(g);
  const uint32_t block_bytes = plan_kv_row_bytes(g->m, &g->plan->quant, &g->plan->grouped, l) / s.kv_heads * PAGE_TOKENS;
  attn_cut_args a = {.heads = s.heads, .kv_heads = s.kv_heads, .block_table_stride = l->pages_per_seq, .slots_max = count_slots(g, &s),
                     .chunk_tokens = l->chunk_tokens, .group_chunks = l->group_chunks, .block_ns = 1000, .piece_ns = 500, .split_ns = 2500};
  a.workers = SPECIALISE_GROUPED_CTAS;
  a.stream_ns = max_u32(1, block_bytes / 4300);
  a.slot_ns = max_u32(1, s.heads * s.v_dim * 8 / 3000);
  g->split.slots = a.slots_max;
  ASSERT(g->split.slots > 0);
  g->split.counts = graph_add_work(g, sizeof(attn_counts), "attn_counts");
  g->split.pieces = graph_add_work(g, ((uint64_t)l->split_rows_max + g->split.slots) * sizeof(attn_piece), "attn_pieces");
  g->split.parts = graph_add_work(g, (uint64_t)l->split_rows_max * sizeof(attn_part), "attn_parts");
  const draft_ref refs[] = {ARG(attn_cut_args, step, g->step, 0),     ARG(attn_cut_args, tiles, g->tiles, 0),
                            ARG(attn_cut_args, block_table, g->block_table, 0), ARG(attn_cut_args, counts, g->split.counts, 0),
                            ARG(attn_cut_args, pieces, g->split.pieces, 0), ARG(attn_cut_args, parts, g->split.parts, 0)};
  graph_add_op_rows(g, (op_call){.kernel = OP_attn_cut, .what = "attn_cut", .args = &a, .args_bytes = sizeof a, .refs = refs,
                           .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = l->split_rows_max});
}
