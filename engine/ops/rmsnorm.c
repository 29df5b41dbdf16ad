/* rmsnorm.c - the op `rmsnorm`: sums the results of the layers and normalises the sum. NUMERICS.md "rmsnorm"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const rmsnorm_args *a = o->args;
  const enum op_rows rows = op_rows_of(a->rows_kind);
  READS(rmsnorm, row_index, .kind = OP_ENGINE, .rows = rows, .type = OP_U32, .columns = 1, .is_free = true);
  READS(rmsnorm, x, .kind = OP_POINT, .type = OP_F32, .row_stride = a->x_stride, .columns = a->dim);
  READS(rmsnorm, delta, .kind = OP_POINT, .type = OP_F32, .row_stride = a->x_stride, .columns = a->dim);
  if (a->top_k) READS(rmsnorm, experts, .kind = OP_POINT, .rows = OP_PAIRS, .pairs = a->top_k, .type = OP_F32, .columns = a->dim);
  READS(rmsnorm, pair_row, .kind = OP_WORKSPACE, .type = OP_U32, .columns = a->top_k);
  READS(rmsnorm, topk_weight, .kind = OP_POINT, .type = OP_F32, .columns = a->top_k);
  READS(rmsnorm, gate, .kind = OP_POINT, .type = OP_F32, .row_stride = a->gate_stride, .columns = 1);
  READS(rmsnorm, weight, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = a->dim);
  WRITES(rmsnorm, x_out, .kind = OP_POINT, .type = OP_F32, .row_stride = a->x_stride, .columns = a->dim, .point = "x");
  WRITES(rmsnorm, y, .kind = OP_POINT, .rows = rows, .type = a->y_kind == Y_F32 ? OP_F32 : OP_BF16, .row_stride = a->y_stride,
         .columns = a->dim);
}

/* For each expert of a token: a product and a sum. */
static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const rmsnorm_args *a = o->args;
  const bool adds = op_has(o, offsetof(rmsnorm_args, delta));
  sum->flops += (double)(step->rows * a->dim) * (4 + 2 * (adds || a->top_k) + 2.0 * a->top_k + (adds && a->top_k));
}

const op_description ops_rmsnorm = {
    .pointers = offsetof(rmsnorm_args, rows_kind) / 8,
    .optional = OP_POINTER(rmsnorm, weight) |
                OP_POINTER(rmsnorm, row_index) | OP_POINTER(rmsnorm, x) | OP_POINTER(rmsnorm, delta) | OP_POINTER(rmsnorm, experts) |
                OP_POINTER(rmsnorm, pair_row) | OP_POINTER(rmsnorm, topk_weight) | OP_POINTER(rmsnorm, gate) |
                OP_POINTER(rmsnorm, x_out),
    .family = OP_OF_ROWS, .operands = operands, .cost = cost};
