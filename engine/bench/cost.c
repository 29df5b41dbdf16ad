/* bench/cost.c - see bench/cost.h. The descriptions of the ops (ops/op.h) state what is read, written and computed. */
#include "bench/cost.h"
#include "ops/kernels.h"
#include "plan/points.h"

static uint64_t rows_of(const operand *o, const op_step *step) {
  if (o->rows == OP_ONCE) return 1;
  if (o->rows == OP_EXPERTS) return step->experts_used;
  return o->rows == OP_CONTEXT ? step->kv_rows : step->rows * o->pairs;
}

static void add_operand(const operand *o, const op_step *step, bench_cost *sum) {
  uint64_t *bytes = o->kind == OP_WEIGHTS ? &sum->weight_bytes : &sum->activation_bytes;
  if (o->kind == OP_CACHE && !o->is_write) bytes = &sum->kv_bytes;
  *bytes += rows_of(o, step) * o->cost_bytes;
}

bench_cost bench_cost_of(const plan *p, const plan_op *op, const bench_cost_step *step) {
  const op_description *what = kernels_row(op->kernel)->op;
  uint32_t first, end;
  op_operands o;
  points_rows_of_op(p, (uint32_t)(op - p->ops), &first, &end);
  first = min_u32(first, step->token_count);
  const uint32_t tokens = min_u32(end, step->token_count) - first;
  const op_step part = {.rows = op->rows_kind == ROWS_LOGITS ? step->logit_count
                                : op->rows_kind == ROWS_OWN  ? plan_own_rows(&p->header->limits, tokens)
                                                             : tokens,
                        .position = step->position + first,
                        .kv_rows = step->kv_rows, .experts_used = step->experts_used};
  bench_cost sum = {0};
  op_describe(what, p->args + op->args_offset, plan_present(p, op), &o);
  for (uint32_t i = 0; i < o.count; i++)
    if (!o.list[i].is_free && op_has(&o, o.list[i].field)) add_operand(&o.list[i], &part, &sum);
  if (what->cost) what->cost(&o, &part, &sum);
  if (what->is_e4m3) sum.e4m3_flops = sum.flops;
  return sum;
}

void bench_cost_add(bench_cost *sum, const bench_cost *cost) {
  sum->weight_bytes += cost->weight_bytes;
  sum->kv_bytes += cost->kv_bytes;
  sum->activation_bytes += cost->activation_bytes;
  sum->flops += cost->flops;
  sum->e4m3_flops += cost->e4m3_flops;
  sum->sent_bytes += cost->sent_bytes;
}

static double us_at(double rate, double amount) { return rate > 0 ? 1e6 * amount / rate : 0; }

double bench_cost_floor_us(uint64_t bytes, const bench_cost *cost, const bench_rates *rates) {
  const double flops = cost->flops - cost->e4m3_flops * (1 - 1 / BENCH_COST_E4M3);
  const double us[] = {us_at(rates->bytes, (double)bytes), us_at(rates->flops, flops), us_at(rates->link_bytes, (double)cost->sent_bytes)};
  double most = 0;
  for (size_t i = 0; i < ARRAY_LEN(us); i++) most = us[i] > most ? us[i] : most;
  return most;
}
