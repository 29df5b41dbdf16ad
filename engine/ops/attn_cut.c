/* attn_cut.c - the op `attn_cut`: splits the contexts of a step among workers. NUMERICS.md "attn_cut"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const attn_cut_args *a = o->args;
  READS(attn_cut, tiles, .kind = OP_ENGINE, .columns = sizeof(attn_tile));
  READS(attn_cut, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  WRITES(attn_cut, counts, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = sizeof(attn_counts) / 4, .is_free = true);
  WRITES(attn_cut, pieces, .kind = OP_WORKSPACE, .type = OP_U32, .columns = sizeof(attn_piece) / 4, .is_free = true);
  WRITES(attn_cut, parts, .kind = OP_WORKSPACE, .type = OP_U32, .columns = sizeof(attn_part) / 4, .is_free = true);
}

const op_description ops_attn_cut = {.pointers = offsetof(attn_cut_args, heads) / 8, .family = OP_OF_ATTENTION, .operands = operands};
