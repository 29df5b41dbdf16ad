/* gemm.c - the op `gemm`: products of rows and weights, in bf16. NUMERICS.md "gemm"; see ops/op.h. */
#include "ops/op.h"
#include "ops/boxes.h"

static void operands(op_operands *o) {
  const gemm_args *a = o->args;
  const enum op_rows rows = op_rows_of(a->rows_kind);
  const op_result y = op_result_of(a->n, a->y_kind);
  READS(gemm, x, .kind = OP_POINT, .rows = rows, .type = OP_BF16, .row_stride = a->ldx, .columns = a->k, .segments = a->batches,
        .segment_stride = a->x_batch);
  READS(gemm, w, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = op_times(a->n, a->k), .segments = a->batches,
        .segment_stride = a->w_batch);
  WRITES(gemm, y, .kind = OP_POINT, .rows = rows, .type = y.type, .row_stride = a->ldy, .columns = y.columns, .segments = a->batches,
         .segment_stride = a->y_batch);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const gemm_args *a = o->args;
  sum->flops += 2.0 * (double)step->rows * (double)((uint64_t)a->n * a->k * a->batches);
}

static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const gemm_args *a = args;
  if (boxes_is_many(v)) {
    shapes[0] = boxes_many_weights(a->w, a->n, a->k, a->batches, a->w_batch, a->y_kind, boxes_many_w(v));
    shapes[1] = boxes_matrices(a->x, a->k, v->launch_rows, a->batches, a->ldx, a->x_batch, boxes_many_x(v, false), 1);
    return;
  }
  shapes[0] = boxes_few_weights(v, a->w, a->n, a->k, a->batches, a->w_batch, a->y_kind);
  shapes[1] = v->tile_rows == 1 ? shapes[0]
                                : boxes_matrices(a->x, a->k, v->launch_rows, a->batches, a->ldx, a->x_batch, v->tile_rows, 1);
  boxes_read_once(shapes);
}

const op_description ops_gemm = {.pointers = offsetof(gemm_args, x_batch) / 8, .family = OP_OF_PRODUCTS, .is_product = true,
                                 .operands = operands, .cost = cost, .maps = maps};
