/* embed.c - the op `embed`: token ids to rows of the residual stream. NUMERICS.md "embed"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const embed_args *a = o->args;
  READS(embed, token, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(embed, sampled, .kind = OP_ENGINE, .rows = OP_ONCE, .type = OP_U32, .columns = 1, .is_free = true);
  READS(embed, table, .kind = OP_WEIGHTS, .type = OP_BF16, .columns = a->hidden);
  READS(embed, position, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(embed, seq, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(embed, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  WRITES(embed, x, .kind = OP_POINT, .type = OP_F32, .columns = a->hidden);
  WRITES(embed, history, .kind = OP_ENGINE, .rows = OP_PAGED, .type = OP_U32, .columns = 1);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const embed_args *a = o->args;
  sum->flops += (double)(step->rows * a->hidden);
}

const op_description ops_embed = {.pointers = offsetof(embed_args, hidden) / 8, .family = OP_OF_ROWS, .operands = operands, .cost = cost,
                                  .optional = OP_POINTER(embed, sampled) | OP_POINTER(embed, position) | OP_POINTER(embed, seq) |
                                              OP_POINTER(embed, block_table) | OP_POINTER(embed, history)};
