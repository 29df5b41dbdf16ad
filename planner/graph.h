/* graph.h - from a model and its limits to tensors, buffers and ordered ops.
 *
 * The op order is that of NUMERICS.md; every op names its buffers, and a work buffer lives from its first to its last op. Only weights are
 * placed here: their order is their placement. Read next: place.h, check.h. */
#ifndef VERBATIM_GRAPH_H
#define VERBATIM_GRAPH_H
#include "draft.h"
#include "model_config.h"
#include "profile.h"

#define GRAPH_ROWS_PAD 128u /* rows of activations are padded to the largest tile */

/* plan->model, quant, grouped and limits must be set and in range. config: how the files name and store the weights. */
void graph_build(draft *plan, const profile *pins, const model_config *config);

#endif
