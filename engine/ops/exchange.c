/* exchange.c - the op `exchange`: columns that each rank computed, to all ranks. NUMERICS.md "exchange"; see ops/op.h. */
#include "ops/op.h"

#define AT(array, t) ((uint32_t)(offsetof(exchange_args, array) + 8 * (t)))

static void add_table(op_operands *o, const exchange_args *a, const char *name, uint32_t t, bool is_write) {
  const bool has_all = a->form != EXCHANGE_ROWS && is_write != (a->form == EXCHANGE_PARTS); /* the columns of all ranks */
  op_add(o, (operand){.name = name, .field = is_write ? AT(y, t) : AT(x, t), .is_write = is_write, .kind = OP_WORKSPACE,
                      .rows = op_rows_of(a->rows_kind), .pairs = a->rows_mul[t],
                      .columns = (uint64_t)a->part_bytes[t] * (has_all ? a->count : 1),
                      .row_stride = is_write ? a->y_stride[t] : a->x_stride[t], .is_free = true});
}

/* The rows are those of the ops that computed them, which are the trace points. */
static void operands(op_operands *o) {
  static const char *const x[EXCHANGE_TABLES] = {"x[0]", "x[1]", "x[2]", "x[3]"};
  static const char *const y[EXCHANGE_TABLES] = {"y[0]", "y[1]", "y[2]", "y[3]"};
  const exchange_args *a = o->args;
  READS(exchange, ranks, .kind = OP_ENGINE, .rows = OP_ONCE, .columns = sizeof(exchange_ranks), .is_free = true);
  for (uint32_t t = 0; t < EXCHANGE_TABLES; t++) add_table(o, a, x[t], t, false);
  for (uint32_t t = 0; t < EXCHANGE_TABLES; t++) add_table(o, a, y[t], t, true);
  WRITES(exchange, inbox, .kind = OP_ENGINE, .rows = OP_ONCE, .columns = EXCHANGE_INBOX_BYTES((uint64_t)a->count), .is_free = true);
  WRITES(exchange, state, .kind = OP_ENGINE, .rows = OP_ONCE, .columns = EXCHANGE_STATE_WORDS * 4, .is_free = true);
}

/* The link is slower than the memory by far, so only what is sent counts: all rows to all other ranks; or each to one, or those of one rank
 * to all others. */
static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const exchange_args *a = o->args;
  uint64_t row_bytes = 0;
  for (uint32_t t = 0; t < EXCHANGE_TABLES; t++) row_bytes += (uint64_t)a->rows_mul[t] * a->part_bytes[t];
  sum->sent_bytes += step->rows * row_bytes * (a->count - 1ull) / (a->form == EXCHANGE_COLUMNS ? 1 : a->count);
}

#define FROM_SECOND(array) (((1u << (EXCHANGE_TABLES - 1)) - 1) << AT(array, 1) / 8)
const op_description ops_exchange = {.pointers = offsetof(exchange_args, part_bytes) / 8, .optional = FROM_SECOND(x) | FROM_SECOND(y),
                                     .family = OP_OF_ROWS, .operands = operands, .cost = cost};
