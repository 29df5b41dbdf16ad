/* check_forms.h - whether the kernel of an op is of the form that its arguments need: what it keeps in registers, reads, gathers or sends.
 *
 * A part of check.c, which is about the memory of whole steps. Shares no code with the specialiser that chose the kernel. */
#ifndef VERBATIM_CHECK_FORMS_H
#define VERBATIM_CHECK_FORMS_H
#include "checks/check_kernels.h"

/* Blocks of a grid dimension. */
uint64_t check_forms_extent(plan_dim d, uint64_t rows);

/* args: with pointers that are set not null; rows: launch rows. ERR_FORMAT names the op. */
status check_forms(const kernels_plan *p, const plan_op *op, const void *args, uint64_t rows);

#endif
