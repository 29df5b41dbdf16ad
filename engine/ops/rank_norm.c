/* rank_norm.c - the op `rank_norm`: an exchange, the experts' sum and a norm as one op. NUMERICS.md "rank_norm"; see ops/op.h. */
#include "ops/op.h"

/* Its points are those of rmsnorm. */
static void operands(op_operands *o) {
  const rank_norm_args *a = o->args;
  READS(rank_norm, ranks, .kind = OP_ENGINE, .rows = OP_ONCE, .columns = sizeof(exchange_ranks), .is_free = true);
  READS(rank_norm, x, .kind = OP_POINT, .type = OP_F32, .columns = a->dim);
  READS(rank_norm, delta, .kind = OP_POINT, .type = OP_F32, .columns = a->part);
  if (a->top_k) READS(rank_norm, experts, .kind = OP_POINT, .rows = OP_PAIRS, .pairs = a->top_k, .type = OP_F32, .columns = a->part);
  READS(rank_norm, pair_row, .kind = OP_WORKSPACE, .type = OP_U32, .columns = a->top_k);
  READS(rank_norm, topk_weight, .kind = OP_POINT, .type = OP_F32, .columns = a->top_k);
  READS(rank_norm, weight, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = a->dim);
  WRITES(rank_norm, x_out, .kind = OP_POINT, .type = OP_F32, .columns = a->dim, .point = "x");
  WRITES(rank_norm, y, .kind = OP_POINT, .type = OP_BF16, .row_stride = a->y_stride, .columns = a->dim);
  WRITES(rank_norm, inbox, .kind = OP_ENGINE, .rows = OP_ONCE, .columns = EXCHANGE_INBOX_BYTES((uint64_t)a->count), .is_free = true);
  WRITES(rank_norm, state, .kind = OP_ENGINE, .rows = OP_ONCE, .columns = EXCHANGE_STATE_WORDS * 4, .is_free = true);
}

/* A rank sums its own columns: for each expert of a token a product and a sum. */
static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const rank_norm_args *a = o->args;
  const bool adds = op_has(o, offsetof(rank_norm_args, delta));
  sum->sent_bytes += step->rows * a->part * 4 * (a->count - 1ull);
  sum->flops += (double)(step->rows * a->dim) * 6 + (double)(step->rows * a->part) * (2.0 * a->top_k + (adds && a->top_k));
}

const op_description ops_rank_norm = {
    .pointers = offsetof(rank_norm_args, dim) / 8,
    .optional = OP_POINTER(rank_norm, delta) | OP_POINTER(rank_norm, experts) | OP_POINTER(rank_norm, pair_row) |
                OP_POINTER(rank_norm, topk_weight),
    .family = OP_OF_ROWS, .alternative_of = &ops_rmsnorm, .operands = operands, .cost = cost};
