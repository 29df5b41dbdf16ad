/* check_drafts.h - checks that the ops which make drafts are a section of their own: nothing of a request can depend on them.
 *
 * What each of them touches in a step is checked with all ops, in check.c. Shares no code with the graph that wrote them. */
#ifndef VERBATIM_CHECK_DRAFTS_H
#define VERBATIM_CHECK_DRAFTS_H
#include "engine/base/base.h"
#include "engine/plan/format.h"

typedef struct drafts_plan { /* tables whose indices are in range */
  const plan_header *header;
  const plan_op *ops;
  const plan_fixup *fixups;
  const plan_buffer *buffers;
  const uint32_t *homes; /* [fixups] the buffer of each pointer */
  const uint8_t *args;
  const char *strings;
} drafts_plan;

/* ERR_FORMAT names the op. */
status check_drafts(const drafts_plan *plan);

#endif
