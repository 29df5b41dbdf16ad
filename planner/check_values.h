/* check_values.h - the numbers in an op's arguments that no extent betrays, against the header's: with others the op would compute
 * something else under an unchanged numerics id, or look for pages, experts or partial results where there are none.
 *
 * An independent reading of abi.h for check.c, like check_access.h: it shares no code with the graph that wrote the arguments. */
#ifndef VERBATIM_CHECK_VALUES_H
#define VERBATIM_CHECK_VALUES_H
#include "engine/base/base.h"
#include "engine/plan/format.h"

/* The model and the limits by themselves. ERR_FORMAT names the field. */
status check_values_header(const plan_header *header);

/* args: the op's bytes, 8-byte aligned, as many as its kernel takes; pointers that a fixup sets are not null. ERR_FORMAT names the op and
 * the field. */
status check_values_op(const plan_header *header, const plan_op *op, const void *args, const char *name);

#endif
