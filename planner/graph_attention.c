/* graph_attention.c - see graph_attention.h. One function per part, in the order of the forward pass.
 *
 * Must not know memory offsets. Read next: graph_feed.c. */
#include "graph_attention.h"
#include "attn/attn_cut.h"
#include "graph_grouped.h"
#include "graph_index.h"
#include "graph_product.h"
#include "graph_ranks.h"
#include "graph_rows.h"
#include "engine/plan/format_widen.h"
#include "specialise.h"

#define PARTIAL_BYTES_MAX (UINT64_C(256) << 20) /* for the attention's units; with less room, contexts are split less */

typedef struct projections { /* fp32 sources of qkv_rope, and of index_qk where the layer has an indexer */
  matrix q, kv, index_q, index_k, index_w;
} projections;

/* fp32 columns from `column` on. */
static matrix columns_from(matrix all, uint32_t column) { return (matrix){all.buffer, all.stride, column * UINT64_C(4), 0}; }

/* The inputs of q_b and of the indexer's queries. */
static void add_query_projections(graph *g, matrix q_a_source, uint32_t first, projections *p) {
  const plan_model *m = g->m;
  const uint32_t of_head = m->nope_dim + m->rope_dim, q_columns = g->heads * of_head;
  const uint32_t index_columns = g->plan->quant.index_heads * INDEX_DIM;
  const product_part parts[] = {{"self_attn", "q_b_proj", m->heads * of_head, PRODUCT_Q_B, "q_b", q_columns, 0, 0, false},
                                {"self_attn.indexer", "wq_b", index_columns, PRODUCT_INDEX_Q, "index_q_b", index_columns, 0, 0, false}};
  const uint32_t norm = graph_add_weight(g, "q_a_norm weight", "self_attn.q_a_layernorm.weight", 1, m->q_lora_rank);
  const matrix q_a = graph_add_matrix(g, g->rows, m->q_lora_rank, 2, "q_a");
  graph_add_norm(g, "q_a_norm", q_a_source, GRAPH_NOTHING, norm, q_a, m->q_lora_rank, m->latent_eps, false);
  product_rows rows = graph_product_rows(q_a, "q_a");
  const bool has_indexer = plan_has_indexer(&g->plan->quant, g->layer);
  const bool is_scaled = graph_product_is_scaled(g, PRODUCT_Q_B) && (!has_indexer || graph_product_is_scaled(g, PRODUCT_INDEX_Q));
  const rows_table rest = {q_a_source.buffer, q_a_source.stride * 4, first * 4, (q_a_source.stride - first) * 4};
  graph_rows_gather(g, "q_a exchange", &rows, is_scaled, &rest, 1);
  p->q = graph_product_parts(g, "q", &rows, parts, has_indexer ? 2 : 1);
  p->index_q = columns_from(p->q, q_columns);
}

/* One product for everything that reads the block's input, as far as formats allow, then the query's second factor, if it has one. The KV
 * columns come after the indexer's key, because they need not be whole blocks of scales. */
static projections add_projections(graph *g, product_rows *rows) {
  const plan_model *m = g->m;
  const bool has_indexer = plan_has_indexer(&g->plan->quant, g->layer);
  const uint32_t of_head = m->nope_dim + m->rope_dim, first = m->q_lora_rank ? m->q_lora_rank : g->heads * of_head;
  const uint32_t key = has_indexer ? INDEX_DIM : 0, latent = m->kv_lora_rank + m->rope_dim, index_heads = g->plan->quant.index_heads;
  const product_part q_a = {"self_attn", "q_a_proj", first, PRODUCT_QKV_A, "qkv_a", first, 0, 0, false};
  const product_part q_whole = {"self_attn", "q_proj", m->heads * of_head, PRODUCT_QKV_A, "qkv_a", first, 0, 0, false};
  const product_part q = m->q_lora_rank ? q_a : q_whole;
  const product_part kv = {"self_attn", "kv_a_proj_with_mqa", latent, PRODUCT_QKV_A, "kv_a", latent, 0, 0, false};
  const product_part k = {"self_attn.indexer", "wk", key, PRODUCT_INDEX_K, "index_k", key, 0, 0, false};
  const product_part w = {"self_attn.indexer", "weights_proj", index_heads, PRODUCT_COUNT, "index_w", index_heads, 0, 0, false};
  const product_part dense[] = {q, kv}, sparse[] = {q, k, kv, w};
  const product_part *parts = has_indexer ? sparse : dense;
  const uint32_t count = has_indexer ? 4 : 2;
  bool is_scaled = true;
  for (uint32_t i = 0; i < count; i++) is_scaled &= graph_product_is_scaled(g, parts[i].product);
  if (!m->q_lora_rank) graph_rows_gather(g, "input_norm exchange", rows, is_scaled, NULL, 0);
  const matrix all = graph_product_parts(g, "qkv_a", rows, parts, count);
  projections p = {.q = all, .kv = columns_from(all, first + key), .index_k = columns_from(all, first),
                   .index_w = columns_from(all, first + key + latent)};
  if (m->q_lora_rank) add_query_projections(g, all, first, &p);
  return p;
}

/* Rows that attend in the absorbed form. */
static enum rows_kind absorbed_rows(const graph *g) { return g->l->parity == PARITY_STRICT ? ROWS_TOKENS : ROWS_MADE; }

/* The most places a query attends to. */
static uint32_t longest_context(const graph *g) {
  const uint32_t listed = g->plan->quant.index_topk;
  return listed ? min_u32(listed, g->l->max_len) : g->l->max_len;
}

typedef struct queries {
  matrix nope, latent;
} queries;

/* `count` of each head's rows in kv_b, from row0 on; as bf16, whatever their format in the files. */
static uint32_t add_kv_b(graph *g, const char *what, uint32_t row0, uint32_t count, uint32_t transform) {
  const plan_model *m = g->m;
  const uint32_t of_head = m->nope_dim + m->v_dim, buffer = graph_add_weight_begin(g, what);
  graph_add_module(g, "self_attn.kv_b_proj", graph_product_is_scaled(g, PRODUCT_KV_B),
                   (plan_tensor){.dtype = DTYPE_BF16, .rows = m->heads * of_head, .cols = m->kv_lora_rank, .row0 = row0,
                                 .row_count = count, .row_step = of_head, .batches = g->heads, .transform = transform,
                                 .rank_step = graph_ranks_step(g, g->heads * of_head)});
  return buffer;
}

/* The token's KV row, and the queries in latent form: rotated columns by qkv_rope, the others through W_uk; a single token by one op. */
static queries add_queries(graph *g, projections p) {
  const plan_model *m = g->m;
  uint32_t row = m->kv_lora_rank + m->rope_dim;
  matrix q_nope = graph_add_matrix(g, g->rows, g->heads * m->nope_dim, 2, "q_nope");
  matrix q_latent = graph_add_matrix(g, g->rows, g->heads * row, 2, "q_latent");
  q_latent.part = graph_ranks_all(g);
  const uint32_t w_uk = add_kv_b(g, "w_uk", 0, m->nope_dim, TRANSFORM_TRANSPOSE);
  uint32_t norm = graph_add_weight(g, "kv_a_norm weight", "self_attn.kv_a_layernorm.weight", 1, m->kv_lora_rank);
  const bool has_scale = g->plan->quant.kv_format == KV_FP8 && g->pass == 0; /* nothing calibrates the prediction layer: it has the last
                                                                                 layer's scale */
  if (has_scale) g->kv_scale = graph_add_vector(g, "kv_scale", "self_attn.k_scale", 1);
  qkv_rope_args a = {.q_stride = p.q.stride, .kv_in_stride = p.kv.stride, .heads = g->heads, .nope_dim = m->nope_dim,
                     .rope_dim = m->rope_dim, .kv_lora_rank = m->kv_lora_rank, .block_table_stride = g->l->pages_per_seq,
                     .eps = m->latent_eps, .half_split = m->rope_half_split, .kv_format = g->plan->quant.kv_format,
                     .scale_kind = g->plan->quant.kv_scale};
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
                            ARG(qkv_rope_args, kv, g->kv, g->layer * g->kv_layer_bytes),
                            ARG(qkv_rope_args, kv_scale, g->kv_scale, 0),
                            ARG(qkv_rope_args, w_uk, w_uk, 0)};
  op_call call = {.kernel = OP_qkv_rope, .what = "qkv_rope", .args = &a, .args_bytes = sizeof a, .refs = refs, .ref_count = ARRAY_LEN(refs),
                  .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = g->l->max_batch_tokens, .rank_columns = graph_ranks_all(g)};
  a.absorbs = absorbed_rows(g) == ROWS_TOKENS; /* else the one token may be a prompt's */
  if (a.absorbs) {
    call.rows_max = 1;
    graph_add_op_rows(g, call);
    call.rows_min = 2;
    call.rows_max = g->l->max_batch_tokens;
    a.absorbs = 0;
  }
  call.ref_count--;
  if (call.rows_min <= call.rows_max) graph_add_op_rows(g, call);
  g->token_rows = absorbed_rows(g);
  graph_add_gemm_from(g, "absorb", q_nope, w_uk, q_latent,
                      (gemm_args){.n = m->kv_lora_rank, .k = m->nope_dim, .batches = g->heads, .x_batch = m->nope_dim,
                                  .w_batch = (uint64_t)m->kv_lora_rank * m->nope_dim, .y_batch = row}, call.rows_min);
  g->token_rows = ROWS_TOKENS;
  return (queries){q_nope, q_latent};
}

typedef struct attn_buffers {
  uint32_t q, out, scratch, partial_o, partial_ml, counts, pieces; /* the last four: DRAFT_NONE if nothing is split */
  uint32_t kv, kv_scale, block_table, tiles;
  uint64_t kv_offset;
  bool by_requests;
} attn_buffers;

static void add_attn_form(graph *g, mla_attn_args a, attn_buffers b, uint32_t rows_min, uint32_t rows_max) {
  const draft_ref refs[] = {ARG(mla_attn_args, step, g->step, 0),
                            ARG(mla_attn_args, tiles, b.tiles, 0),
                            ARG(mla_attn_args, q, b.q, 0),
                            ARG(mla_attn_args, kv, b.kv, b.kv_offset),
                            ARG(mla_attn_args, kv_scale, b.kv_scale, 0),
                            ARG(mla_attn_args, lists, g->chosen, 0),
                            ARG(mla_attn_args, block_table, b.block_table, 0),
                            ARG(mla_attn_args, out, b.out, 0),
                            ARG(mla_attn_args, partial_o, b.partial_o, 0),
                            ARG(mla_attn_args, partial_ml, b.partial_ml, 0),
                            ARG(mla_attn_args, counts, b.counts, 0),
                            ARG(mla_attn_args, pieces, b.pieces, 0),
                            ARG(mla_attn_args, scratch, b.scratch, 0),
                            ARG(mla_attn_args, meetings, g->meetings, 0)};
  graph_add_op_rows(g, (op_call){.kernel = OP_mla_attn, .what = b.by_requests ? "mla_attn by requests" : "mla_attn", .args = &a,
                                 .args_bytes = sizeof a, .refs = refs, .ref_count = ARRAY_LEN(refs),
                                 .rows_kind = b.by_requests ? ROWS_BY_REQUESTS : ROWS_TOKENS, .rows_min = rows_min, .rows_max = rows_max,
                                 .rank_columns = b.by_requests ? 0 : graph_ranks_all(g)});
}

/* A step of one token computes the values in the same op, as long as it has few units, because every block of a head folds them. */
#define LIFT_UNITS_MAX 64u

/* Returns the row count from which on the values have their own op. */
static uint32_t add_fold(graph *g, const attn_split *split, attn_buffers b, uint32_t w_uv, matrix value) {
  const plan_model *m = g->m;
  mla_fold_args a = {.heads = split->heads, .kv_lora_rank = m->kv_lora_rank, .group_chunks = g->l->group_chunks,
                     .slots_max = split->slots, .v_dim = m->v_dim};
  const draft_ref refs[] = {ARG(mla_fold_args, step, g->step, 0), ARG(mla_fold_args, counts, split->counts, 0),
                            ARG(mla_fold_args, parts, split->parts, 0), ARG(mla_fold_args, partial_o, b.partial_o, 0),
                            ARG(mla_fold_args, partial_ml, b.partial_ml, 0), ARG(mla_fold_args, out, b.out, 0),
                            ARG(mla_fold_args, w_uv, w_uv, 0), ARG(mla_fold_args, value, value.buffer, 0)};
  op_call call = {.kernel = OP_mla_fold, .what = "mla_fold", .args = &a, .args_bytes = sizeof a, .refs = refs, .ref_count = ARRAY_LEN(refs),
                  .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = g->l->split_rows_max, .rank_columns = graph_ranks_all(g)};
  if (b.by_requests) { /* in which the ranks of the heads compute the values */
    call.what = "mla_fold by requests";
    call.rows_kind = ROWS_BY_REQUESTS;
    call.rows_min = g->l->requests_rows;
    call.rank_columns = 0;
  } else if (div_up(longest_context(g), g->l->chunk_tokens) <= LIFT_UNITS_MAX) {
    a.lifts = call.rows_max = 1;
    graph_add_op_rows(g, call);
    a.lifts = 0;
    call.rows_min = 2;
    call.rows_max = g->l->split_rows_max;
  }
  call.ref_count -= 2;
  if (call.rows_min <= call.rows_max) graph_add_op_rows(g, call);
  return call.rows_min;
}

typedef struct widened {
  uint32_t rows, table; /* table: DRAFT_NONE for mla_expand, which takes a piece's pages in order */
} widened;

/* A workspace with the rows of prompts' contexts as bf16. */
static widened add_kv_widen(graph *g, bool has_table) {
  const plan_model *m = g->m;
  const uint32_t pages = g->l->expand_pages;
  const matrix rows = graph_add_matrix(g, (uint64_t)pages * PAGE_TOKENS, m->kv_lora_rank + m->rope_dim, 2, "widened");
  const uint32_t table = has_table ? graph_add_work(g, pages * UINT64_C(4), "widened_table") : DRAFT_NONE;
  const kv_widen_args w = {.kv_lora_rank = m->kv_lora_rank, .rope_dim = m->rope_dim, .block_table_stride = g->l->pages_per_seq,
                           .kv_format = g->plan->quant.kv_format, .pages_max = pages};
  const draft_ref refs[] = {ARG(kv_widen_args, step, g->step, 0), ARG(kv_widen_args, contexts, g->contexts, 0),
                            ARG(kv_widen_args, kv, g->kv, g->layer * g->kv_layer_bytes), ARG(kv_widen_args, kv_scale, g->kv_scale, 0),
                            ARG(kv_widen_args, block_table, g->block_table, 0), ARG(kv_widen_args, y, rows.buffer, 0),
                            ARG(kv_widen_args, table, table, 0)};
  ADD_OP(g, OP_kv_widen, "kv_widen", w, refs, ROWS_TOKENS);
  return (widened){rows.buffer, table};
}

/* For requests whose tiles read a context's rows often enough: dequantizes these rows to bf16 once, into a workspace, and attends to them
 * there. */
static void add_widened(graph *g, mla_attn_args a, attn_buffers b) {
  g->token_rows = ROWS_PROMPT;
  const widened w = add_kv_widen(g, true);
  a.kv_format = KV_BF16;
  a.block_table_stride = 1; /* a tile's row is the first page of its context */
  b.kv = w.rows;
  b.kv_offset = 0;
  b.kv_scale = DRAFT_NONE;
  b.block_table = w.table;
  b.tiles = g->prompt_tiles;
  add_attn_form(g, a, b, 1, g->l->max_batch_tokens);
}

/* Returns the row count from which on the values have their own op. */
static uint32_t add_cut_attention(graph *g, const attn_split *split, mla_attn_args a, attn_buffers b, uint32_t w_uv, matrix value) {
  const plan_model *m = g->m;
  a.slots_max = split->slots;
  b.partial_o = graph_add_work(g, (uint64_t)split->slots * split->heads * m->kv_lora_rank * 4, "partial_o");
  b.partial_ml = graph_add_work(g, (uint64_t)split->slots * split->heads * 2 * 4, "partial_ml");
  b.counts = split->counts;
  b.pieces = split->pieces;
  add_attn_form(g, a, b, b.by_requests ? g->l->requests_rows : 1, g->l->split_rows_max);
  return add_fold(g, split, b, w_uv, value);
}

static mla_attn_args attention_of(const graph *g, uint32_t heads) {
  const plan_model *m = g->m;
  return (mla_attn_args){.heads = heads, .kv_lora_rank = m->kv_lora_rank, .rope_dim = m->rope_dim,
                         .block_table_stride = g->l->pages_per_seq, .chunk_tokens = g->l->chunk_tokens,
                         .group_chunks = g->l->group_chunks, .scale_log2 = m->softmax_scale_log2,
                         .kv_format = g->plan->quant.kv_format, .list_max = g->plan->quant.index_topk};
}

/* In a step that attends by requests: queries of all heads come to the owner of a row, which attends, and each rank gets what is of its
 * heads. */
static void add_by_requests(graph *g, attn_buffers b, matrix q, matrix out) {
  const plan_model *m = g->m;
  const attn_split *split = &g->request_split;
  const mla_attn_args a = attention_of(g, m->heads);
  const uint64_t rows = g->l->split_rows_max, floats = attn_scratch_floats(attn_pass_rows(m->heads), m->kv_lora_rank);
  b.by_requests = true;
  b.q = graph_ranks_to_requests(g, "q_latent exchange", q, rows).buffer;
  const matrix whole = graph_add_matrix(g, rows, m->heads * m->kv_lora_rank, 2, "attn_latent by requests");
  b.out = whole.buffer;
  b.tiles = split->tiles;
  b.scratch = graph_add_work(g, SPECIALISE_ATTN_CTAS * floats * 4, "attn_scratch by requests");
  add_cut_attention(g, split, a, b, DRAFT_NONE, (matrix){.buffer = DRAFT_NONE});
  graph_ranks_from_requests(g, "attn_latent exchange", whole, out);
}

/* Attention over whole contexts, then over split ones if there may be any. lifted_from: row count from which on the values have their own
 * op. */
static matrix add_attention(graph *g, matrix q_latent, uint32_t w_uv, matrix value, uint32_t *lifted_from) {
  const plan_model *m = g->m;
  const plan_limits *l = g->l;
  matrix out = graph_add_matrix(g, g->rows, g->heads * m->kv_lora_rank, 2, "attn_latent");
  mla_attn_args a = attention_of(g, g->heads);
  attn_buffers b = {q_latent.buffer, out.buffer, DRAFT_NONE, DRAFT_NONE, DRAFT_NONE, DRAFT_NONE, DRAFT_NONE, g->kv, g->kv_scale,
                    g->block_table, g->tiles, g->layer * g->kv_layer_bytes, false};
  const bool by_requests = plan_has_requests(l) && g->pass == 0;
  const uint32_t split_rows = g->split.slots > 0 ? l->split_rows_max : 0;
  const bool has_whole = split_rows < l->max_batch_tokens;
  uint32_t wide = has_whole || plan_has_widening(l) ? attn_scratch_floats(64, m->kv_lora_rank) : 0; /* one buffer for both forms */
  uint32_t floats = max_u32(wide, attn_scratch_floats(attn_pass_rows(g->heads), m->kv_lora_rank));
  if (attn_may_spread(&a)) floats = max_u32(floats, attn_block_floats(&a));
  b.scratch = graph_add_work(g, (uint64_t)SPECIALISE_ATTN_CTAS * floats * 4, "attn_scratch");
  g->token_rows = by_requests ? ROWS_BY_HEADS : plan_heads_kind(g->l);
  if (has_whole) add_attn_form(g, a, b, split_rows + 1, l->max_batch_tokens);
  if (split_rows > 0) *lifted_from = add_cut_attention(g, &g->split, a, b, w_uv, value);
  else *lifted_from = 1;
  if (by_requests) add_by_requests(g, b, q_latent, out);
  if (plan_has_widening(l)) add_widened(g, a, b);
  g->token_rows = absorbed_rows(g);
  return out;
}

/* The workspace for a piece of the contexts, and the rows' state between pieces; one of each for all layers. kv_b is bf16, whatever its
 * format in the files, as w_uk and w_uv are. Rows of other formats than bf16 are dequantized piece by piece. */
static void add_prompt_attention(graph *g, queries q, matrix value) {
  const plan_model *m = g->m;
  const plan_limits *l = g->l;
  const uint32_t of_head = m->nope_dim + m->v_dim, n = g->heads * of_head, latent_row = m->kv_lora_rank + m->rope_dim;
  const uint32_t weight = graph_add_weight_begin(g, "kv_b weight");
  const bool is_widened = g->plan->quant.kv_format != KV_BF16;
  graph_add_module(g, "self_attn.kv_b_proj", graph_product_is_scaled(g, PRODUCT_KV_B),
                   graph_ranks_rows(g, graph_whole(m->heads * of_head, m->kv_lora_rank), n));
  g->token_rows = ROWS_PROMPT;
  const uint32_t first = g->plan->ops.count, kv = is_widened ? add_kv_widen(g, false).rows : g->kv;
  matrix expanded = graph_add_matrix(g, (uint64_t)l->expand_pages * PAGE_TOKENS, n + m->rope_dim, 2, "expanded");
  matrix state = graph_add_matrix(g, g->rows, g->heads * (m->v_dim + 2), 4, "prefill_state");
  mla_expand_args e = {.n = n, .kv_lora_rank = m->kv_lora_rank, .rope_dim = m->rope_dim, .block_table_stride = l->pages_per_seq,
                       .piece_pages = l->expand_pages};
  const draft_ref expand_refs[] = {ARG(mla_expand_args, step, g->step, 0), ARG(mla_expand_args, contexts, g->contexts, 0),
                                   ARG(mla_expand_args, kv, kv, is_widened ? 0 : g->layer * g->kv_layer_bytes),
                                   ARG(mla_expand_args, block_table, is_widened ? DRAFT_NONE : g->block_table, 0),
                                   ARG(mla_expand_args, w, weight, 0), ARG(mla_expand_args, y, expanded.buffer, 0)};
  graph_add_op_rows(g, (op_call){.kernel = OP_mla_expand, .what = "mla_expand", .args = &e, .args_bytes = sizeof e, .refs = expand_refs,
                                 .ref_count = ARRAY_LEN(expand_refs), .rows_kind = ROWS_TOKENS, .rows_min = 1,
                                 .rows_max = l->max_batch_tokens, .rank_columns = g->ranks > 1 ? n : 0});
  mla_prefill_args a = {.heads = g->heads, .nope_dim = m->nope_dim, .rope_dim = m->rope_dim, .v_dim = m->v_dim,
                        .q_rope_stride = latent_row, .piece_pages = l->expand_pages, .scale_log2 = m->softmax_scale_log2};
  const draft_ref refs[] = {ARG(mla_prefill_args, step, g->step, 0), ARG(mla_prefill_args, tiles, g->prompt_tiles, 0),
                            ARG(mla_prefill_args, contexts, g->contexts, 0), ARG(mla_prefill_args, q_nope, q.nope.buffer, 0),
                            ARG(mla_prefill_args, q_rope, q.latent.buffer, m->kv_lora_rank * UINT64_C(2)),
                            ARG(mla_prefill_args, expanded, expanded.buffer, 0), ARG(mla_prefill_args, out, value.buffer, 0),
                            ARG(mla_prefill_args, state, state.buffer, 0)};
  graph_add_op_rows(g, (op_call){.kernel = OP_mla_prefill, .what = "mla_prefill", .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = 1, .rows_max = l->max_batch_tokens,
                                 .rank_columns = graph_ranks_all(g)});
  if (is_widened) draft_buffer_at(g->plan, state.buffer)->first_op = first; /* the next piece's rows must not lie on it */
  g->token_rows = ROWS_TOKENS;
}

static void add_latent(graph *g, product_rows *rows) {
  const plan_model *m = g->m;
  projections p = add_projections(g, rows);
  queries q = add_queries(g, p);
  if (plan_has_indexer(&g->plan->quant, g->layer)) g->chosen = graph_index_add(g, p.index_q, p.index_k, p.index_w);
  const uint32_t w_uv = add_kv_b(g, "w_uv", m->nope_dim, m->v_dim, TRANSFORM_COPY);
  matrix value = graph_add_matrix(g, g->rows, g->heads * m->v_dim, 2, "attn_value");
  value.part = graph_ranks_all(g);
  uint32_t lifted_from;
  matrix latent = add_attention(g, q.latent, w_uv, value, &lifted_from);
  graph_add_gemm_from(g, "v_up", latent, w_uv, value,
                (gemm_args){.n = m->v_dim, .k = m->kv_lora_rank, .batches = g->heads, .x_batch = m->kv_lora_rank,
                            .w_batch = (uint64_t)m->v_dim * m->kv_lora_rank, .y_batch = m->v_dim}, lifted_from);
  g->token_rows = ROWS_TOKENS;
  if (g->l->parity == PARITY_FAST_PREFILL) add_prompt_attention(g, q, value);
  const bool is_scaled = graph_product_is_scaled(g, PRODUCT_O);
  const uint32_t own = graph_ranks_share(g, m->hidden, graph_product_unit(g));
  const product_part o_proj = {"self_attn", "o_proj", m->hidden, PRODUCT_O, "o_proj", own, 0, 0, false};
  product_rows values = graph_product_rows(value, "attn_value");
  graph_ranks_gather_rows(g, "attn_value exchange", &(divided_rows){&values, is_scaled, 0}, 1);
  graph_ranks_add(g, "attn_delta exchange", graph_product_parts(g, "attn_delta", &values, &o_proj, 1), false);
}

/* Norms behind a block are named after it in models that have no others, and otherwise after their places. */
void graph_attention_add(graph *g) {
  const bool is_around = g->plan->grouped.norms == NORMS_AROUND;
  graph_rows_begin(g);
  product_rows rows = graph_product_rows(graph_add_block_norm(g, "input_norm", "input_layernorm.weight"), "input_norm");
  if (!plan_is_grouped(&g->plan->grouped)) {
    add_latent(g, &rows);
    return;
  }
  graph_rows_gather(g, "input_norm exchange", &rows, graph_product_is_scaled(g, PRODUCT_QKV), NULL, 0);
  const char *name = is_around ? "post_self_attn_layernorm.weight" : "post_attention_layernorm.weight";
  graph_ranks_end_block(g, "attn_delta", name, graph_grouped_add(g, &rows), false);
}

/* Room for units: all groups of every sequence, plus for every worker a group split into chunks, up to a limit. */
static uint32_t count_slots(const graph *g, uint32_t heads) {
  const plan_limits *l = g->l;
  const mla_attn_args a = attention_of(g, heads);
  if (attn_takes_turns(&a) || attn_may_spread(&a)) return 0; /* nothing is split */
  uint64_t chunks = div_up(longest_context(g), l->chunk_tokens), groups = div_up(chunks, l->group_chunks);
  uint64_t slots = l->split_rows_max * groups + (uint64_t)SPECIALISE_ATTN_CTAS * l->group_chunks;
  uint64_t slot_bytes = (uint64_t)heads * (g->m->kv_lora_rank + 2) * 4, most = PARTIAL_BYTES_MAX / slot_bytes;
  if (slots > l->split_rows_max * chunks) slots = l->split_rows_max * chunks;
  return (uint32_t)(slots > most ? most : slots);
}

/* The split of the attention, for all layers. The estimates are nanoseconds measured on an H200; only the split depends on them, and no
 * bit. */
static void cut_latent(graph *g, attn_split *split, bool by_requests) {
  const plan_model *m = g->m;
  const plan_limits *l = g->l;
  const bool is_narrow = split->heads <= 32;
  attn_cut_args a = {.heads = split->heads, .block_table_stride = l->pages_per_seq, .chunk_tokens = l->chunk_tokens,
                     .group_chunks = l->group_chunks, .slots_max = count_slots(g, split->heads), .split_ns = 2500,
                     .list_max = g->plan->quant.index_topk, .all_late = by_requests};
  a.workers = is_narrow ? SPECIALISE_ATTN_CTAS : SPECIALISE_ATTN_CTAS / 2; /* 2-CTA clusters */
  a.block_ns = is_narrow ? 1000 : 1500;
  a.piece_ns = is_narrow ? 500 : 2000;
  a.stream_ns = plan_kv_row_bytes(m, &g->plan->quant, &g->plan->grouped, l) * 64 / 4300;
  a.slot_ns = split->heads * m->kv_lora_rank * 8 / 3000;
  split->slots = a.slots_max;
  if (split->slots == 0) return;
  split->counts = graph_add_work(g, sizeof(attn_counts), "attn_counts");
  split->pieces = graph_add_work(g, ((uint64_t)l->split_rows_max + split->slots) * sizeof(attn_piece), "attn_pieces");
  split->parts = graph_add_work(g, (uint64_t)l->split_rows_max * sizeof(attn_part), "attn_parts");
  const draft_ref refs[] = {ARG(attn_cut_args, step, g->step, 0),     ARG(attn_cut_args, tiles, split->tiles, 0),
                            ARG(attn_cut_args, block_table, g->block_table, 0), ARG(attn_cut_args, counts, split->counts, 0),
                            ARG(attn_cut_args, pieces, split->pieces, 0), ARG(attn_cut_args, parts, split->parts, 0)};
  g->token_rows = plan_heads_kind(g->l);
  graph_add_op_rows(g, (op_call){.kernel = OP_attn_cut, .what = by_requests ? "attn_cut by requests" : "attn_cut", .args = &a,
                                 .args_bytes = sizeof a, .refs = refs, .ref_count = ARRAY_LEN(refs),
                                 .rows_kind = by_requests ? ROWS_BY_REQUESTS : ROWS_TOKENS, .rows_min = by_requests ? l->requests_rows : 1,
                                 .rows_max = l->split_rows_max});
  g->token_rows = ROWS_TOKENS;
}

void graph_attention_cut(graph *g) {
  g->split = (attn_split){.heads = g->heads, .tiles = g->tiles};
  g->request_split = (attn_split){.heads = g->m->heads, .tiles = g->own_tiles};
  if (plan_is_grouped(&g->plan->grouped)) graph_grouped_cut(g);
  else cut_latent(g, &g->split, false);
  if (plan_has_requests(g->l)) cut_latent(g, &g->request_split, true);
}
