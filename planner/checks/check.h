/* check.h - an independent verifier of finished plans. It shares no code with the graph, the placer or the specialiser.
 *
 * Proves, for every combination of launch row counts at the ends of the ops' row ranges:
 *   - regions, buffers and tensors lie where they may; no two buffers that are alive at a common op overlap;
 *   - every weight buffer is covered by its tensors, once, and read with its own dtype;
 *   - every pointer of every op stays inside one buffer alive at that op, with the row stride and dtype it was written with;
 *   - nothing of the work region is read before it is written in the same step, and no op writes what it reads, except for the
 *     residual addition of rmsnorm in place;
 *   - alternatives of an op are disjoint; every layer writes its KV rows; every logits row gets a token and a digest;
 *   - grids cover the work; blocks and shared memory stay within the GPU's limits. */
#ifndef VERBATIM_CHECK_H
#define VERBATIM_CHECK_H
#include "engine/base/base.h"

/* bytes: a plan file, 8-byte aligned; any content is allowed. ERR_FORMAT names the op, buffer or table that breaks a rule. ERR_LIMIT:
 * larger than any model's plan. */
status check_plan(const void *bytes, size_t byte_count);

#endif
