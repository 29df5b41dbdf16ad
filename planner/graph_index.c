/* graph_index.c - see graph_index.h.
 *
 * Every step computes queries and keys of all rows, because later tokens may choose any key. Scores are computed for as many rows as fit a
 * workspace; steps with more rows take several passes. Must not know memory offsets. Read next: specialise.h. */
#include "graph_index.h"
#include <math.h>

#define SCORE_BYTES_MAX (UINT64_C(256) << 20)
#define KEY_EPS 1e-6f /* of the norm of the keys, whatever config.json says for others */

typedef struct index_rows { /* buffers of the indexer's queries and weights */
  uint32_t q_codes, w;
} index_rows;

static index_rows add_rows(graph *g, matrix q, matrix k, matrix w, uint64_t cache) {
  const plan_quant *quant = &g->plan->quant;
  const uint32_t heads = quant->index_heads;
  const uint32_t gain = graph_add_vector(g, "index_norm weight", "self_attn.indexer.k_norm.weight", INDEX_DIM);
  const uint32_t bias = graph_add_vector(g, "index_norm bias", "self_attn.indexer.k_norm.bias", INDEX_DIM);
  index_rows out = {graph_add_work(g, g->rows * heads * INDEX_DIM, "index_q"), graph_add_work(g, g->rows * heads * 4, "index_weights")};
  const index_qk_args a = {.q_stride = q.stride, .k_stride = k.stride, .w_stride = w.stride, .heads = heads, .rope_dim = g->m->rope_dim,
                           .block_table_stride = g->l->pages_per_seq, .half_split = quant->index_half_split,
                           .scale_kind = quant->index_scale, .eps = KEY_EPS, .head_scale = (float)(1 / sqrt(heads))};
  const draft_ref refs[] = {ARG(index_qk_args, step, g->step, 0),        ARG(index_qk_args, q, q.buffer, q.offset),
                            ARG(index_qk_args, k, k.buffer, k.offset),   ARG(index_qk_args, w, w.buffer, w.offset),
                            ARG(index_qk_args, gain, gain, 0),           ARG(index_qk_args, bias, bias, 0),
                            ARG(index_qk_args, cos_sin, g->cos_sin, 0),  ARG(index_qk_args, position, g->position, 0),
                            ARG(index_qk_args, seq, g->seq, 0),          ARG(index_qk_args, block_table, g->block_table, 0),
                            ARG(index_qk_args, q_codes, out.q_codes, 0), ARG(index_qk_args, w_out, out.w, 0),
                            ARG(index_qk_args, cache, g->index, cache)};
  ADD_OP(g, OP_index_qk, "index_qk", a, refs, ROWS_TOKENS);
  return out;
}

static void add_score(graph *g, index_rows rows, uint64_t cache, uint32_t scores, index_score_args a) {
  a.heads = g->plan->quant.index_heads;
  a.block_table_stride = g->l->pages_per_seq;
  const draft_ref refs[] = {ARG(index_score_args, step, g->step, 0), ARG(index_score_args, q_codes, rows.q_codes, 0),
                            ARG(index_score_args, w, rows.w, 0), ARG(index_score_args, cache, g->index, cache),
                            ARG(index_score_args, position, g->position, 0), ARG(index_score_args, seq, g->seq, 0),
                            ARG(index_score_args, block_table, g->block_table, 0), ARG(index_score_args, scores, scores, 0)};
  graph_add_op_rows(g, (op_call){.kernel = OP_index_score, .what = "index_score", .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = a.row_first + 1,
                                 .rows_max = g->l->max_batch_tokens});
}

static void add_topk(graph *g, uint32_t scores, uint32_t lists, index_topk_args a) {
  const draft_ref refs[] = {ARG(index_topk_args, step, g->step, 0), ARG(index_topk_args, scores, scores, 0),
                            ARG(index_topk_args, position, g->position, 0), ARG(index_topk_args, lists, lists, 0)};
  graph_add_op_rows(g, (op_call){.kernel = OP_index_topk, .what = "index_topk", .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = a.row_first + 1,
                                 .rows_max = g->l->max_batch_tokens});
}

uint32_t graph_index_add(graph *g, matrix q, matrix k, matrix w) {
  const uint32_t topk = g->plan->quant.index_topk, tokens = g->l->max_batch_tokens, stride = (uint32_t)align_up(g->l->max_len, PAGE_TOKENS);
  const uint64_t cache = plan_index_bytes(&g->plan->quant, g->layer, g->l->kv_pages), fit = SCORE_BYTES_MAX / (stride * UINT64_C(4));
  const uint32_t piece = fit < tokens ? max_u32((uint32_t)fit, 1) : tokens;
  const index_rows rows = add_rows(g, q, k, w, cache);
  const uint32_t scores = graph_add_work(g, (uint64_t)piece * stride * 4, "index_scores");
  const uint32_t lists = graph_add_work(g, g->rows * topk * 4, "index_lists");
  for (uint32_t first = 0; first < tokens; first += piece) {
    add_score(g, rows, cache, scores,
              (index_score_args){.topk = topk, .stride = stride, .row_first = first, .row_count = piece});
    add_topk(g, scores, lists,
             (index_topk_args){.topk = topk, .stride = stride, .row_first = first, .row_count = piece});
  }
  return lists;
}
