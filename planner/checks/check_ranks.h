/* check_ranks.h - whether a plan divides its work among ranks rightly: what only one rank has is never taken for what all have.
 *
 * Follows columns through the list of ops: a weight of which every rank has its own rows makes columns that only this rank has, so do all
 * ops that read such columns, and only an exchange, alone or in a norm, makes them whole. Shares no code with the graph. Read next:
 * check.c. */
#ifndef VERBATIM_CHECK_RANKS_H
#define VERBATIM_CHECK_RANKS_H
#include "engine/base/base.h"
#include "engine/plan/format.h"

typedef struct ranks_plan { /* tables that check.c has checked */
  const plan_header *header;
  const plan_tensor *tensors;
  const plan_op *ops;
  const plan_fixup *fixups;
  const plan_buffer *buffers;
  const uint32_t *homes; /* [fixups] the buffer that the pointer lies in */
  const uint8_t *args;
  const char *strings;
} ranks_plan;

/* ERR_FORMAT names the op: it needs whole rows and reads a part, or states other columns than it divides; or the tensor whose rows are not
 * divided evenly. */
status check_ranks(const ranks_plan *p);

#endif
