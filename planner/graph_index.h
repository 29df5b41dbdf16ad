/* graph_index.h - the indexer of a layer: chooses the tokens a query attends to, where these are not all.
 *
 * Queries, keys and weights from their projections, then scores and top-k lists, for as many token rows at a time as the scores have room
 * for. Only for graph*.c. */
#ifndef VERBATIM_GRAPH_INDEX_H
#define VERBATIM_GRAPH_INDEX_H
#include "graph_add.h"

/* q, k, w: fp32 columns of the layer's projections. Returns the buffer of the lists, u32 [rows][index_topk]. */
uint32_t graph_index_add(graph *g, matrix q, matrix k, matrix w);

#endif
