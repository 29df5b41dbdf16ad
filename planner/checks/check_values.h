/* check_values.h - checks the numbers in an op's arguments that no extent reveals, against the header's. With other values the op would
 * compute something else under the same numerics id, or look for pages, experts or partial results that do not exist.
 *
 * An independent reading of abi.h for check.c, like check_access.h: shares no code with the graph that wrote the arguments. */
#ifndef VERBATIM_CHECK_VALUES_H
#define VERBATIM_CHECK_VALUES_H
#include "engine/base/base.h"
#include "engine/plan/format.h"

/* Checks the model and the limits by themselves. ERR_FORMAT names the field. */
status check_values_header(const plan_header *header);

/* args: the op's bytes, 8-byte aligned, of the size that its kernel takes; pointers that a fixup sets are not NULL. ERR_FORMAT names the op
 * and the field. */
status check_values_op(const plan_header *header, const plan_op *op, const void *args, const char *name);

#endif
