/* fp8_moe_gemm.c - the op `fp8_moe_gemm`: `moe_gemm` in scaled e4m3. NUMERICS.md "fp8_moe_gemm"; see ops/op.h. */
#include "ops/op.h"
#include "ops/boxes.h"

static void operands(op_operands *o) {
  const fp8_moe_gemm_args *a = o->args;
  const bool is_gathered = op_has(o, offsetof(fp8_moe_gemm_args, row_token)); /* as in moe_gemm */
  const enum op_rows rows = is_gathered ? OP_TOKENS : OP_PAIRS;
  const uint32_t pairs = is_gathered ? 1 : a->top_k;
  const op_result y = op_result_of(a->n, a->y_kind);
  const uint64_t k_scales = a->k / SCALE_COLUMNS;
  READS(fp8_moe_gemm, expert_first, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = a->experts + 1ull, .is_free = true);
  READS(fp8_moe_gemm, row_token, .kind = OP_WORKSPACE, .rows = OP_PAIRS, .pairs = a->top_k, .type = OP_U32, .columns = 1, .is_free = true);
  READS(fp8_moe_gemm, x, .kind = OP_WORKSPACE, .rows = rows, .pairs = pairs, .columns = a->k);
  READS(fp8_moe_gemm, x_scale, .kind = OP_WORKSPACE, .rows = rows, .pairs = pairs, .type = OP_F32, .columns = k_scales);
  READS(fp8_moe_gemm, w, .kind = OP_WEIGHTS, .rows = OP_EXPERTS, .columns = op_times(a->n, a->k));
  READS(fp8_moe_gemm, w_scale, .kind = OP_WEIGHTS, .rows = OP_EXPERTS, .type = OP_F32,
        .columns = op_times(div_up(a->n, SCALE_COLUMNS), k_scales));
  WRITES(fp8_moe_gemm, y, .kind = OP_POINT, .rows = OP_PAIRS, .pairs = a->top_k, .type = y.type, .columns = y.columns);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const fp8_moe_gemm_args *a = o->args;
  sum->flops += 2.0 * (double)(step->rows * a->top_k) * a->n * a->k;
}

/* The small-M form gathers tokens without a tensor map. */
static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const fp8_moe_gemm_args *a = args;
  const uint32_t k = a->k / 2; /* pairs of numbers */
  if (boxes_is_many(v)) {
    shapes[0] = boxes_of_bytes(boxes_many_weights(a->w, a->n, k, a->experts, (uint64_t)a->n * k, a->y_kind, v->tile_n));
    shapes[1] = boxes_of_bytes(boxes_matrices(a->x, k, (uint64_t)v->launch_rows * a->top_k, 1, k, 0, boxes_many_x(v, true), 1));
    return;
  }
  shapes[0] = boxes_few_codes(v, a->w, a->n, a->k, a->experts, a->y_kind);
  shapes[1] = shapes[0];
  boxes_read_once(shapes);
}

const op_description ops_fp8_moe_gemm = {
    .pointers = offsetof(fp8_moe_gemm_args, n) / 8, .optional = OP_POINTER(fp8_moe_gemm, row_token), .family = OP_OF_EXPERTS,
    .is_product = true, .is_e4m3 = true, .operands = operands, .cost = cost, .maps = maps};
