/* accept.c - the op `accept`: which guesses were right, and the inputs of the next ones. NUMERICS.md "accept"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const accept_args *a = o->args;
  const uint64_t passes = a->draft_tokens, more = passes ? passes - 1 : 0;
  READS(accept, token, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(accept, position, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(accept, logit_row, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(accept, param, .kind = OP_ENGINE, .columns = sizeof(sample_param));
  READS(accept, result, .kind = OP_ENGINE, .columns = sizeof(sample_result));
  READS(accept, next, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(accept, drafts, .kind = OP_ENGINE, .columns = sizeof(step_draft));
  WRITES(accept, next_token, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  WRITES(accept, source, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  WRITES(accept, draft_param, .kind = OP_ENGINE, .rows = OP_ONCE, .columns = op_times(passes * sizeof(sample_param), a->stride));
  WRITES(accept, draft_token, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  WRITES(accept, draft_seq, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  WRITES(accept, draft_position, .kind = OP_ENGINE, .rows = OP_ONCE, .type = OP_U32, .columns = op_times(more, a->stride));
  WRITES(accept, draft_tiles, .kind = OP_ENGINE, .rows = OP_ONCE, .columns = op_times(more * sizeof(attn_tile), a->stride));
}

const op_description ops_accept = {.pointers = offsetof(accept_args, draft_tokens) / 8,
                                   .optional = OP_POINTER(accept, draft_token) | OP_POINTER(accept, draft_seq) |
                                               OP_POINTER(accept, draft_position) | OP_POINTER(accept, draft_tiles),
                                   .family = OP_OF_LOGITS, .operands = operands};
