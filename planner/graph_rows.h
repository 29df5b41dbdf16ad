/* graph_rows.h - steps of many token rows on several ranks: parts of a layer whose rows are divided among the ranks.
 *
 * Such a part begins with a norm that adds to the residual stream. In steps of few rows all ranks compute all rows of it. In steps of many
 * rows each computes those that it owns (kernels_src/step.h): the columns to add come to the owner of a row alone, and what follows the
 * part gets its results from all ranks. Every op of a part has an alternative of ROWS_OWN for that, whose buffers are twins of the others.
 * Only for graph*.c. Read next: graph_ranks.h. */
#ifndef VERBATIM_GRAPH_ROWS_H
#define VERBATIM_GRAPH_ROWS_H
#include "graph_product.h"

/* Decides from how many rows on; before any op. */
void graph_rows_open(graph *g);

/* The most token rows of a step that are not divided. */
uint32_t graph_rows_whole_max(const graph *g);

/* Whether steps of more rows are divided. */
static inline bool graph_rows_has(const graph *g) { return graph_rows_whole_max(g) < g->l->max_batch_tokens; }

/* Begins a part: the next op is its norm. Without divided rows this and the others of this file do nothing, unless they say so. */
void graph_rows_begin(graph *g);

/* The ops that follow are not of the part; and they are of it again. */
static inline void graph_rows_pause(graph *g) { g->divides = false; }
static inline void graph_rows_resume(graph *g) { g->divides = graph_rows_has(g); }

typedef struct rows_table { /* columns of a result of the part, from byte `offset` of a row on */
  uint32_t buffer, stride, offset, bytes; /* stride, bytes: of a row. bytes 0: there is no such table */
} rows_table;

/* The rows of a product after the part, or none of them, and further results: whole on all ranks. Pauses the part. is_scaled: all products
 * that read the rows are scaled; then they are quantized as part of it, and only their codes become whole, if they are whole words. */
void graph_rows_gather(graph *g, const char *what, product_rows *rows, bool is_scaled, const rows_table *more, uint32_t count);

/* The whole residual stream on all ranks, after the last part. */
void graph_rows_end(graph *g);

/* Adds the alternatives of an op of a part. */
void graph_rows_add_op(graph *g, op_call call);

#endif
