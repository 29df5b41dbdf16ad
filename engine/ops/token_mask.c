/* token_mask.c - the op `token_mask`: what a row's mask lacks cannot be chosen. NUMERICS.md "token_mask"; see ops/op.h. */
#include "ops/op.h"

/* The cost is that of a step in which no row has a mask. The row is no trace point: `adjust` has it before, and the mask is the
 * request's. */
static void operands(op_operands *o) {
  const token_mask_args *a = o->args;
  READS(token_mask, param, .kind = OP_ENGINE, .rows = OP_LOGITS, .columns = sizeof(sample_param));
  READS(token_mask, masks, .kind = OP_ENGINE, .rows = OP_LOGITS, .type = OP_U32, .columns = a->words, .is_free = true);
  READS(token_mask, adjusted, .kind = OP_WORKSPACE, .rows = OP_LOGITS, .type = OP_F32, .columns = a->vocab, .is_free = true);
  WRITES(token_mask, adjusted, .kind = OP_WORKSPACE, .rows = OP_LOGITS, .type = OP_F32, .columns = a->vocab, .is_free = true);
}

const op_description ops_token_mask = {.pointers = offsetof(token_mask_args, vocab) / 8, .family = OP_OF_LOGITS, .operands = operands};
