/* graph.c - see graph.h. Both ends of the forward pass, and the layers between them in order.
 *
 * A layer's blocks are in graph_attention.c and graph_feed.c, what makes drafts in graph_draft.c. Must not know memory offsets. */
#include "graph.h"
#include <string.h>
#include "abi.h"
#include "graph_attention.h"
#include "graph_draft.h"
#include "graph_feed.h"
#include "graph_ranks.h"
#include "graph_rows.h"
#include "engine/plan/format_masks.h"
#include "engine/plan/spread.h"

static void add_io(graph *g) {
  const plan_model *m = g->m;
  const plan_limits *l = g->l;
  uint64_t tokens = l->max_batch_tokens, results = l->max_logit_rows;
  g->next = g->drafts = g->draft = DRAFT_NONE;
  g->step = graph_add_fixed(g, REGION_STEP, plan_step_entries(l) * sizeof(step_in), "step");
  g->logit_row = graph_add_fixed(g, REGION_STEP, results * 4, "logit_row"); /* these three are short and are uploaded together */
  g->sample = graph_add_fixed(g, REGION_STEP, results * sizeof(sample_param), "sample_param");
  if (plan_has_mtp(l)) g->drafts = graph_add_fixed(g, REGION_STEP, l->max_seqs * sizeof(step_draft), "drafts");
  g->token = graph_add_fixed(g, REGION_STEP, tokens * 4, "token");
  g->position = graph_add_fixed(g, REGION_STEP, tokens * 4, "position");
  g->seq = graph_add_fixed(g, REGION_STEP, tokens * 4, "seq");
  if (plan_has_mtp(l)) g->next = graph_add_fixed(g, REGION_STEP, tokens * 4, "next");
  g->tiles = graph_add_fixed(g, REGION_STEP, tokens * sizeof(attn_tile), "tiles");
  const bool has_prompts = l->expand_pages > 0;
  g->prompt_tiles = has_prompts ? graph_add_fixed(g, REGION_STEP, tokens * sizeof(attn_tile), "prompt_tiles") : DRAFT_NONE;
  g->contexts = has_prompts ? graph_add_fixed(g, REGION_STEP, l->max_seqs * sizeof(step_context), "contexts") : DRAFT_NONE;
  const uint64_t own_tiles = l->ranks * (uint64_t)plan_own_tiles(l);
  g->own_tiles = plan_has_requests(l) ? graph_add_fixed(g, REGION_STEP, own_tiles * sizeof(attn_tile), "own_tiles") : DRAFT_NONE;
  g->block_table = graph_add_fixed(g, REGION_STEP, (uint64_t)l->max_seqs * l->pages_per_seq * 4, "block_table");
  g->lists = graph_add_fixed(g, REGION_STEP, (uint64_t)l->max_seqs * TOKEN_LIST_MAX * sizeof(token_bias), "token_lists");
  if (g->plan->has_masks)
    g->masks = graph_add_fixed(g, REGION_STEP, (uint64_t)plan_mask_room(l, m->vocab) * plan_mask_words(m->vocab) * 4, "token_masks");
  g->sampled = graph_add_fixed(g, REGION_STATE, (uint64_t)l->max_seqs * 4, "sampled");
  g->result = graph_add_fixed(g, REGION_RESULT, results * sizeof(sample_result), "result");
  g->digest = graph_add_fixed(g, REGION_RESULT, results * 8, "digest");
  g->top = graph_add_fixed(g, REGION_RESULT, results * TOP_LOGPROBS_MAX * sizeof(top_logprob), "top_logprobs");
  const uint64_t drafts = (uint64_t)l->draft_tokens * plan_draft_stride(l);
  if (plan_has_mtp(l)) g->draft = graph_add_fixed(g, REGION_RESULT, drafts * sizeof(sample_result), "draft_result");
  g->cos_sin = graph_add_fixed(g, REGION_TABLES, (uint64_t)l->max_len * m->rope_dim * 4, "cos_sin");
  g->q_scale = m->q_scale_beta != 0 ? graph_add_fixed(g, REGION_TABLES, l->max_len * UINT64_C(4), "q_scale") : DRAFT_NONE;
  g->kv_layer_bytes = (uint64_t)l->kv_pages * PAGE_TOKENS * plan_kv_row_bytes(m, &g->plan->quant, &g->plan->grouped, l);
  g->kv = graph_add_fixed(g, REGION_KV, plan_kept_layers(m, l) * g->kv_layer_bytes, "kv");
  g->history = graph_add_fixed(g, REGION_KV, (uint64_t)l->kv_pages * PAGE_TOKENS * 4, "history");
  const uint64_t index_bytes = plan_index_bytes(&g->plan->quant, plan_kept_layers(m, l), l->kv_pages);
  const bool meets = plan_may_spread(m, &g->plan->quant, l, g->heads);
  g->meetings = meets ? graph_add_fixed(g, REGION_STATE, ATTN_MEETINGS * UINT64_C(4), "meetings") : DRAFT_NONE;
  graph_ranks_begin(g);
  g->index = index_bytes ? graph_add_fixed(g, REGION_KV, index_bytes, "index") : DRAFT_NONE;
}

static void add_embed(graph *g) {
  const plan_model *m = g->m;
  g->table = graph_add_weight(g, "embed weight", "model.embed_tokens.weight", m->vocab, m->hidden);
  embed_args a = {.hidden = m->hidden, .vocab = m->vocab, .block_table_stride = g->l->pages_per_seq, .scale = m->embed_scale};
  g->x = graph_add_work(g, g->rows * m->hidden * 4, "x");
  g->adds = GRAPH_NOTHING;
  const draft_ref refs[] = {ARG(embed_args, step, g->step, 0), ARG(embed_args, token, g->token, 0), ARG(embed_args, sampled, g->sampled, 0),
                            ARG(embed_args, table, g->table, 0), ARG(embed_args, position, g->position, 0), ARG(embed_args, seq, g->seq, 0),
                            ARG(embed_args, block_table, g->block_table, 0), ARG(embed_args, x, g->x, 0),
                            ARG(embed_args, history, g->history, 0)};
  ADD_OP(g, OP_embed, "embed", a, refs, ROWS_TOKENS);
}

static matrix add_logits(graph *g, matrix h, bool is_tied) {
  const plan_model *m = g->m;
  const uint32_t own = graph_ranks_share(g, m->vocab, 8);
  g->head = g->table;
  if (!is_tied || own < m->vocab) {
    g->head = graph_add_weight_begin(g, "lm_head weight");
    graph_add_tensor(g, is_tied ? "model.embed_tokens.weight" : "lm_head.weight",
                     graph_ranks_rows(g, graph_whole(m->vocab, m->hidden), own));
  }
  matrix logits = graph_add_matrix(g, g->logit_rows, own, 4, "logits");
  logits.part = own < m->vocab ? own : 0;
  graph_add_gemm(g, "lm_head", h, g->head, logits, (gemm_args){.n = own, .k = m->hidden, .y_kind = Y_F32, .rows_kind = ROWS_LOGITS});
  return graph_ranks_gather(g, "logits exchange", logits, m->vocab, 4, ROWS_LOGITS);
}

/* Rows of the choice lose the tokens that their masks lack. */
static void add_token_mask(graph *g, matrix adjusted) {
  token_mask_args a = {.vocab = g->m->vocab, .words = plan_mask_words(g->m->vocab)};
  const draft_ref refs[] = {ARG(token_mask_args, step, g->step, 0), ARG(token_mask_args, param, g->sample, 0),
                            ARG(token_mask_args, masks, g->masks, 0), ARG(token_mask_args, adjusted, adjusted.buffer, 0)};
  ADD_OP(g, OP_token_mask, "token_mask", a, refs, ROWS_LOGITS);
}

static uint32_t add_head(graph *g, bool is_tied) {
  const plan_model *m = g->m;
  uint32_t norm = graph_add_weight(g, "final_norm weight", "model.norm.weight", 1, m->hidden);
  matrix h = graph_add_matrix(g, g->logit_rows, m->hidden, 2, "final_norm");
  graph_add_norm(g, "final_norm", (matrix){.buffer = g->x, .stride = m->hidden}, g->adds, norm, h, m->hidden, m->norm_eps, true);
  graph_ranks_compare(g, h);
  const matrix logits = add_logits(g, h, is_tied);
  row_digest_args digest = {.rows_kind = ROWS_LOGITS, .words = m->vocab, .stride = m->vocab};
  const draft_ref digest_refs[] = {ARG(row_digest_args, step, g->step, 0), ARG(row_digest_args, x, logits.buffer, 0),
                                   ARG(row_digest_args, digest, g->digest, 0)};
  ADD_OP(g, OP_row_digest, "row_digest", digest, digest_refs, ROWS_LOGITS);
  matrix adjusted = graph_add_matrix(g, g->logit_rows, m->vocab, 4, "adjusted");
  adjust_args adjust = {.vocab = m->vocab, .block_table_stride = g->l->pages_per_seq};
  const draft_ref adjust_refs[] = {ARG(adjust_args, step, g->step, 0),          ARG(adjust_args, logits, logits.buffer, 0),
                                   ARG(adjust_args, param, g->sample, 0),       ARG(adjust_args, lists, g->lists, 0),
                                   ARG(adjust_args, history, g->history, 0),    ARG(adjust_args, block_table, g->block_table, 0),
                                   ARG(adjust_args, adjusted, adjusted.buffer, 0)};
  ADD_OP(g, OP_adjust, "adjust", adjust, adjust_refs, ROWS_LOGITS);
  if (g->plan->has_masks) add_token_mask(g, adjusted);
  sample_args sample = {.vocab = m->vocab};
  const draft_ref refs[] = {ARG(sample_args, step, g->step, 0), ARG(sample_args, logits, logits.buffer, 0),
                            ARG(sample_args, adjusted, adjusted.buffer, 0), ARG(sample_args, param, g->sample, 0),
                            ARG(sample_args, sampled, g->sampled, 0), ARG(sample_args, result, g->result, 0),
                            ARG(sample_args, top, g->top, 0)};
  ADD_OP(g, OP_sample, "sample", sample, refs, ROWS_LOGITS);
  return logits.buffer;
}

void graph_build(draft *plan, const profile *pins, const model_config *config) {
  graph *g = &(graph){.plan = plan, .pins = pins, .config = config, .m = &plan->model, .l = &plan->limits,
                      .ranks = plan->limits.ranks, .heads = plan_rank_heads(&plan->model, &plan->grouped, &plan->limits),
                      .layer = UINT32_MAX, .kv_scale = DRAFT_NONE, .chosen = DRAFT_NONE};
  ASSERT(g->l->split_rows_max >= 1 && g->l->split_rows_max <= g->l->max_batch_tokens);
  ASSERT(g->m->dense_layers == g->m->layers || g->m->experts > 0);
  g->rows = align_up(g->l->max_batch_tokens, GRAPH_ROWS_PAD);
  g->logit_rows = align_up(g->l->max_logit_rows, GRAPH_ROWS_PAD);
  graph_rows_open(g);
  add_io(g);
  add_embed(g);
  graph_attention_cut(g);
  for (g->layer = 0; g->layer < g->m->layers; g->layer++) {
    graph_attention_add(g);
    graph_feed_add(g);
  }
  g->layer = UINT32_MAX;
  graph_rows_end(g);
  uint32_t logits = add_head(g, config->is_tied);
  if (plan_has_mtp(g->l)) graph_draft_add(g, logits);
  const uint32_t io[] = {g->step,   g->token,       g->position, g->seq,    g->tiles,  g->logit_row, g->sample,
                         g->block_table, g->lists, g->sampled, g->result, g->digest, g->top, logits, g->cos_sin, g->q_scale, g->history,
                         g->prompt_tiles, g->contexts, g->index, g->meetings, g->rank_table, g->exchange, g->inbox, g->rank_x,
                         g->rank_head, g->next, g->drafts, g->draft, g->own_tiles};
  _Static_assert(sizeof io / sizeof io[0] == sizeof(plan_io) / 8, "one buffer per field, in its order");
  memcpy(plan->io_buffer, io, sizeof io);
  if (g->gemm_workspace_bytes) plan->gemm_workspace = graph_add_fixed(g, REGION_WORK, g->gemm_workspace_bytes, "gemm_workspace");
}
