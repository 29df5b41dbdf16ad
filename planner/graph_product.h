/* graph_product.h - products of rows with the weights of modules, in each module's format: bf16, or scaled e4m3.
 *
 * Rows are quantized to e4m3 once, by their own op before the first product that needs it; products that read the same rows share the
 * result. Modules with adjacent rows are one product where their formats allow it. Only for graph*.c. */
#ifndef VERBATIM_GRAPH_PRODUCT_H
#define VERBATIM_GRAPH_PRODUCT_H
#include "graph_add.h"

typedef struct product_part { /* a module: "of.leaf", or "of.0.leaf", "of.1.leaf", ... */
  const char *of, *leaf;
  uint32_t rows;
  uint32_t product; /* enum config_product, which determines its format; PRODUCT_COUNT: bf16 */
  const char *what; /* name of a product that begins with it */
  uint32_t own;     /* rows of a rank, from a multiple of them on; all of them: every rank has the same */
  uint32_t row0, whole; /* where the files have several modules as one: its rows, and the first of this one; else 0 */
  bool has_bias; /* as the other parts of the product; only of bf16 modules */
} product_part;

typedef struct product_weight {
  uint32_t w, scales, bias; /* buffers; scales is DRAFT_NONE for bf16, bias where there is none */
} product_weight;

static inline bool graph_product_is_e4m3(product_weight weight) { return weight.scales != DRAFT_NONE; }

typedef struct product_rows { /* bf16 rows, and their e4m3 form once a product has needed it; before that DRAFT_NONE */
  matrix x;
  const char *what;
  uint32_t mul;           /* their number is that of the step's tokens times this */
  uint32_t codes, scales;
} product_rows;

typedef struct row_range { /* launch rows; empty if min is above max */
  uint32_t min, max;
} row_range;

static inline product_rows graph_product_rows(matrix x, const char *what) {
  return (product_rows){.x = x, .what = what, .mul = 1, .codes = DRAFT_NONE, .scales = DRAFT_NONE};
}
static inline row_range graph_product_all(const graph *g) { return (row_range){1, g->l->max_batch_tokens}; }

/* Whether the product (enum config_product) of the current layer has scaled e4m3 weights. */
bool graph_product_is_scaled(const graph *g, uint32_t product);

/* Rows of a weight that are divided among ranks go to one of them in multiples of this: whole blocks of scales, or of what is stored at a
 * time. */
static inline uint32_t graph_product_unit(const graph *g) { return g->plan->quant.weight_format == WEIGHTS_E4M3 ? SCALE_COLUMNS : 8; }

/* The parts' rows, adjacent, all in the format of the first one; copies: number of numbered modules, else 0. */
product_weight graph_product_weight(graph *g, const char *what, const product_part *parts, uint32_t count, uint32_t copies, uint32_t cols);

/* Ensures that the rows' e4m3 form exists, for launch rows of the range. */
void graph_product_quantize(graph *g, product_rows *rows, row_range range);

/* Its two parts: the buffers, and the op that fills them. */
void graph_product_add_codes(graph *g, product_rows *rows);
void graph_product_add_quantize(graph *g, const product_rows *rows, row_range range);

/* Like graph_add_gemm; shape: n, y_kind, order. */
void graph_product_add(graph *g, const char *what, product_rows *x, product_weight weight, matrix y, gemm_args shape);

/* fp32 columns of all parts, adjacent, for the same rows; what: their name. Parts that are divided among ranks come first. */
matrix graph_product_parts(graph *g, const char *what, product_rows *x, const product_part *parts, uint32_t count);

#endif
