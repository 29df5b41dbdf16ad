/* exchange.c - the checker's reading of the op `exchange`: memory and argument values. See reading.h. */
#include "checks/reading.h"

/* One contiguous range, of bytes that mean something to the op alone. */
static void describe_own(writer *w, size_t field, bool is_write, uint64_t bytes) {
  check_access *a = add(w, field, is_write, TYPE_STRUCT, REGION_STATE);
  a->rows = a->batches = 1;
  a->row_stride = a->run_bytes = bytes;
}

static void describe_tables(writer *w, const exchange_args *a, bool is_write) {
  for (size_t t = 0; t < EXCHANGE_TABLES; t++) {
    check_access *y = add(w, (is_write ? FIELD(exchange, y) : FIELD(exchange, x)) + 8 * t, is_write, TYPE_AS_WRITTEN, REGION_WORK);
    y->type_of = (uint32_t)(FIELD(exchange, x) + 8 * t);
    y->rows = times(rows_of(w, a->rows_kind), a->rows_mul[t]);
    y->row_stride = y->run_bytes = times(a->part_bytes[t], is_write ? a->count : 1);
    if (a->form == EXCHANGE_ROWS) { /* what a rank owns of them is no more than the rows of its table, or all rows by a rank_step */
      y->rows = is_write ? w->rows.tokens : w->rows.own;
      y->row_stride = is_write ? a->y_stride[t] : a->x_stride[t];
      y->run_bytes = a->part_bytes[t];
    }
    if (a->form == EXCHANGE_PARTS) y->row_stride = y->run_bytes = times(a->part_bytes[t], is_write ? 1 : a->count);
    y->batches = 1;
    y->must_be_null = a->part_bytes[t] == 0;
  }
}

/* What NCCL gathers, before it is put in its places: as much as all of y. */
static void describe_inbox(writer *w, const exchange_args *a) {
  uint64_t row_bytes = 0;
  describe_own(w, FIELD(exchange, inbox), true, EXCHANGE_INBOX_BYTES((uint64_t)a->count));
  if (w->l->transport == TRANSPORT_PEER) return;
  for (size_t t = 0; t < EXCHANGE_TABLES; t++) row_bytes = plus(row_bytes, times(times(a->part_bytes[t], a->rows_mul[t]), a->count));
  check_access *inbox = &w->out[w->count - 1];
  inbox->region = REGION_WORK;
  inbox->row_stride = inbox->run_bytes = times(rows_of(w, a->rows_kind), row_bytes);
}

static void describe(writer *w, const void *args) {
  const exchange_args *a = args;
  describe_own(w, FIELD(exchange, ranks), false, sizeof(exchange_ranks));
  describe_tables(w, a, false);
  describe_tables(w, a, true);
  describe_inbox(w, a);
  describe_own(w, FIELD(exchange, state), true, EXCHANGE_STATE_WORDS * 4);
}

static status check_table(const reader *r, const exchange_args *a, uint32_t t) {
  const uint64_t units = times(times(r->rows_max, a->rows_mul[t]), a->part_bytes[t] / 8);
  const bool are_rows = a->form == EXCHANGE_ROWS;
  TRY(same(r, "x_stride % 8", a->x_stride[t] % 8, 0));
  TRY(same(r, "y_stride % 8", a->y_stride[t] % 8, 0));
  if (!are_rows) TRY(same(r, "a stride of columns", a->x_stride[t] != 0 || a->y_stride[t] != 0, 0));
  if (EXCHANGE_HAS_OWN_ROWS(a->form) && a->part_bytes[t]) TRY(same(r, "rows_mul of rows", a->rows_mul[t], 1));
  TRY(same(r, "part_bytes % 8", a->part_bytes[t] % 8, 0));
  TRY(in_range("units of an exchange", times(units, a->count), 0, UINT32_MAX)); /* numbered by 32 bits */
  if (t > 0 && a->part_bytes[t - 1] == 0) TRY(same(r, "part_bytes after the last table", a->part_bytes[t], 0));
  return same(r, "a table with rows_mul or part_bytes alone", (a->part_bytes[t] != 0) != (a->rows_mul[t] != 0), 0);
}

static status values(const reader *r, const void *args) {
  const exchange_args *a = args;
  SAME(rows_kind, r->rows_kind);
  TRY(in_range("count of the ranks of an exchange", a->count, 2, RANKS_MAX));
  SAME(count, r->l->ranks);
  TRY(in_range("form of an exchange", a->form, EXCHANGE_COLUMNS, EXCHANGE_PARTS));
  if (a->form != EXCHANGE_COLUMNS) {
    TRY(same(r, "rows that are owned, through NCCL", r->l->transport, TRANSPORT_PEER));
    SAME(rows_kind, ROWS_TOKENS);
  }
  TRY(in_range("nth of an exchange", a->nth, 0, EXCHANGE_PER_STEP_MAX - 1));
  TRY(same(r, "an exchange without tables", a->part_bytes[0] == 0, 0));
  for (uint32_t t = 0; t < EXCHANGE_TABLES; t++) TRY(check_table(r, a, t));
  return OK;
}

const reading checks_exchange = {describe, values};
