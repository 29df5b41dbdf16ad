/* cli_bench_report.c - see cli_bench_report.h. */
#include "cli_bench_report.h"
#include "digest.h"
#include "num.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

static double per_us(double amount, double us) { return us > 0 ? amount / us : 0; }
static double gb_per_s(const bench_cost *cost, double us) { return 1e-3 * per_us((double)bench_cost_bytes(cost), us); }
static double tflop_per_s(double flops, double us) { return 1e-6 * per_us(flops, us); }
static double ratio(double us, double floor_us) { return floor_us > 0 ? us / floor_us : 0; }

/* === Tables ================================================================================================================= */

static void print_head(const cli_bench_report *self) {
  const bench_report *r = self->results;
  char digits[DIGEST_TEXT_BYTES];
  printf("device       %s", r->device);
  if (r->is_gpu)
    printf(", driver for CUDA %u.%u, NVRTC %u.%u", r->driver_version / 1000, r->driver_version % 1000 / 10, r->nvrtc_version / 1000,
           r->nvrtc_version % 1000 / 10);
  printf("\nplan         %s\n", digest_text(self->plan->header->digest, digits));
  printf("numerics id  %s\n", digest_text(self->plan->header->numerics_id, digits));
  printf("floors       %.0f GB/s, %.0f TFLOP/s\n", 1e-9 * self->options->bytes_per_s, 1e-12 * self->options->flops_per_s);
}

static void print_start(const bench_report *r) {
  const verbatim_stages *s = &r->stages;
  printf("\nstart, s     device %.3f, memory %.3f, kernels and self-check %.3f (%u cached, %u compiled), tables %.3f, library %.3f, "
         "graphs %.3f (%u)\n", s->device, s->memory, s->kernels, s->kernels_cached, s->kernels_compiled, s->tables, s->library, s->graphs,
         r->graphs);
  printf("             random weights and KV rows %.3f\n", r->fill_seconds);
}

static void print_ops(const bench_report *r) {
  if (!r->op_count) return;
  printf("\n%-18s %6s %8s %5s %10s %9s %9s %9s %9s %10s %7s  %s\n", "op", "rows", "context", "times", "us", "MB", "GFLOP", "GB/s", "TFLOP/s",
         "floor us", "ratio", "kernel");
  for (uint32_t i = 0; i < r->op_count; i++) {
    const bench_op *op = &r->ops[i];
    char context[16] = "";
    if (op->context) snprintf(context, sizeof context, "%u", op->context);
    if (i && op->rows != op[-1].rows && op->context == 0) printf("\n");
    printf("%-18s %6u %8s %5u %10.2f %9.3f %9.4f %9.1f %9.2f %10.2f %7.2f  %s %s", op->name, op->rows, context, op->instances, op->us,
           1e-6 * (double)bench_cost_bytes(&op->cost), 1e-9 * op->cost.flops, gb_per_s(&op->cost, op->us),
           tflop_per_s(op->cost.flops, op->us), op->floor_us, ratio(op->us, op->floor_us), op->kernel, op->variant);
    if (op->experts_used) printf(", %u experts", op->experts_used);
    printf("\n");
  }
}

static void print_steps(const bench_report *r) {
  if (r->decode_count)
    printf("\n%-8s %8s %10s %9s %10s %10s %8s %10s %10s\n", "decode", "context", "step us", "gap us", "tokens/s", "floor us", "share",
           "ops us", "beside us");
  for (uint32_t i = 0; i < r->decode_count; i++) {
    const bench_decode *d = &r->decodes[i];
    printf("%-8u %8u %10.1f %9.2f %10.1f %10.1f %7.1f%%", d->batch, d->context, d->step_us, d->gap_us, d->tokens_per_s, d->floor_us,
           100 * d->floor_us / d->step_us);
    if (d->ops_us > 0) printf(" %10.1f %10.1f", d->ops_us, d->step_us - d->ops_us);
    printf("\n");
  }
  if (r->prefill_count) printf("\n%-8s %8s %10s %9s %10s %10s %8s\n", "prompts", "tokens", "ms", "steps", "tokens/s", "floor ms", "share");
  for (uint32_t i = 0; i < r->prefill_count; i++) {
    const bench_prefill *p = &r->prefills[i];
    printf("%-8u %8u %10.2f %9u %10.0f %10.2f %7.1f%%\n", p->prompts, p->tokens, 1e-3 * p->us, p->steps, p->tokens_per_s, 1e-3 * p->floor_us,
           100 * p->floor_us / p->us);
  }
}

void cli_bench_report_print(const cli_bench_report *self) {
  print_head(self);
  print_start(self->results);
  print_ops(self->results);
  print_steps(self->results);
}

/* === JSON =================================================================================================================== */

static json_t *cost_json(const bench_cost *c) {
  return json_pack("{s:I, s:I, s:I, s:f}", "weight_bytes", (json_int_t)c->weight_bytes, "kv_bytes", (json_int_t)c->kv_bytes,
                   "activation_bytes", (json_int_t)c->activation_bytes, "flops", c->flops);
}

static json_t *op_json(const bench_op *op) {
  json_t *context = op->context ? json_integer(op->context) : json_null();
  json_t *experts = op->experts_used ? json_integer(op->experts_used) : json_null();
  return json_pack("{s:s, s:s, s:s, s:i, s:o, s:i, s:i, s:i, s:o, s:f, s:f, s:o, s:f, s:f, s:f, s:f}", "op", op->name, "kernel", op->kernel,
                   "variant", op->variant, "rows", (int)op->rows, "context", context, "instances", (int)op->instances, "instances_timed",
                   (int)op->timed, "launches", (int)op->launches, "experts_used", experts, "us", op->us, "us_least", op->us_least, "cost",
                   cost_json(&op->cost), "floor_us", op->floor_us, "gb_per_s", gb_per_s(&op->cost, op->us), "tflop_per_s",
                   tflop_per_s(op->cost.flops, op->us), "ratio", ratio(op->us, op->floor_us));
}

static json_t *decode_json(const bench_decode *d) {
  json_t *ops = d->ops_us > 0 ? json_real(d->ops_us) : json_null();
  return json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:o, s:f, s:f, s:o}", "batch", (int)d->batch, "context", (int)d->context, "steps",
                   (int)d->steps, "step_us", d->step_us, "gap_us", d->gap_us, "tokens_per_s", d->tokens_per_s, "cost", cost_json(&d->cost),
                   "floor_us", d->floor_us, "floor_share", d->floor_us / d->step_us, "ops_us", ops);
}

static json_t *prefill_json(const bench_prefill *p) {
  return json_pack("{s:i, s:i, s:i, s:f, s:f, s:o, s:f, s:f}", "prompts", (int)p->prompts, "tokens", (int)p->tokens, "steps", (int)p->steps,
                   "us", p->us, "tokens_per_s", p->tokens_per_s, "cost", cost_json(&p->cost), "floor_us", p->floor_us, "floor_share",
                   p->floor_us / p->us);
}

static json_t *start_json(const bench_report *r) {
  const verbatim_stages *s = &r->stages;
  return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:i, s:i}", "device_s", s->device, "memory_s", s->memory, "kernels_s",
                   s->kernels, "tables_s", s->tables, "library_s", s->library, "graphs_s", s->graphs, "random_numbers_s", r->fill_seconds,
                   "kernels_cached", (int)s->kernels_cached, "kernels_compiled", (int)s->kernels_compiled, "graphs", (int)r->graphs);
}

static json_t *machine_json(const bench_report *r) {
  return json_pack("{s:s, s:b, s:i, s:i, s:I}", "name", r->device, "is_gpu", (int)r->is_gpu, "driver_version", (int)r->driver_version,
                   "nvrtc_version", (int)r->nvrtc_version, "cublaslt_version", (json_int_t)r->cublaslt_version);
}

status cli_bench_report_json(const cli_bench_report *self, const char *path) {
  const bench_report *r = self->results;
  const plan_header *h = self->plan->header;
  char digits[2][DIGEST_TEXT_BYTES];
  json_t *ops = json_array(), *decodes = json_array(), *prefills = json_array();
  int failed = 0;
  for (uint32_t i = 0; i < r->op_count; i++) failed |= json_array_append_new(ops, op_json(&r->ops[i]));
  for (uint32_t i = 0; i < r->decode_count; i++) failed |= json_array_append_new(decodes, decode_json(&r->decodes[i]));
  for (uint32_t i = 0; i < r->prefill_count; i++) failed |= json_array_append_new(prefills, prefill_json(&r->prefills[i]));
  json_t *root = json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:o, s:o, s:o, s:o}", "verbatim", VERBATIM_VERSION, "plan",
                           digest_text(h->digest, digits[0]), "numerics_id", digest_text(h->numerics_id, digits[1]), "device",
                           machine_json(r), "floor_bytes_per_s", self->options->bytes_per_s, "floor_flops_per_s",
                           self->options->flops_per_s, "start", start_json(r), "ops", ops, "decode", decodes, "prefill", prefills);
  status result = root && !failed ? OK : FAIL(ERR_LIMIT, "bench: no memory");
  if (result == OK && json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) != 0)
    result = FAIL(ERR_IO, "%s: cannot be written", path);
  json_decref(root);
  return result;
}
