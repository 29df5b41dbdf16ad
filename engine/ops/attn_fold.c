/* attn_fold.c - the op `attn_fold`: combines the partial results of attention that was split. NUMERICS.md "attn_fold"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const attn_fold_args *a = o->args;
  const uint64_t columns = op_times(a->heads, a->v_dim);
  READS(attn_fold, counts, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = sizeof(attn_counts) / 4, .is_free = true);
  READS(attn_fold, parts, .kind = OP_WORKSPACE, .type = OP_U32, .columns = sizeof(attn_part) / 4, .is_free = true);
  READS(attn_fold, partial_o, .kind = OP_WORKSPACE, .type = OP_F32, .columns = columns, .is_free = true);
  READS(attn_fold, partial_ml, .kind = OP_WORKSPACE, .type = OP_F32, .columns = 2ull * a->heads, .is_free = true);
  WRITES(attn_fold, out, .kind = OP_POINT, .type = OP_BF16, .columns = columns);
}

const op_description ops_attn_fold = {
    .pointers = offsetof(attn_fold_args, heads) / 8, .family = OP_OF_ATTENTION, .completes_prior = true, .prior = &ops_attn,
    .operands = operands};
