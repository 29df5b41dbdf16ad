/* graph_grouped.h - the grouped-query attention of a layer: projections, KV row, attention, output.
 *
 * Prompts and generated tokens have one form. Only for graph_attention.c. Read next: NUMERICS.md "attn", plan/format_grouped.h. */
#ifndef VERBATIM_GRAPH_GROUPED_H
#define VERBATIM_GRAPH_GROUPED_H
#include "graph_add.h"

/* The split of the contexts, once for all layers. */
void graph_grouped_cut(graph *g);

/* From the block's input to what is added to the residual stream: h is bf16 [rows][hidden]; the result is fp32, of which a rank may have
 * some columns. */
matrix graph_grouped_add(graph *g, matrix h);

#endif
