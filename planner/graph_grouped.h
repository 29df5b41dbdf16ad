/* graph_grouped.h - the grouped-query attention of a layer: projections, KV row, attention, output.
 *
 * Prompts and generated tokens have one form. Only for graph_attention.c. Read next: NUMERICS.md "attn", plan/format_grouped.h. */
#ifndef VERBATIM_GRAPH_GROUPED_H
#define VERBATIM_GRAPH_GROUPED_H
#include "graph_product.h"

/* The split of the contexts, once for all layers. */
void graph_grouped_cut(graph *g);

/* From the block's input, rows of `hidden` columns, to what is added to the residual stream: fp32; a rank may have some columns of it. */
matrix graph_grouped_add(graph *g, product_rows *rows);

#endif
