/* read.h - reads one source once, in pieces that stay in the cache, digests them there, and writes them to the place that the plan states.
 *
 * Numbers are copied, sliced, transposed, or converted to the type of the plan's tensor. The destination is host memory, or a ring of
 * staging slots whose contents are uploaded by another thread. Several threads may call it at once, each with its own scratch. Read next:
 * weights.c. */
#ifndef VERBATIM_WEIGHTS_READ_H
#define VERBATIM_WEIGHTS_READ_H
#include "weights/match.h"
#include "weights/weights.h"

typedef struct weights_reader {
  const weights_match *match;
  const weights_target *target; /* null: sources are read and digested only */
  staging *ring;                /* of a target on a GPU                     */
  bool sha256;                  /* also take the SHA-256 of every source    */
} weights_reader;

typedef struct weights_scratch { /* a thread's memory for sources that are not copied whole; initially zero */
  uint8_t *bytes;
  uint64_t room;
} weights_scratch;

/* Reads source number `index` together with its scales, and sets their digests, and their SHA-256 with self->sha256. */
status weights_read(const weights_reader *self, uint32_t index, weights_scratch *memory);

void weights_read_end(weights_scratch *memory);

#endif
