/* graph_attention.h - the attention block of a layer, and the split of contexts that all layers share.
 *
 * From the residual stream to what is added to it: projections, KV row, attention in latent form (for prompts in expanded form under
 * fast-prefill), values, output. Only for graph.c. */
#ifndef VERBATIM_GRAPH_ATTENTION_H
#define VERBATIM_GRAPH_ATTENTION_H
#include "graph_add.h"

/* Called once, before the first layer. */
void graph_attention_cut(graph *g);
void graph_attention_add(graph *g);

#endif
