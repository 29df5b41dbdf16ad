/* moe_sort.c - the op `moe_sort`: orders (token, expert) pairs by expert. NUMERICS.md "moe_sort"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const moe_sort_args *a = o->args;
  READS(moe_sort, topk_id, .kind = OP_POINT, .type = OP_U32, .columns = a->top_k);
  READS(moe_sort, x, .kind = OP_POINT, .type = OP_BF16, .columns = a->columns);
  WRITES(moe_sort, expert_first, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = a->experts + 1ull);
  WRITES(moe_sort, row_token, .kind = OP_WORKSPACE, .rows = OP_PAIRS, .pairs = a->top_k, .type = OP_U32, .columns = 1);
  WRITES(moe_sort, pair_row, .kind = OP_WORKSPACE, .type = OP_U32, .columns = a->top_k);
  WRITES(moe_sort, x_sorted, .kind = OP_WORKSPACE, .rows = OP_PAIRS, .pairs = a->top_k, .type = OP_BF16, .columns = a->columns);
}

const op_description ops_moe_sort = {.pointers = offsetof(moe_sort_args, experts) / 8,
                                     .optional = OP_POINTER(moe_sort, x) | OP_POINTER(moe_sort, x_sorted), .family = OP_OF_ROWS,
                                     .operands = operands};
