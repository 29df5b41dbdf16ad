/* stop_ids.h - the ids that stop a request, as one list: the model's own and those it names.
 *
 * The list is part of a request's digest, so that it has one form. Must not know plans and engines. Read next: request.c. */
#ifndef VERBATIM_STOP_IDS_H
#define VERBATIM_STOP_IDS_H
#include "base/base.h"

/* Both lists in one, ascending, without repeats. ids: room for own_count + given_count. Returns how many. */
uint32_t stop_ids_join(const uint32_t *own, uint32_t own_count, const int32_t *given, uint32_t given_count, int32_t *ids);

#endif
