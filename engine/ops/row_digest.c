/* row_digest.c - the op `row_digest`: a digest of each row of logits. NUMERICS.md "row_digest"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const row_digest_args *a = o->args;
  const enum op_rows rows = op_rows_of(a->rows_kind);
  READS(row_digest, x, .kind = OP_POINT, .rows = rows, .type = OP_U32, .row_stride = a->stride, .columns = a->words);
  WRITES(row_digest, digest, .kind = OP_ENGINE, .rows = rows, .columns = sizeof(uint64_t));
}

const op_description ops_row_digest = {.pointers = offsetof(row_digest_args, rows_kind) / 8, .family = OP_OF_LOGITS,
                                       .operands = operands};
