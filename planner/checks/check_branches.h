/* check_branches.h - checks that ops of a plan that may run concurrently do not interfere. Part of check.h.
 *
 * A window runs from the first op of the side branch to the op that joins, which may be another one for other row counts. Every work
 * buffer that an op in it uses must be alive during the whole window, so that no two of them share bytes (check.c tests that for buffers
 * alive together), and a buffer that one branch writes must not be used by the other. In steps without branches an op may start during the
 * op before it if that is of the other branch in the same window, and it lets the next op start only when everything before it is complete
 * (enum op_order). A norm that reads the routing before it waits comes directly after the experts' products. Read next: check.c. */
#ifndef VERBATIM_CHECK_BRANCHES_H
#define VERBATIM_CHECK_BRANCHES_H
#include "engine/base/base.h"
#include "engine/plan/format.h"

typedef struct branches_plan { /* tables of the plan, with bounds already checked */
  const plan_header *header;
  const plan_op *ops;
  const plan_fixup *fixups;
  const plan_buffer *buffers;
  const uint32_t *homes; /* [fixups] the buffer that the pointer lies in */
  const uint8_t *args;   /* all argument structs           */
  const char *strings;
} branches_plan;

status check_branches(const branches_plan *p);

#endif
