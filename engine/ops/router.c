/* router.c - the op `router`: chooses the experts of a token. NUMERICS.md "router"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const router_args *a = o->args;
  READS(router, logits, .kind = OP_POINT, .type = OP_F32, .columns = a->experts);
  READS(router, bias, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_F32, .columns = a->experts);
  WRITES(router, topk_id, .kind = OP_POINT, .type = OP_U32, .columns = a->top_k, .point = "topk_id");
  WRITES(router, topk_weight, .kind = OP_POINT, .type = OP_F32, .columns = a->top_k, .point = "topk_weight");
  WRITES(router, expert_first, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = a->experts + 1ull);
  WRITES(router, row_token, .kind = OP_WORKSPACE, .rows = OP_PAIRS, .pairs = a->top_k, .type = OP_U32, .columns = 1);
  WRITES(router, pair_row, .kind = OP_WORKSPACE, .type = OP_U32, .columns = a->top_k);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const router_args *a = o->args;
  sum->flops += 3.0 * (double)step->rows * a->experts;
}

const op_description ops_router = {
    .pointers = offsetof(router_args, experts) / 8,
    .optional = OP_POINTER(router, bias) | OP_POINTER(router, expert_first) | OP_POINTER(router, row_token) | OP_POINTER(router, pair_row),
    .family = OP_OF_ROWS, .operands = operands, .cost = cost};
