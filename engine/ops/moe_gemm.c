/* moe_gemm.c - the op `moe_gemm`: products of sorted rows with their expert's weights, in bf16. NUMERICS.md "moe_gemm"; see ops/op.h. */
#include "ops/op.h"
#include "ops/boxes.h"

/* If rows are gathered, a token's row counts once for all its experts. */
static void operands(op_operands *o) {
  const moe_gemm_args *a = o->args;
  const bool is_gathered = op_has(o, offsetof(moe_gemm_args, row_token));
  const op_result y = op_result_of(a->n, a->y_kind);
  READS(moe_gemm, expert_first, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = a->experts + 1ull, .is_free = true);
  READS(moe_gemm, row_token, .kind = OP_WORKSPACE, .rows = OP_PAIRS, .pairs = a->top_k, .type = OP_U32, .columns = 1, .is_free = true);
  READS(moe_gemm, x, .kind = OP_POINT, .rows = is_gathered ? OP_TOKENS : OP_PAIRS, .pairs = is_gathered ? 1 : a->top_k, .type = OP_BF16,
        .row_stride = a->ldx, .columns = a->k);
  READS(moe_gemm, w, .kind = OP_WEIGHTS, .rows = OP_EXPERTS, .type = OP_BF16, .columns = op_times(a->n, a->k));
  WRITES(moe_gemm, y, .kind = OP_POINT, .rows = OP_PAIRS, .pairs = a->top_k, .type = y.type, .columns = y.columns);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const moe_gemm_args *a = o->args;
  sum->flops += 2.0 * (double)(step->rows * a->top_k) * a->n * a->k;
}

static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const moe_gemm_args *a = args;
  const uint64_t of_expert = (uint64_t)a->n * a->k, pairs = (uint64_t)v->launch_rows * a->top_k;
  if (boxes_is_many(v)) {
    shapes[0] = boxes_many_weights(a->w, a->n, a->k, a->experts, of_expert, a->y_kind, v->tile_n);
    shapes[1] = boxes_matrices(a->x, a->k, pairs, 1, a->ldx, 0, boxes_many_x(v, false), 1);
    return;
  }
  shapes[0] = boxes_few_weights(v, a->w, a->n, a->k, a->experts, of_expert, a->y_kind);
  shapes[1] = v->tile_rows == 1 ? shapes[0] : boxes_matrices(a->x, a->k, a->row_token ? v->launch_rows : pairs, 1, a->ldx, 0, 1, 1);
  shapes[1].dims = v->tile_rows == 1 ? 3 : 2;
  boxes_read_once(shapes);
}

const op_description ops_moe_gemm = {.pointers = offsetof(moe_gemm_args, ldx) / 8, .optional = OP_POINTER(moe_gemm, row_token),
                                     .family = OP_OF_EXPERTS, .is_product = true, .operands = operands, .cost = cost, .maps = maps};
