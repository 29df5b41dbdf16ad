/* cli/bench_report.c - see cli/bench_report.h. Each kind of figure has one function for its table and one for its JSON. */
#include "cli/bench_report.h"
#include "bench/roofline.h"
#include "base/digest.h"
#include "common/output.h"
#include "gpu/nccl.h"
#include "ops/kernels.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static double per_us(double amount, double us) { return us > 0 ? amount / us : 0; }
/* What an exchange sends, else what is moved in memory. */
static double op_bytes(const bench_cost *cost) {
  const uint64_t bytes = bench_cost_bytes(cost);
  return (double)(bytes ? bytes : cost->sent_bytes);
}
static double gb_per_s(const bench_cost *cost, double us) { return 1e-3 * per_us(op_bytes(cost), us); }
static double tflop_per_s(double flops, double us) { return 1e-6 * per_us(flops, us); }
static bool has_floors(const bench_report *r) { return r->rates.bytes > 0 || r->rates.flops > 0 || r->rates.link_bytes > 0; }
/* GFLOP/s for a CPU, TFLOP/s for a GPU. */
static const char *flop_unit(const bench_report *r) { return r->is_gpu ? "TFLOP/s" : "GFLOP/s"; }
static double flop_rate(const bench_report *r, double flops, double us) { return (r->is_gpu ? 1 : 1e3) * tflop_per_s(flops, us); }
static double ratio(double us, double floor_us) { return floor_us > 0 ? us / floor_us : 0; }

/* === Tables ================================================================================================================= */

/* Planned and measured memory of the GPUs. */
static void print_memory(const bench_report *r) {
  if (!r->is_gpu) return;
  printf("memory       %" PRIu64 " bytes planned of each GPU; reserved", r->planned_bytes);
  for (uint32_t i = 0; i < r->ranks; i++) printf(" %" PRIu64, r->reserved_bytes[i]);
  printf("\n");
}

static void print_head(const cli_bench_report *self) {
  const bench_report *r = self->results;
  char digits[DIGEST_TEXT_BYTES];
  printf("device       %s", r->device);
  if (r->is_gpu)
    printf(", driver for CUDA %u.%u, NVRTC %u.%u", r->driver_version / 1000, r->driver_version % 1000 / 10, r->nvrtc_version / 1000,
           r->nvrtc_version % 1000 / 10);
  printf("\nplan         %s\n", digest_text(self->plan->header->digest, digits));
  printf("numerics id  %s\n", digest_text(self->plan->header->numerics_id, digits));
  if (r->ranks > 1) printf("gpu_count    %u\n", r->ranks);
  print_memory(r);
  if (r->nccl_version)
    printf("nccl         %u.%u.%u: next to each exchange, its gather of as many bytes\n", NCCL_VERSION_PARTS(r->nccl_version));
  if (*r->nccl_note) printf("nccl         not compared: %s\n", r->nccl_note);
  if (has_floors(r)) printf("floors       %.0f GB/s, %.0f TFLOP/s", 1e-9 * r->rates.bytes, 1e-12 * r->rates.flops);
  if (has_floors(r) && r->ranks > 1) printf(", %.0f GB/s to other GPUs", 1e-9 * r->rates.link_bytes);
  if (has_floors(r)) printf("\n");
}

static void print_start(const bench_report *r) {
  const verbatim_stages *s = &r->stages;
  double sum = s->plan + s->device + s->memory + s->kernels + s->tables + s->library + s->graphs;
  printf("\nstart, s     plan %.3f, device %.3f, memory %.3f, kernels and self-check %.3f (%u cached, %u compiled), tables %.3f,\n"
         "             library %.3f, graphs %.3f (%u): %.3f without weights; random weights and KV rows %.3f\n", s->plan, s->device,
         s->memory, s->kernels, s->kernels_cached, s->kernels_compiled, s->tables, s->library, s->graphs, r->graphs, sum, r->fill_seconds);
}

/* Names of exchanges are longer. */
static int name_width(const bench_report *r) { return r->ranks > 1 ? 24 : 18; }

static void print_op(const bench_report *r, const bench_op *op) {
  char context[16] = "";
  if (op->context) snprintf(context, sizeof context, "%u", op->context);
  printf("%-*s %6u %8s %5u %10.2f %9.3f %9.4f %8.1f %9.1f", name_width(r), op->name, op->rows, context, op->instances, op->us,
         1e-6 * op_bytes(&op->cost), 1e-9 * op->cost.flops, gb_per_s(&op->cost, op->us),
         flop_rate(r, op->cost.flops, op->us));
  if (has_floors(r)) printf(" %9.2f %7.2f%s", op->floor_us, ratio(op->us, op->floor_us), op->is_cached ? "*" : " ");
  printf("  %s %s", op->kernel, op->variant);
  if (op->experts_used) printf(", %u experts", op->experts_used);
  if (op->nccl_us > 0) printf(", NCCL %.2f us", op->nccl_us);
  printf("\n");
}

static void print_ops(const bench_report *r) {
  bool cached = false;
  if (!r->op_count) return;
  printf("\n%-*s %6s %8s %5s %10s %9s %9s %8s %9s", name_width(r), "op", "rows", "context", "times", "us", "MB", "GFLOP", "GB/s",
         flop_unit(r));
  printf("%s  kernel\n", has_floors(r) ? "  floor us   ratio " : "");
  for (uint32_t i = 0; i < r->op_count; i++) {
    if (i && r->ops[i].rows != r->ops[i - 1].rows && !r->ops[i].context) printf("\n");
    print_op(r, &r->ops[i]);
    cached |= r->ops[i].is_cached;
  }
  if (cached) printf("* weights and KV rows of all that is timed fit the L2 cache; in a step they come from memory\n");
}

static void print_decodes(const bench_report *r) {
  if (!r->decode_count) return;
  printf("\n%-8s %8s %10s %9s %10s %10s %10s", "decode", "context", "step us", "gap us", "tokens/s", "ops us", "beside us");
  if (r->ranks > 1) printf(" %12s %6s", "exchanges us", "of it");
  printf("%s\n", has_floors(r) ? "   floor us   share" : "");
  for (uint32_t i = 0; i < r->decode_count; i++) {
    const bench_decode *d = &r->decodes[i];
    char size[24];
    snprintf(size, sizeof size, d->drafts ? "%u+%u" : "%u", d->batch, d->drafts);
    printf("%-8s %8u %10.1f %9.2f %10.1f", size, d->context, d->step_us, d->gap_us, d->tokens_per_s);
    if (d->ops_us > 0) printf(" %10.1f %10.1f", d->ops_us, d->step_us - d->ops_us);
    else printf(" %10s %10s", "-", "-");
    if (r->ranks > 1 && d->ops_us > 0) printf(" %12.1f %5.1f%%", d->exchanges_us, 100 * d->exchanges_us / d->step_us);
    else if (r->ranks > 1) printf(" %12s %6s", "-", "-");
    if (has_floors(r)) printf(" %10.1f %6.1f%%", d->floor_us, 100 * d->floor_us / d->step_us);
    printf("\n");
  }
}

static void print_prefills(const bench_report *r) {
  if (!r->prefill_count) return;
  printf("\n%-8s %8s %6s %10s %10s %10s", "prompts", "tokens", "steps", "ms", "tokens/s", flop_unit(r));
  printf("%s\n", has_floors(r) ? "   floor ms   share" : "");
  for (uint32_t i = 0; i < r->prefill_count; i++) {
    const bench_prefill *p = &r->prefills[i];
    printf("%-8u %8u %6u %10.2f %10.0f %10.1f", p->prompts, p->tokens, p->steps, 1e-3 * p->us, p->tokens_per_s,
           flop_rate(r, p->cost.flops, p->us));
    if (has_floors(r)) printf(" %10.2f %6.1f%%", 1e-3 * p->floor_us, 100 * p->floor_us / p->us);
    printf("\n");
  }
}

void cli_bench_report_print(const cli_bench_report *self) {
  print_head(self);
  print_start(self->results);
  print_ops(self->results);
  print_decodes(self->results);
  print_prefills(self->results);
}

/* === The roofline =========================================================================================================== */

static uint32_t take_points(const bench_report *r, bench_roofline_point *points) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < r->op_count; i++) {
    const bench_op *op = &r->ops[i];
    double bytes = (double)bench_cost_bytes(&op->cost);
    if (!(op->cost.flops > 0 && bytes > 0 && op->us > 0)) continue;
    bench_roofline_point *point = &points[count++];
    *point = (bench_roofline_point){.family = kernels_row(kernels_find(op->kernel))->op->family, .flops_per_byte = op->cost.flops / bytes,
                                  .flops_per_s = 1e6 * op->cost.flops / op->us};
    if (op->context) snprintf(point->label, sizeof point->label, "%s %u@%u", op->name, op->rows, op->context);
    else snprintf(point->label, sizeof point->label, "%s %u", op->name, op->rows);
    snprintf(point->detail, sizeof point->detail, "%.2f us, %.4g GB/s, %.4g TFLOP/s, %.2f of the floor", op->us,
             gb_per_s(&op->cost, op->us), tflop_per_s(op->cost.flops, op->us), ratio(op->us, op->floor_us));
  }
  return count;
}

status cli_bench_report_roofline(const cli_bench_report *self, const char *path) {
  const bench_report *r = self->results;
  char digits[DIGEST_TEXT_BYTES], title[256];
  bench_roofline_point *points = calloc(r->op_count + 1ull, sizeof *points);
  if (!points) return FAIL(ERR_LIMIT, "bench: no memory");
  snprintf(title, sizeof title, "Ops of plan %s on %s", digest_text(self->plan->header->digest, digits), r->device);
  bool has_e4m3 = false;
  for (uint32_t i = 0; i < r->op_count; i++) has_e4m3 |= r->ops[i].cost.e4m3_flops > 0;
  const bench_roofline picture = {.title = title, .bytes_per_s = r->rates.bytes, .flops_per_s = r->rates.flops, .points = points,
                                .e4m3_flops_per_s = has_e4m3 ? BENCH_COST_E4M3 * r->rates.flops : 0,
                                .point_count = take_points(r, points),
                                .remark = "A label is an op, its rows, and @ the tokens that each sequence has. Ops without floating-point "
                                          "work are not shown.",
                                .families = {"products", "experts", "attention", "choice of a token", "row by row"}};
  status result = bench_roofline_write(&picture, path);
  free(points);
  return result;
}

/* === JSON =================================================================================================================== */

static json_t *cost_json(const bench_cost *c) {
  return json_pack("{s:I, s:I, s:I, s:f, s:f, s:I}", "weight_bytes", (json_int_t)c->weight_bytes, "kv_bytes", (json_int_t)c->kv_bytes,
                   "activation_bytes", (json_int_t)c->activation_bytes, "flops", c->flops, "e4m3_flops", c->e4m3_flops,
                   "sent_bytes", (json_int_t)c->sent_bytes);
}

static json_t *op_json(const bench_op *op) {
  json_t *context = op->context ? json_integer(op->context) : json_null();
  json_t *experts = op->experts_used ? json_integer(op->experts_used) : json_null();
  json_t *nccl_us = op->nccl_us > 0 ? json_real(op->nccl_us) : json_null();
  return json_pack("{s:s, s:s, s:s, s:i, s:o, s:i, s:i, s:i, s:o, s:f, s:f, s:b, s:o, s:f, s:f, s:f, s:f, s:o}", "op", op->name, "kernel",
                   op->kernel, "variant", op->variant, "rows", (int)op->rows, "context", context, "instances", (int)op->instances,
                   "instances_timed", (int)op->timed, "launches", (int)op->launches, "experts_used", experts, "us", op->us, "us_least",
                   op->us_least, "is_cached", (int)op->is_cached, "cost", cost_json(&op->cost), "floor_us", op->floor_us, "gb_per_s",
                   gb_per_s(&op->cost, op->us), "tflop_per_s", tflop_per_s(op->cost.flops, op->us), "ratio", ratio(op->us, op->floor_us),
                   "nccl_us", nccl_us);
}

static json_t *decode_json(const bench_decode *d) {
  json_t *ops = d->ops_us > 0 ? json_real(d->ops_us) : json_null();
  json_t *exchanges = d->ops_us > 0 ? json_real(d->exchanges_us) : json_null();
  return json_pack("{s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:o, s:f, s:f, s:o, s:o}", "batch", (int)d->batch, "context", (int)d->context,
                   "drafts", (int)d->drafts, "steps", (int)d->steps, "step_us", d->step_us, "gap_us", d->gap_us, "tokens_per_s",
                   d->tokens_per_s, "cost", cost_json(&d->cost), "floor_us", d->floor_us, "floor_share", d->floor_us / d->step_us,
                   "ops_us", ops, "exchanges_us", exchanges);
}

static json_t *prefill_json(const bench_prefill *p) {
  return json_pack("{s:i, s:i, s:i, s:f, s:f, s:o, s:f, s:f}", "prompts", (int)p->prompts, "tokens", (int)p->tokens, "steps", (int)p->steps,
                   "us", p->us, "tokens_per_s", p->tokens_per_s, "cost", cost_json(&p->cost), "floor_us", p->floor_us, "floor_share",
                   p->floor_us / p->us);
}

static json_t *start_json(const bench_report *r) {
  const verbatim_stages *s = &r->stages;
  return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:i, s:i}", "plan_s", s->plan, "device_s", s->device, "memory_s",
                   s->memory, "kernels_s", s->kernels, "tables_s", s->tables, "library_s", s->library, "graphs_s", s->graphs,
                   "random_numbers_s", r->fill_seconds, "kernels_cached", (int)s->kernels_cached, "kernels_compiled",
                   (int)s->kernels_compiled, "graphs", (int)r->graphs);
}

static json_t *memory_json(const bench_report *r) {
  json_t *reserved = json_array();
  int failed = !reserved;
  for (uint32_t i = 0; r->is_gpu && i < r->ranks; i++)
    failed |= json_array_append_new(reserved, json_integer((json_int_t)r->reserved_bytes[i]));
  return failed ? NULL : json_pack("{s:I, s:o}", "planned_bytes", (json_int_t)r->planned_bytes, "reserved_bytes", reserved);
}

static json_t *machine_json(const bench_report *r) {
  return json_pack("{s:s, s:b, s:i, s:i, s:I, s:i}", "name", r->device, "is_gpu", (int)r->is_gpu, "driver_version", (int)r->driver_version,
                   "nvrtc_version", (int)r->nvrtc_version, "cublaslt_version", (json_int_t)r->cublaslt_version, "nccl_version",
                   (int)r->nccl_version);
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
  json_t *root = json_pack("{s:s, s:s, s:s, s:o, s:i, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "verbatim", VERBATIM_VERSION, "plan",
                           digest_text(h->digest, digits[0]), "numerics_id", digest_text(h->numerics_id, digits[1]), "device",
                           machine_json(r), "gpu_count", (int)r->ranks, "floor_bytes_per_s", r->rates.bytes, "floor_flops_per_s",
                           r->rates.flops, "floor_link_bytes_per_s", r->rates.link_bytes, "memory", memory_json(r), "start",
                           start_json(r), "ops", ops, "decode", decodes, "prefill", prefills);
  if (root && !failed) return cli_output_file(path, root, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
  json_decref(root);
  return FAIL(ERR_LIMIT, "bench: no memory");
}
