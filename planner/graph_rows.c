/* graph_rows.c - see graph_rows.h. Must not know memory offsets. */
#include "graph_rows.h"
#include <stdio.h>
#include <string.h>
#include "graph.h"
#include "graph_ranks.h"

/* Norms over the rows of a rank add no rows of experts, which moe_fold sums where ranks have their own columns of them. */
static bool can_divide(const graph *g) {
  return g->ranks > 1 && (g->m->experts == 0 || graph_ranks_share(g, g->m->hidden, graph_product_unit(g)) < g->m->hidden);
}

void graph_rows_open(graph *g) {
  const uint32_t from = g->plan->divided_rows;
  g->own_min = from && can_divide(g) ? 1 + plan_own_rows(g->l, from - 1) : UINT32_MAX;
}

uint32_t graph_rows_whole_max(const graph *g) {
  return g->own_min == UINT32_MAX ? g->l->max_batch_tokens : plan_rows_of_own(g->l, g->own_min - 1);
}

void graph_rows_begin(graph *g) {
  g->divides = graph_rows_has(g);
  g->twin_count = 0;
}

static uint32_t twin_of(graph *g, uint32_t whole) {
  char name[NAME_BYTES_MAX];
  for (uint32_t i = 0; i < g->twin_count; i++)
    if (g->twins[i].whole == whole) return g->twins[i].own;
  const plan_buffer *buffer = draft_buffer_at(g->plan, whole);
  const uint64_t rows = align_up(plan_own_rows(g->l, g->l->max_batch_tokens), GRAPH_ROWS_PAD);
  ASSERT(g->twin_count < GRAPH_TWINS_MAX && buffer->bytes % g->rows == 0);
  const char *text = draft_string_at(g->plan, buffer->name), *rest = strncmp(text, "layer ", 6) == 0 ? strchr(text + 6, ' ') : NULL;
  snprintf(name, sizeof name, "%s of own rows", rest ? rest + 1 : text);
  const uint32_t own = graph_add_work(g, buffer->bytes / g->rows * rows, name);
  g->twins[g->twin_count++] = (graph_twin){whole, own};
  return own;
}

#define REFS_MAX 16u

void graph_rows_add_op(graph *g, op_call call) {
  draft_ref refs[REFS_MAX];
  op_call own = call;
  ASSERT(call.ref_count <= REFS_MAX);
  own.rows_kind = ROWS_OWN;
  own.rows_min = max_u32(g->own_min, plan_own_rows(g->l, call.rows_min));
  own.rows_max = plan_own_rows(g->l, call.rows_max);
  g->divides = false;
  call.rows_max = min_u32(call.rows_max, graph_rows_whole_max(g));
  if (call.rows_min <= call.rows_max) graph_add_op_rows(g, call);
  if (own.rows_min <= own.rows_max) {
    for (size_t i = 0; i < call.ref_count; i++) {
      refs[i] = call.own_refs ? call.own_refs[i] : call.refs[i];
      const bool is_work = refs[i].buffer != DRAFT_NONE && draft_buffer_at(g->plan, refs[i].buffer)->region == REGION_WORK;
      if (is_work && refs[i].rank_step == 0) refs[i].buffer = twin_of(g, refs[i].buffer);
    }
    own.refs = refs;
    if (call.own_args) own.args = call.own_args;
    graph_add_op_rows(g, own);
  }
  g->divides = true;
}

static void add_table(graph *g, exchange_table *tables, uint32_t *count, rows_table of) {
  if (of.bytes == 0) return;
  tables[*count] = (exchange_table){.x = twin_of(g, of.buffer), .y = of.buffer, .x_offset = of.offset, .y_offset = of.offset,
                                    .part_bytes = of.bytes, .x_stride = of.stride, .y_stride = of.stride};
  ++*count;
}

static bool can_gather_codes(const product_rows *rows) { return rows->x.stride % (2 * SCALE_COLUMNS) == 0; }

void graph_rows_gather(graph *g, const char *what, product_rows *rows, bool is_scaled, const rows_table *more, uint32_t count) {
  exchange_table tables[EXCHANGE_TABLES];
  uint32_t used = 0;
  if (!graph_rows_has(g)) return;
  graph_rows_resume(g);
  if (rows && is_scaled && can_gather_codes(rows)) {
    const uint32_t columns = rows->x.stride, scale_bytes = columns / SCALE_COLUMNS * 4;
    graph_product_quantize(g, rows, graph_product_all(g));
    add_table(g, tables, &used, (rows_table){rows->codes, columns, 0, columns});
    add_table(g, tables, &used, (rows_table){rows->scales, scale_bytes, 0, scale_bytes});
  } else if (rows) {
    add_table(g, tables, &used, (rows_table){rows->x.buffer, rows->x.stride * 2, 0, rows->x.stride * 2});
  }
  for (uint32_t i = 0; i < count; i++) add_table(g, tables, &used, more[i]);
  graph_rows_pause(g);
  graph_ranks_gather_owned(g, what, tables, used, graph_rows_whole_max(g) + 1);
}

void graph_rows_end(graph *g) {
  const uint32_t bytes = g->m->hidden * 4;
  const exchange_table x = {.x = g->x, .y = g->x, .part_bytes = bytes, .x_stride = bytes * g->ranks, .y_stride = bytes,
                            .x_rank_step = bytes};
  if (!graph_rows_has(g)) return;
  graph_rows_pause(g);
  graph_ranks_gather_owned(g, "x exchange", &x, 1, graph_rows_whole_max(g) + 1);
}
