/* op.c - see op.h. */
#include "ops/op.h"

uint64_t op_times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t op_plus(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t op_type_bytes(enum op_type type) { return type == OP_BYTES ? 1 : type == OP_BF16 ? 2 : 4; }

void op_add(op_operands *o, operand added) {
  ASSERT(o->count < OP_OPERANDS_MAX);
  if (added.pairs == 0) added.pairs = 1;
  if (added.segments == 0) added.segments = 1;
  if (added.row_stride == 0) added.row_stride = added.columns;
  if (added.cost_bytes == 0) added.cost_bytes = op_times(op_times(added.columns, added.segments), op_type_bytes(added.type));
  o->list[o->count++] = added;
}

void op_describe(const op_description *op, const void *args, uint64_t present, op_operands *out) {
  out->args = args;
  out->present = present;
  out->count = 0;
  op->operands(out);
}
