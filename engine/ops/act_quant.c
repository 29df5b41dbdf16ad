/* act_quant.c - the op `act_quant`: rows of bf16 numbers as scaled e4m3. NUMERICS.md "act_quant"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const act_quant_args *a = o->args;
  const enum op_rows rows = op_rows_of(a->rows_kind);
  READS(act_quant, x, .kind = OP_POINT, .rows = rows, .pairs = a->rows_mul, .type = OP_BF16, .row_stride = a->ldx, .columns = a->columns);
  WRITES(act_quant, codes, .kind = OP_WORKSPACE, .rows = rows, .pairs = a->rows_mul, .columns = a->columns);
  WRITES(act_quant, scales, .kind = OP_WORKSPACE, .rows = rows, .pairs = a->rows_mul, .type = OP_F32,
         .columns = a->columns / SCALE_COLUMNS);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const act_quant_args *a = o->args;
  sum->flops += 2.0 * (double)(step->rows * a->rows_mul * a->columns);
}

const op_description ops_act_quant = {.pointers = offsetof(act_quant_args, rows_kind) / 8, .family = OP_OF_ROWS, .operands = operands,
                                      .cost = cost};
