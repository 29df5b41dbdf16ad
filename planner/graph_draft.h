/* graph_draft.h - the draft section: the ops after `sample` that guess the next tokens of sequences with the model's prediction layer.
 *
 * `accept`, then one pass for each guess: the layer behind the model's last, with the model's embedding and head. Nothing before it reads
 * what it writes. Only for graph.c. */
#ifndef VERBATIM_GRAPH_DRAFT_H
#define VERBATIM_GRAPH_DRAFT_H
#include "graph_add.h"

/* logits: the buffer of the step's logits, which stays as it is until the end. */
void graph_draft_add(graph *g, uint32_t logits);

#endif
