/* index_topk.c - the op `index_topk`: the positions with the best scores. NUMERICS.md "index_topk"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const index_topk_args *a = o->args;
  READS(index_topk, scores, .kind = OP_WORKSPACE, .type = OP_F32, .columns = a->stride, .is_free = true); /* cost() */
  READS(index_topk, position, .kind = OP_ENGINE, .type = OP_U32, .columns = 1, .is_free = true);
  WRITES(index_topk, lists, .kind = OP_POINT, .type = OP_U32, .columns = a->topk);
}

/* Rows of at most topk scores are not read. */
static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const index_topk_args *a = o->args;
  for (uint64_t i = 0; i < step->rows; i++) sum->activation_bytes += step->position[i] < a->topk ? 0 : 4 * (step->position[i] + 1ull);
}

static void window(const void *args, uint32_t *first, uint32_t *count) {
  const index_topk_args *a = args;
  *first = a->row_first;
  *count = a->row_count;
}

const op_description ops_index_topk = {.pointers = offsetof(index_topk_args, topk) / 8, .family = OP_OF_ATTENTION,
                                       .prior = &ops_index_score, .operands = operands, .cost = cost, .window = window};
