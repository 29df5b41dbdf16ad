/* fp8_gemm.c - the op `fp8_gemm`: products of rows and weights, in scaled e4m3. NUMERICS.md "fp8_gemm"; see ops/op.h. */
#include "ops/op.h"
#include "ops/boxes.h"

static void operands(op_operands *o) {
  const fp8_gemm_args *a = o->args;
  const enum op_rows rows = op_rows_of(a->rows_kind);
  const op_result y = op_result_of(a->n, a->y_kind);
  const uint64_t k_scales = a->k / SCALE_COLUMNS;
  READS(fp8_gemm, x, .kind = OP_WORKSPACE, .rows = rows, .columns = a->k);
  READS(fp8_gemm, x_scale, .kind = OP_WORKSPACE, .rows = rows, .type = OP_F32, .columns = k_scales);
  READS(fp8_gemm, w, .kind = OP_WEIGHTS, .rows = OP_ONCE, .columns = op_times(a->n, a->k));
  READS(fp8_gemm, w_scale, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_F32, .columns = op_times(div_up(a->n, SCALE_COLUMNS), k_scales));
  WRITES(fp8_gemm, y, .kind = OP_POINT, .rows = rows, .type = y.type, .row_stride = a->ldy, .columns = y.columns);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const fp8_gemm_args *a = o->args;
  sum->flops += 2.0 * (double)step->rows * a->n * a->k;
}

static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const fp8_gemm_args *a = args;
  const uint32_t k = a->k / 2; /* pairs of numbers */
  if (boxes_is_many(v)) {
    shapes[0] = boxes_of_bytes(boxes_many_weights(a->w, a->n, k, 1, 0, a->y_kind, boxes_many_w(v)));
    shapes[1] = boxes_of_bytes(boxes_matrices(a->x, k, v->launch_rows, 1, k, 0, boxes_many_x(v, true), 1));
    return;
  }
  shapes[0] = boxes_few_codes(v, a->w, a->n, a->k, 1, a->y_kind);
  shapes[1] = v->tile_rows == 1 ? shapes[0] : boxes_of_bytes(boxes_matrices(a->x, k, v->launch_rows, 1, k, 0, v->tile_rows, 1));
  boxes_read_once(shapes);
}

const op_description ops_fp8_gemm = {.pointers = offsetof(fp8_gemm_args, ldy) / 8, .family = OP_OF_PRODUCTS, .is_product = true,
                                     .is_e4m3 = true, .operands = operands, .cost = cost, .maps = maps};
