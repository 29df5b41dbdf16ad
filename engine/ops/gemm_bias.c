/* gemm_bias.c - the op `gemm_bias`: products of rows and weights with a bias, in bf16. NUMERICS.md "gemm_bias"; see ops/op.h. */
#include "ops/op.h"
#include "ops/boxes.h"

static void operands(op_operands *o) {
  const gemm_bias_args *a = o->args;
  const enum op_rows rows = op_rows_of(a->rows_kind);
  const op_result y = op_result_of(a->n, a->y_kind);
  READS(gemm_bias, x, .kind = OP_POINT, .rows = rows, .type = OP_BF16, .row_stride = a->ldx, .columns = a->k);
  READS(gemm_bias, w, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = op_times(a->n, a->k));
  READS(gemm_bias, bias, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = a->n);
  WRITES(gemm_bias, y, .kind = OP_POINT, .rows = rows, .type = y.type, .row_stride = a->ldy, .columns = y.columns);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const gemm_bias_args *a = o->args;
  sum->flops += 2.0 * (double)step->rows * (double)((uint64_t)a->n * a->k);
}

static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const gemm_bias_args *a = args;
  if (boxes_is_many(v)) {
    shapes[0] = boxes_many_weights(a->w, a->n, a->k, 1, 0, a->y_kind, boxes_many_w(v));
    shapes[1] = boxes_matrices(a->x, a->k, v->launch_rows, 1, a->ldx, 0, boxes_many_x(v, false), 1);
    return;
  }
  shapes[0] = boxes_few_weights(v, a->w, a->n, a->k, 1, 0, a->y_kind);
  shapes[1] = v->tile_rows == 1 ? shapes[0] : boxes_matrices(a->x, a->k, v->launch_rows, 1, a->ldx, 0, v->tile_rows, 1);
  boxes_read_once(shapes);
}

const op_description ops_gemm_bias = {.pointers = offsetof(gemm_bias_args, ldx) / 8, .family = OP_OF_PRODUCTS, .is_product = true,
                                      .operands = operands, .cost = cost, .maps = maps};
