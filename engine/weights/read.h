/* read.h - one source at a time: read once, in pieces that stay in the cache, digested there, and written where the plan wants it.
 *
 * On the way to the plan's tensors numbers are copied, sliced, transposed or widened. The destination is host memory, or a ring of staging
 * slots whose contents are uploaded by another thread. Called by several threads at once, with a scratch each. Read next: weights.c. */
#ifndef VERBATIM_WEIGHTS_READ_H
#define VERBATIM_WEIGHTS_READ_H
#include "weights/match.h"
#include "weights/weights.h"

typedef struct weights_reader {
  const weights_match *match;
  const weights_target *target; /* null: sources are read and digested only */
  staging *ring;                /* of a target on a GPU                     */
} weights_reader;

typedef struct weights_scratch { /* a thread's own memory for sources that are not copied whole; zeroed at first */
  uint8_t *bytes;
  uint64_t room;
} weights_scratch;

/* Reads source number `index`, and its scales with it, and sets their digests. */
status weights_read(const weights_reader *self, uint32_t index, weights_scratch *memory);

void weights_read_end(weights_scratch *memory);

#endif
