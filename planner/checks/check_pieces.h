/* check_pieces.h - checks that what a piece of the contexts leaves for the next one is not written over. Part of check.h.
 *
 * Adjacent ops of prompts' rows are executed in sequence, once for every piece, so buffers whose lifetimes follow each other in the plan
 * may be needed in turn. No two work buffers that these ops use may share bytes. Read next: check.c. */
#ifndef VERBATIM_CHECK_PIECES_H
#define VERBATIM_CHECK_PIECES_H
#include "checks/check_branches.h"

status check_pieces(const branches_plan *p);

#endif
