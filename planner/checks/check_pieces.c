/* check_pieces.c - see check_pieces.h. Shares no code with the graph. */
#include "checks/check_pieces.h"

/* Checks one buffer against those of the ops first .. end - 1. */
static status check_buffer(const branches_plan *p, uint32_t first, uint32_t end, uint32_t home) {
  const plan_buffer *b = &p->buffers[home];
  for (uint32_t i = first; i < end; i++)
    for (uint32_t j = 0; j < p->ops[i].fixup_count; j++) {
      const uint32_t other = p->homes[p->ops[i].first_fixup + j];
      const plan_buffer *o = &p->buffers[other];
      const bool is_apart =
          other == home || o->region != REGION_WORK || b->offset >= o->offset + o->bytes || o->offset >= b->offset + b->bytes;
      if (!is_apart)
        return FAIL(ERR_FORMAT, "check: %s and %s overlap, and both are used for every piece of the contexts", p->strings + b->name,
                    p->strings + o->name);
    }
  return OK;
}

status check_pieces(const branches_plan *p) {
  for (uint32_t first = 0, end; first < p->header->ops.count; first = end) {
    for (end = first; end < p->header->ops.count && p->ops[end].rows_kind == ROWS_PROMPT;) end++;
    for (uint32_t i = first; i < end; i++)
      for (uint32_t j = 0; j < p->ops[i].fixup_count; j++) {
        const uint32_t home = p->homes[p->ops[i].first_fixup + j];
        if (p->buffers[home].region == REGION_WORK) TRY(check_buffer(p, first, end, home));
      }
    end = max_u32(end, first + 1);
  }
  return OK;
}
