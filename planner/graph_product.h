/* graph_product.h - products of rows with the weights of modules, in the format that each module has: bf16, or scaled e4m3.
 *
 * Rows become e4m3 once, by an op of their own in front of the first product that takes them so; products that read the same rows share
 * it. Modules whose rows stand one behind the other are one product where their formats allow it. For graph*.c alone. */
#ifndef VERBATIM_GRAPH_PRODUCT_H
#define VERBATIM_GRAPH_PRODUCT_H
#include "graph_add.h"

typedef struct product_part { /* a module: "of.leaf", or "of.0.leaf", "of.1.leaf", ... */
  const char *of, *leaf;
  uint32_t rows;
  uint32_t product; /* enum config_product: says its format; PRODUCT_COUNT: bf16 */
  const char *what; /* name of a product that begins with it */
} product_part;

typedef struct product_weight {
  uint32_t w, scales; /* buffers; scales DRAFT_NONE: bf16 */
} product_weight;

typedef struct product_rows { /* bf16 rows, and their e4m3 form as soon as a product wants it; else DRAFT_NONE */
  matrix x;
  const char *what;
  uint32_t mul;           /* their number is that of the step's tokens times this */
  uint32_t codes, scales;
} product_rows;

typedef struct row_range { /* launch rows; none where min lies above max */
  uint32_t min, max;
} row_range;

static inline product_rows graph_product_rows(matrix x, const char *what) {
  return (product_rows){.x = x, .what = what, .mul = 1, .codes = DRAFT_NONE, .scales = DRAFT_NONE};
}
static inline row_range graph_product_all(const graph *g) { return (row_range){1, g->l->max_batch_tokens}; }

/* Whether the product (enum config_product) of the layer at hand has scaled e4m3 weights. */
bool graph_product_is_scaled(const graph *g, uint32_t product);

/* The parts' rows one behind the other, all in the format of the first one; copies: of numbered modules, else 0. */
product_weight graph_product_weight(graph *g, const char *what, const product_part *parts, uint32_t count, uint32_t copies, uint32_t cols);

/* For a weight of scaled e4m3 the rows' e4m3 form, if it is not there yet. */
void graph_product_prepare(graph *g, product_rows *rows, product_weight weight, row_range range);

/* As graph_add_gemm; shape: n, y_kind, order. */
void graph_product_add(graph *g, const char *what, product_rows *x, product_weight weight, matrix y, gemm_args shape);

/* fp32 columns of all parts, one part behind the other, of the same rows; what: their name. */
matrix graph_product_parts(graph *g, const char *what, product_rows *x, const product_part *parts, uint32_t count);

#endif
