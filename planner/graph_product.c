/* graph_product.c - see graph_product.h.
 *
 * The codes and scales of a weight are separate buffers. Parts are joined where no block of 128 rows of scales straddles two of them. Read
 * next: specialise.h. */
#include "graph_product.h"
#include "graph_ranks.h"
#include <stdio.h>
#include <string.h>

static void module_name(char name[NAME_BYTES_MAX], const product_part *part, uint32_t copies, uint32_t copy) {
  if (copies) snprintf(name, NAME_BYTES_MAX, "%s.%u.%s", part->of, copy, part->leaf);
  else snprintf(name, NAME_BYTES_MAX, "%s.%s", part->of, part->leaf);
}

bool graph_product_is_scaled(const graph *g, uint32_t product) {
  return product < PRODUCT_COUNT && config_quant_is_e4m3(&g->config->products, &g->plan->quant, g->layer, product);
}

/* cols: of the weight; DTYPE_F32: its scales. is_bias: a column beside it. */
static void add_source(graph *g, const char *module, const product_part *part, uint32_t cols, uint32_t dtype, bool is_bias) {
  char name[NAME_BYTES_MAX + 32];
  bool is_scale = dtype == DTYPE_F32;
  snprintf(name, sizeof name, "%s.%s", module, is_scale ? "weight_scale_inv" : is_bias ? "bias" : "weight");
  const uint32_t rows = is_scale ? (uint32_t)div_up(part->rows, SCALE_COLUMNS) : part->rows;
  const uint32_t own = is_scale ? (uint32_t)div_up(part->own, SCALE_COLUMNS) : part->own;
  plan_tensor tensor = graph_ranks_rows(g, graph_whole(rows, is_scale ? cols / SCALE_COLUMNS : cols), own);
  tensor.dtype = dtype;
  if (part->whole) {
    tensor.rows = is_scale ? (uint32_t)div_up(part->whole, SCALE_COLUMNS) : part->whole;
    tensor.row0 = is_scale ? part->row0 / SCALE_COLUMNS : part->row0;
  }
  graph_add_tensor(g, name, tensor);
}

static uint32_t add_sources(graph *g, const char *what, const product_part *parts, uint32_t count, uint32_t copies, uint32_t cols,
                            uint32_t dtype, bool is_bias) {
  uint32_t buffer = graph_add_weight_begin(g, what);
  char name[NAME_BYTES_MAX];
  for (uint32_t copy = 0; copy < max_u32(copies, 1); copy++)
    for (uint32_t i = 0; i < count; i++) {
      module_name(name, &parts[i], copies, copy);
      add_source(g, name, &parts[i], cols, dtype, is_bias);
    }
  return buffer;
}

product_weight graph_product_weight(graph *g, const char *what, const product_part *parts, uint32_t count, uint32_t copies,
                                    uint32_t cols) {
  char name[NAME_BYTES_MAX];
  bool is_scaled = graph_product_is_scaled(g, parts[0].product);
  snprintf(name, sizeof name, "%s weight", what);
  product_weight weight = {.scales = DRAFT_NONE, .bias = DRAFT_NONE};
  weight.w = add_sources(g, name, parts, count, copies, cols, is_scaled ? DTYPE_E4M3 : DTYPE_BF16, false);
  if (parts[0].has_bias) {
    ASSERT(!is_scaled);
    snprintf(name, sizeof name, "%s bias", what);
    weight.bias = add_sources(g, name, parts, count, copies, 1, DTYPE_BF16, true);
  }
  if (!is_scaled) return weight;
  snprintf(name, sizeof name, "%s scales", what);
  weight.scales = add_sources(g, name, parts, count, copies, cols, DTYPE_F32, false);
  return weight;
}

void graph_product_add_codes(graph *g, product_rows *rows) {
  char name[NAME_BYTES_MAX];
  const uint32_t columns = rows->x.stride;
  snprintf(name, sizeof name, "%s codes", rows->what);
  rows->codes = graph_add_work(g, g->rows * rows->mul * columns, name);
  snprintf(name, sizeof name, "%s scales", rows->what);
  rows->scales = graph_add_work(g, g->rows * rows->mul * (columns / SCALE_COLUMNS) * 4, name);
}

void graph_product_quantize(graph *g, product_rows *rows, row_range range) {
  if (rows->codes != DRAFT_NONE) return;
  graph_product_add_codes(g, rows);
  graph_product_add_quantize(g, rows, range);
}

void graph_product_add_quantize(graph *g, const product_rows *rows, row_range range) {
  char name[NAME_BYTES_MAX];
  const uint32_t columns = rows->x.stride;
  act_quant_args a = {.rows_kind = ROWS_TOKENS, .ldx = columns, .columns = columns, .rows_mul = rows->mul,
                      .scale_kind = g->plan->quant.act_scale};
  const draft_ref refs[] = {ARG(act_quant_args, step, g->step, 0), ARG(act_quant_args, x, rows->x.buffer, rows->x.offset),
                            ARG(act_quant_args, codes, rows->codes, 0), ARG(act_quant_args, scales, rows->scales, 0)};
  snprintf(name, sizeof name, "%s codes", rows->what);
  graph_add_op_rows(g, (op_call){.kernel = OP_act_quant, .what = name, .args = &a, .args_bytes = sizeof a, .refs = refs,
                                 .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = range.min, .rows_max = range.max,
                                 .rank_columns = rows->x.part});
}

static void add_biased(graph *g, const char *what, matrix x, product_weight weight, matrix y, gemm_args shape) {
  gemm_bias_args a = {.ldx = x.stride, .ldy = y.stride, .n = shape.n, .k = shape.k, .rows_kind = ROWS_TOKENS, .y_kind = shape.y_kind,
                      .order = shape.order};
  const draft_ref refs[] = {ARG(gemm_bias_args, step, g->step, 0), ARG(gemm_bias_args, x, x.buffer, x.offset),
                            ARG(gemm_bias_args, w, weight.w, 0), ARG(gemm_bias_args, bias, weight.bias, 0),
                            ARG(gemm_bias_args, y, y.buffer, y.offset)};
  graph_add_op_ordered(g, (op_call){.kernel = OP_gemm_bias, .what = what, .args = &a, .args_bytes = sizeof a, .refs = refs,
                                    .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = 1,
                                    .rows_max = g->l->max_batch_tokens, .rank_columns = y.part},
                       &a.order);
}

void graph_product_add(graph *g, const char *what, product_rows *x, product_weight weight, matrix y, gemm_args shape) {
  shape.k = x->x.stride;
  if (weight.bias != DRAFT_NONE) {
    add_biased(g, what, x->x, weight, y, shape);
    return;
  }
  if (!graph_product_is_e4m3(weight)) {
    graph_add_gemm(g, what, x->x, weight.w, y, shape);
    return;
  }
  graph_product_quantize(g, x, graph_product_all(g));
  fp8_gemm_args a = {.ldy = y.stride, .n = shape.n, .k = shape.k, .rows_kind = ROWS_TOKENS, .y_kind = shape.y_kind, .order = shape.order};
  const draft_ref refs[] = {ARG(fp8_gemm_args, step, g->step, 0),    ARG(fp8_gemm_args, x, x->codes, 0),
                            ARG(fp8_gemm_args, x_scale, x->scales, 0), ARG(fp8_gemm_args, w, weight.w, 0),
                            ARG(fp8_gemm_args, w_scale, weight.scales, 0), ARG(fp8_gemm_args, y, y.buffer, y.offset)};
  graph_add_op_ordered(g, (op_call){.kernel = OP_fp8_gemm, .what = what, .args = &a, .args_bytes = sizeof a, .refs = refs,
                                    .ref_count = ARRAY_LEN(refs), .rows_kind = ROWS_TOKENS, .rows_min = 1,
                                    .rows_max = g->l->max_batch_tokens, .rank_columns = y.part},
                       &a.order);
}

/* How many parts, starting with the first, form one product; *rows: their rows. */
static uint32_t count_joined(const graph *g, const product_part *parts, uint32_t count, uint32_t *rows) {
  const bool is_scaled = graph_product_is_scaled(g, parts[0].product);
  uint32_t joined = 1;
  *rows = parts[0].own;
  while (joined < count && graph_product_is_scaled(g, parts[joined].product) == is_scaled &&
         (!is_scaled || *rows % SCALE_COLUMNS == 0))
    *rows += parts[joined++].own;
  return joined;
}

matrix graph_product_parts(graph *g, const char *what, product_rows *x, const product_part *parts, uint32_t count) {
  matrix all = {.buffer = DRAFT_NONE};
  uint32_t columns = 0, column = 0, rows;
  for (uint32_t i = 0; i < count; i++) columns += parts[i].own;
  for (uint32_t i = 0; i < count; column += rows) {
    const uint32_t joined = count_joined(g, parts + i, count - i, &rows);
    const product_weight weight = graph_product_weight(g, parts[i].what, parts + i, joined, 0, x->x.stride);
    if (i == 0) all = graph_add_matrix(g, g->rows, columns, 4, what);
    const matrix y = {all.buffer, columns, column * UINT64_C(4), parts[i].own < parts[i].rows ? parts[i].own : 0};
    if (i == 0) all.part = y.part;
    graph_product_add(g, parts[i].what, x, weight, y, (gemm_args){.n = rows, .y_kind = Y_F32});
    i += joined;
  }
  return all;
}
