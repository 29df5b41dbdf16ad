/* check_branches.h - whether the ops of a plan that may run beside each other leave each other alone. Part of check.h.
 *
 * A window goes from the first op of the side branch up to the op that joins. Every work buffer that an op in it uses must be alive
 * during all of it, so that no two of them share bytes (check.c tests that of buffers alive together), and none that one branch writes
 * may be used by the other. In steps without branches an op may start beside the one before it if that is of the other branch in the same
 * window, and lets it start no earlier than when all that was before is complete (enum op_order). A norm that reads the routing before it
 * waits stands right behind the experts' products. Read next: check.c. */
#ifndef VERBATIM_CHECK_BRANCHES_H
#define VERBATIM_CHECK_BRANCHES_H
#include "engine/base/base.h"
#include "engine/plan/format.h"

typedef struct branches_plan { /* tables of the plan, their bounds checked */
  const plan_header *header;
  const plan_op *ops;
  const plan_fixup *fixups;
  const plan_buffer *buffers;
  const uint32_t *homes; /* [fixups] buffer of the pointer */
  const uint8_t *args;   /* the blob                       */
  const char *strings;
} branches_plan;

status check_branches(const branches_plan *p);

#endif
