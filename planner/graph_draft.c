/* graph_draft.c - see graph_draft.h. The inputs of all passes first, then a pass.
 *
 * Pass 1 is over all token rows, so that the layer has KV rows of every token, and ends with a row for each sequence; the others have one
 * row for each sequence from the start. Must not know memory offsets. */
#include "graph_draft.h"
#include "graph.h"
#include "graph_attention.h"
#include "graph_feed.h"
#include "graph_ranks.h"

typedef struct passes { /* buffers of what the passes read: see accept_args */
  uint32_t next_token, source, token, seq, position, tiles, param;
  uint32_t sampled; /* the last draft of each sequence */
} passes;

typedef struct stream { /* the residual stream that a pass starts from */
  matrix x;
  addend adds;
  uint32_t row_index; /* of a sequence's row; DRAFT_NONE: rows are in order */
} stream;

static passes add_accept(graph *g) {
  const uint32_t count = g->l->draft_tokens, stride = plan_draft_stride(g->l), more = count - 1;
  const accept_args a = {.draft_tokens = count, .stride = stride};
  passes p = {.next_token = graph_add_work(g, g->rows * 4, "next_token"), .source = graph_add_work(g, stride * UINT64_C(4), "draft_source"),
              .param = graph_add_work(g, (uint64_t)count * stride * sizeof(sample_param), "draft_param"),
              .sampled = graph_add_work(g, stride * UINT64_C(4), "draft_sampled"),
              .token = DRAFT_NONE, .seq = DRAFT_NONE, .position = DRAFT_NONE, .tiles = DRAFT_NONE};
  if (more) {
    p.token = graph_add_work(g, stride * UINT64_C(4), "draft_token");
    p.seq = graph_add_work(g, stride * UINT64_C(4), "draft_seq");
    p.position = graph_add_work(g, (uint64_t)more * stride * 4, "draft_position");
    p.tiles = graph_add_work(g, (uint64_t)more * stride * sizeof(attn_tile), "draft_tiles");
  }
  const draft_ref refs[] = {ARG(accept_args, step, g->step, 0),           ARG(accept_args, token, g->token, 0),
                            ARG(accept_args, position, g->position, 0),   ARG(accept_args, logit_row, g->logit_row, 0),
                            ARG(accept_args, param, g->sample, 0),        ARG(accept_args, result, g->result, 0),
                            ARG(accept_args, next, g->next, 0),           ARG(accept_args, drafts, g->drafts, 0),
                            ARG(accept_args, next_token, p.next_token, 0), ARG(accept_args, source, p.source, 0),
                            ARG(accept_args, draft_param, p.param, 0),    ARG(accept_args, draft_token, p.token, 0),
                            ARG(accept_args, draft_seq, p.seq, 0),        ARG(accept_args, draft_position, p.position, 0),
                            ARG(accept_args, draft_tiles, p.tiles, 0)};
  ADD_OP(g, OP_accept, "accept", a, refs, ROWS_TOKENS);
  return p;
}

/* The rows of the next tokens, in fp32. */
static matrix add_embed(graph *g, const passes *p) {
  const plan_model *m = g->m;
  const matrix x = graph_add_matrix(g, g->rows, m->hidden, 4, "embed");
  const embed_args a = {.hidden = m->hidden, .vocab = m->vocab, .block_table_stride = g->l->pages_per_seq, .scale = m->embed_scale};
  const draft_ref refs[] = {ARG(embed_args, step, g->step, 0), ARG(embed_args, token, g->pass == 1 ? p->next_token : p->token, 0),
                            ARG(embed_args, sampled, g->pass == 1 ? DRAFT_NONE : p->sampled, 0), ARG(embed_args, table, g->table, 0),
                            ARG(embed_args, x, x.buffer, 0)};
  ADD_OP(g, OP_embed, "embed", a, refs, ROWS_TOKENS);
  return x;
}

/* The layer's input: both norms side by side, multiplied by eh_proj. */
static void add_input(graph *g, const passes *p, stream before) {
  const uint32_t hidden = g->m->hidden, own = graph_ranks_share(g, hidden, 8);
  const matrix x = add_embed(g, p), both = graph_add_matrix(g, g->rows, 2 * hidden, 2, "enorm and hnorm");
  matrix second = both;
  second.offset = hidden * UINT64_C(2);
  graph_add_norm_of(g, "enorm", x, GRAPH_NOTHING, DRAFT_NONE, graph_add_weight(g, "enorm weight", "enorm.weight", 1, hidden), both);
  graph_add_norm_of(g, "hnorm", before.x, before.adds, before.row_index, graph_add_weight(g, "hnorm weight", "hnorm.weight", 1, hidden),
                    second);
  const uint32_t weight = graph_add_weight_begin(g, "eh_proj weight");
  graph_add_tensor(g, "eh_proj.weight", graph_ranks_rows(g, graph_whole(hidden, 2 * hidden), own));
  matrix y = graph_add_matrix(g, g->rows, own, 4, "eh_proj");
  y.part = own < hidden ? own : 0;
  graph_add_gemm(g, "eh_proj", both, weight, y, (gemm_args){.n = own, .k = 2 * hidden, .y_kind = Y_F32, .rows_kind = ROWS_TOKENS});
  g->x = graph_ranks_gather(g, "eh_proj exchange", y, hidden, 4, ROWS_TOKENS).buffer;
  g->adds = GRAPH_NOTHING;
}

/* The draft of each sequence, by the model's head. */
static void add_choice(graph *g, const passes *p, stream after) {
  const plan_model *m = g->m;
  const uint32_t own = graph_ranks_share(g, m->vocab, 8), nth = g->pass - 1, stride = plan_draft_stride(g->l);
  const matrix h = graph_add_matrix(g, g->rows, m->hidden, 2, "head_norm");
  graph_add_norm_of(g, "head_norm", after.x, after.adds, after.row_index,
                    graph_add_weight(g, "head_norm weight", "shared_head.norm.weight", 1, m->hidden), h);
  matrix part = graph_add_matrix(g, g->rows, own, 4, "logits");
  part.part = own < m->vocab ? own : 0;
  graph_add_gemm(g, "lm_head", h, g->head, part, (gemm_args){.n = own, .k = m->hidden, .y_kind = Y_F32, .rows_kind = ROWS_TOKENS});
  const matrix logits = graph_ranks_gather(g, "logits exchange", part, m->vocab, 4, ROWS_TOKENS);
  const sample_args a = {.vocab = m->vocab};
  const draft_ref refs[] = {ARG(sample_args, step, g->step, 0), ARG(sample_args, logits, logits.buffer, 0),
                            ARG(sample_args, adjusted, logits.buffer, 0),
                            ARG(sample_args, param, p->param, (uint64_t)nth * stride * sizeof(sample_param)),
                            ARG(sample_args, sampled, p->sampled, 0),
                            ARG(sample_args, result, g->draft, (uint64_t)nth * stride * sizeof(sample_result))};
  ADD_OP(g, OP_sample, "sample", a, refs, ROWS_LOGITS);
}

/* From here on ops are of one row for each sequence. l: room for the limits of these. */
static void begin_rows_of_drafts(graph *g, plan_limits *l) {
  *l = *g->l;
  l->max_batch_tokens = l->max_logit_rows = l->max_seqs;
  l->split_rows_max = min_u32(l->split_rows_max, l->max_seqs);
  l->expand_pages = 0;
  g->l = l;
  g->of_drafts = true;
  g->rows = g->logit_rows = align_up(l->max_seqs, GRAPH_ROWS_PAD);
}

static void add_pass(graph *g, const passes *p, stream *s, uint32_t index_after) {
  add_input(g, p, *s);
  if (g->pass > 1) graph_attention_cut(g);
  graph_attention_add(g);
  graph_feed_add(g);
  *s = (stream){{.buffer = g->x, .stride = g->m->hidden}, g->adds, index_after};
}

/* Positions and tiles of a pass after the first. */
static void take_inputs(graph *g, const passes *p) {
  const uint64_t before = (uint64_t)(g->pass - 2) * plan_draft_stride(g->l);
  g->seq = p->seq;
  g->position = p->position;
  g->tiles = p->tiles;
  g->position_at = before * 4;
  g->tiles_at = before * sizeof(attn_tile);
}

void graph_draft_add(graph *g, uint32_t logits) {
  graph d = *g;
  plan_limits of_drafts;
  d.own_min = UINT32_MAX;
  const uint32_t first_weight = g->plan->buffers.count, count = g->l->draft_tokens;
  const passes p = add_accept(&d);
  stream s = {{.buffer = d.x, .stride = d.m->hidden}, d.adds, DRAFT_NONE};
  d.layer = d.m->layers;
  d.pass = 1;
  add_pass(&d, &p, &s, p.source);
  begin_rows_of_drafts(&d, &of_drafts);
  add_choice(&d, &p, s);
  for (d.pass = 2; d.pass <= count; d.pass++) {
    d.next_weight = first_weight;
    take_inputs(&d, &p);
    add_pass(&d, &p, &s, DRAFT_NONE);
    add_choice(&d, &p, s);
  }
  g->weight_bytes = d.weight_bytes;
  g->gemm_workspace_bytes = d.gemm_workspace_bytes;
  draft_buffer_at(g->plan, logits)->last_op = g->plan->ops.count - 1;
}
