/* adjust.c - the op `adjust`: logits after penalties, biases and bans. NUMERICS.md "adjust"; see ops/op.h. */
#include "ops/op.h"

/* The cost is that of a step in which no row needs it. */
static void operands(op_operands *o) {
  const adjust_args *a = o->args;
  READS(adjust, logits, .kind = OP_POINT, .rows = OP_LOGITS, .type = OP_F32, .columns = a->vocab, .is_free = true);
  READS(adjust, param, .kind = OP_ENGINE, .rows = OP_LOGITS, .columns = sizeof(sample_param));
  READS(adjust, lists, .kind = OP_ENGINE, .columns = TOKEN_LIST_MAX * sizeof(token_bias), .is_free = true);
  READS(adjust, history, .kind = OP_ENGINE, .rows = OP_CONTEXT, .type = OP_U32, .columns = 1, .is_free = true);
  READS(adjust, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  WRITES(adjust, adjusted, .kind = OP_POINT, .rows = OP_LOGITS, .type = OP_F32, .columns = a->vocab, .is_free = true);
}

const op_description ops_adjust = {.pointers = offsetof(adjust_args, vocab) / 8, .family = OP_OF_LOGITS, .operands = operands};
