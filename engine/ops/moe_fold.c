/* moe_fold.c - the op `moe_fold`: sums some of the columns of a token's experts. NUMERICS.md "moe_fold"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const moe_fold_args *a = o->args;
  READS(moe_fold, experts, .kind = OP_POINT, .rows = OP_PAIRS, .pairs = a->top_k, .type = OP_F32, .columns = a->columns);
  READS(moe_fold, pair_row, .kind = OP_WORKSPACE, .type = OP_U32, .columns = a->top_k);
  READS(moe_fold, topk_weight, .kind = OP_POINT, .type = OP_F32, .columns = a->top_k);
  READS(moe_fold, delta, .kind = OP_POINT, .type = OP_F32, .row_stride = a->delta_stride, .columns = a->columns);
  READS(moe_fold, gate, .kind = OP_POINT, .type = OP_F32, .row_stride = a->gate_stride, .columns = 1);
  WRITES(moe_fold, y, .kind = OP_WORKSPACE, .type = OP_F32, .row_stride = a->y_stride, .columns = a->columns);
}

/* For each expert of a token: a product and a sum. */
static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const moe_fold_args *a = o->args;
  const bool adds = op_has(o, offsetof(moe_fold_args, delta));
  sum->flops += (double)(step->rows * a->columns) * (2.0 * a->top_k + adds);
}

const op_description ops_moe_fold = {
    .pointers = offsetof(moe_fold_args, columns) / 8, .optional = OP_POINTER(moe_fold, delta) | OP_POINTER(moe_fold, gate),
    .family = OP_OF_ROWS, .operands = operands, .cost = cost};
