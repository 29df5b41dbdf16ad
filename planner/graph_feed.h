/* graph_feed.h - the feed-forward block of a layer: dense, or a router with its experts and shared experts.
 *
 * From the residual stream to what is added to it. Only for graph.c. */
#ifndef VERBATIM_GRAPH_FEED_H
#define VERBATIM_GRAPH_FEED_H
#include "graph_add.h"

void graph_feed_add(graph *g);

#endif
