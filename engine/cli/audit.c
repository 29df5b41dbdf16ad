/* cli/audit.c - `verbatim audit`: computes the recorded rows of a trace again on the CPU, op by op.
 *
 * Owns the subcommand's arguments and the wording of its report. audit.h decides what is compared. */
#include "cli/cli.h"
#include "traces/audit.h"
#include "common/hub.h"
#include "common/compare.h"
#include "common/options.h"
#include "common/output.h"
#include "base/digest.h"
#include "plan/plan.h"
#include "planner/checks/check.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX 12u /* without --json: lines of points that differ, and of points that are not covered */

static const char HELP[] =
  "usage: verbatim audit TRACE PLAN MODEL_DIR [options]\n\n"
  "Recomputes rows of a trace on the CPU, each op alone, from the recorded rows that it read, and\n"
  "compares the bits. Rows whose inputs were recorded without their values are not covered.\n"
  "PLAN is of one GPU; the trace may be of any number, since they are equal.\n\n"
  "Examples:\n"
  "  verbatim run my.plan MODEL_DIR \"a prompt\" --trace a.trace --trace-values audit:layer=3,position=17\n"
  "  verbatim audit a.trace my.plan MODEL_DIR\n"
  "  verbatim audit a.trace my.plan MODEL_DIR --layer 3 --op experts --json\n\n"
  "  --id ID             only this request (all)\n"
  "  --position P[-Q]    only these tokens; the first is 0 (all)\n"
  "  --layer L[-M]       only these layers (all, and ops outside of layers)\n"
  "  --op NAME           only trace points whose name, without its layer, is NAME or begins with that\n"
  "                      word: o_proj, qkv_rope, experts (all)\n"
  "  --sample N          only N of the covered rows, drawn with --seed (all)\n"
  "  --seed S            seed of --sample (0)\n"
  "  --threads N         CPU threads (all cores)\n"
  "  --json              one JSON object instead of the tables\n"
  "  --quiet             no progress messages\n\n"
  "FLOPs in GFLOP/s: 2 n k for a row of a product, times its batches or experts; attention 2 heads\n"
  "(2 kv_lora_rank + rope_dim) for every token seen; index_topk 2 heads 128 for every key scored.\n"
  "adjust and sample are not audited: a receipt holds their results, and `verbatim verify` replays it.\n"
  "Exit code: 0 when all rows checked are equal, 8 when any differs; nothing to check is an error.\n";

typedef struct audit_command {
  audit_options options;
  const char *plan_path;
  char model_path[CLI_HUB_PATH_BYTES_MAX]; /* the model folder, if it was a name on the Hub */
  bool json, quiet;
  plan plan;
  audit *audit;
  cli_output_progress progress;
} audit_command;

typedef struct range {
  uint32_t least, most;
  bool is_set;
} range;

/* === Arguments ============================================================================================================== */

static status take_range(const char *name, const char *value, void *target) {
  range *out = target;
  out->is_set = true;
  return cli_options_range(name, value, strlen(value), UINT32_MAX - 1, &out->least, &out->most);
}

static status take_sample(const char *name, const char *value, void *target) {
  uint64_t *sample = target;
  TRY(cli_options_u64(name, value, sample));
  return *sample ? OK : FAIL(ERR_USAGE, "%s: expected 1 or more, found 0", name);
}

static status read_arguments(audit_command *self, int argc, char **argv) {
  audit_options *o = &self->options;
  range positions = {0, UINT32_MAX, false}, layers = {0};
  const cli_option table[] = {{"--id", cli_options_text, &o->id},
                              {"--position", take_range, &positions},
                              {"--layer", take_range, &layers},
                              {"--op", cli_options_text, &o->op},
                              {"--sample", take_sample, &o->sample},
                              {"--seed", cli_options_u64, &o->seed},
                              {"--threads", cli_options_u32, &o->threads},
                              {"--json", NULL, &self->json},
                              {"--quiet", NULL, &self->quiet},
                              {NULL, NULL, NULL}};
  const char **words = calloc((size_t)argc, sizeof *words);
  uint32_t count = 0;
  if (!words) return FAIL(ERR_LIMIT, "audit: no memory");
  status result = cli_options_parse(table, argc, argv, words, &count);
  if (result == OK && count != 3) result = FAIL(ERR_USAGE, "audit: expected TRACE PLAN MODEL_DIR; hint: verbatim audit --help");
  if (result == OK) {
    o->trace_path = words[0];
    self->plan_path = words[1];
    o->model_dir = words[2];
    result = cli_hub_resolve(&o->model_dir, self->model_path);
  }
  free(words);
  o->position_min = positions.least;
  o->position_max = positions.most;
  o->layer_min = layers.least;
  o->layer_max = layers.most;
  o->is_layered = layers.is_set;
  return result;
}

/* === Text =================================================================================================================== */

static void on_progress(void *context, const char *what, uint64_t done, uint64_t total) {
  audit_command *self = context;
  if (self->quiet) return;
  if (strcmp(what, "weights") == 0) cli_output_progress_bytes(&self->progress, "loading weights", done, total);
  else cli_output_progress_count(&self->progress, what, done, total);
}

/* The first difference as one line, without its line feed. */
static void difference_text(const audit_report *r, char *text, size_t text_bytes) {
  const audit_difference *d = &r->first;
  const verbatim_point *point = &r->points[d->point];
  char numbers[2][CLI_COMPARE_NUMBER_BYTES];
  int used = snprintf(text, text_bytes, "request %.200s, position %u, %s", d->id, d->position, point->name);
  if (used < 0 || (size_t)used >= text_bytes) return;
  if (d->is_digest)
    snprintf(text + used, text_bytes - (size_t)used, ": recorded digest %016" PRIx64 ", computed %016" PRIx64, d->recorded_digest,
             d->computed_digest);
  else
    snprintf(text + used, text_bytes - (size_t)used, ", number %u: recorded %s, computed %s, %" PRIu64 " %s apart; %u of %u numbers differ",
             d->number, cli_compare_number(point->type, d->recorded, numbers[0]),
             cli_compare_number(point->type, d->computed, numbers[1]), d->ulps, point->type == VERBATIM_POINT_U32 ? "steps" : "ulps",
             d->count, point->count);
}

static double share(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

static void print_kinds(const audit_report *r) {
  printf("%-12s %12s %14s %10s %9s %9s\n", "op", "rows", "numbers", "different", "seconds", "GFLOP/s");
  for (uint32_t i = 0; i < r->kind_count; i++) {
    const audit_kind *k = &r->kinds[i];
    if (k->rows == 0) continue;
    printf("%-12s %12" PRIu64 " %14" PRIu64 " %10" PRIu64 " %9.3f ", k->name, k->rows, k->numbers, k->different, k->seconds);
    if (k->flops > 0 && k->seconds > 0) printf("%9.2f\n", k->flops / k->seconds * 1e-9);
    else printf("%9s\n", "-");
  }
}

static void print_different(const audit_report *r) {
  uint32_t shown = 0, points = 0;
  for (uint32_t i = 0; i < r->point_count; i++) {
    const audit_point *c = &r->counts[i];
    if (c->different == 0 || points++ >= LINES_MAX) continue;
    printf("differs: %s: %" PRIu64 " of %" PRIu64 " rows checked\n", r->points[i].name, c->different, c->checked);
    shown++;
  }
  if (points > shown) printf("differs: and %u more\n", points - shown);
}

static void print_uncovered(const audit_report *r) {
  uint32_t shown = 0, points = 0;
  for (uint32_t i = 0; i < r->point_count; i++) {
    const audit_point *c = &r->counts[i];
    if (c->uncovered == 0 || points++ >= LINES_MAX) continue;
    printf("not covered: %s: %" PRIu64 " rows, needs %s at position %u\n", r->points[i].name, c->uncovered, r->points[c->needs].name,
           c->needs_position);
    shown++;
  }
  if (points > shown) printf("not covered: and %u more points\n", points - shown);
}

static void print_report(const audit_report *r) {
  char text[1024];
  print_kinds(r);
  printf("\n%s, %.2f s. %" PRIu64 " rows checked, %" PRIu64 " differ.\n", r->device, r->seconds, r->checked, r->different);
  printf("Coverage: %.2f %% of %" PRIu64 " rows chosen, %.2f %% of %" PRIu64 " rows of %" PRIu64 " tokens in the trace.\n",
         share(r->checked, r->chosen), r->chosen, share(r->checked, r->trace_rows), r->trace_rows, r->tokens);
  if (r->first.is_found) {
    difference_text(r, text, sizeof text);
    printf("First difference: %s\n", text);
  }
  print_different(r);
  print_uncovered(r);
}

/* === JSON =================================================================================================================== */

static json_t *json_count(uint64_t count) { return json_integer((json_int_t)count); }

static json_t *json_kinds(const audit_report *r) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < r->kind_count; i++) {
    const audit_kind *k = &r->kinds[i];
    if (k->rows == 0) continue;
    json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:f, s:f}", "op", k->name, "rows", json_count(k->rows), "numbers",
                                          json_count(k->numbers), "different", json_count(k->different), "seconds", k->seconds, "flops",
                                          k->flops));
  }
  return list;
}

static json_t *json_layer(const verbatim_point *point) { return point->layer == UINT32_MAX ? json_null() : json_count(point->layer); }

static json_t *json_points(const audit_report *r) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < r->point_count; i++) {
    const audit_point *c = &r->counts[i];
    if (c->chosen == 0) continue;
    json_t *entry = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "name", r->points[i].name, "layer", json_layer(&r->points[i]), "chosen",
                              json_count(c->chosen), "checked", json_count(c->checked), "different", json_count(c->different), "uncovered",
                              json_count(c->uncovered));
    if (c->uncovered) {
      json_object_set_new(entry, "needs", json_string(r->points[c->needs].name));
      json_object_set_new(entry, "needs_position", json_count(c->needs_position));
    }
    json_array_append_new(list, entry);
  }
  return list;
}

static json_t *json_difference(const audit_report *r) {
  const audit_difference *d = &r->first;
  const verbatim_point *point = &r->points[d->point];
  if (!d->is_found) return json_null();
  json_t *entry = json_pack("{s:s, s:o, s:o, s:s, s:o, s:o, s:o}", "request", d->id, "request_index", json_count(d->request), "position",
                            json_count(d->position), "point", point->name, "layer", json_layer(point), "recorded_digest",
                            cli_compare_hex(d->recorded_digest), "computed_digest", cli_compare_hex(d->computed_digest));
  if (!entry || d->is_digest) return entry;
  json_object_set_new(entry, "number", json_count(d->number));
  json_object_set_new(entry, "recorded_bits", cli_compare_bits(point->type, d->recorded));
  json_object_set_new(entry, "computed_bits", cli_compare_bits(point->type, d->computed));
  json_object_set_new(entry, "ulps", json_count(d->ulps));
  json_object_set_new(entry, "numbers_different", json_count(d->count));
  return entry;
}

static status print_json(const audit_command *self, const audit_report *r) {
  char digits[DIGEST_TEXT_BYTES];
  json_t *root = json_pack("{s:s, s:s, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "numerics_id",
                           digest_text(self->plan.header->numerics_id, digits), "device", r->device, "seconds", r->seconds,
                           "requests", json_count(r->requests), "tokens", json_count(r->tokens), "trace_rows", json_count(r->trace_rows),
                           "trace_values", json_count(r->trace_values), "chosen", json_count(r->chosen), "covered", json_count(r->covered),
                           "checked", json_count(r->checked), "different", json_count(r->different), "uncovered",
                           json_count(r->uncovered));
  if (!root) return FAIL(ERR_LIMIT, "audit: no memory for the report");
  json_object_set_new(root, "first_difference", json_difference(r));
  json_object_set_new(root, "ops", json_kinds(r));
  json_object_set_new(root, "points", json_points(r));
  return cli_output_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
}

/* === The command ============================================================================================================ */

static status conclude(const audit_report *r) {
  char text[1024];
  if (!r->first.is_found) return OK;
  difference_text(r, text, sizeof text);
  return FAIL(ERR_MISMATCH, "audit: %" PRIu64 " of %" PRIu64 " rows differ, first %s", r->different, r->checked, text);
}

static status run(audit_command *self) {
  TRY(plan_open(&self->plan, self->plan_path));
  TRY(check_plan(self->plan.memory, (size_t)self->plan.header->file_bytes));
  if (self->plan.header->limits.ranks > 1)
    return FAIL(ERR_UNSUPPORTED, "audit: %s is a plan of %u GPUs, expected one of a single GPU; hint: their traces are equal, so any plan "
                "of this model with tensor-parallel-size: 1 audits this trace", self->plan_path, self->plan.header->limits.ranks);
  self->options.plan = &self->plan;
  self->options.on_progress = on_progress;
  self->options.context = self;
  TRY(audit_open(&self->audit, &self->options));
  status result = audit_run(self->audit);
  cli_output_progress_end(&self->progress);
  TRY(result);
  const audit_report *r = audit_results(self->audit);
  if (self->json) TRY(print_json(self, r));
  else print_report(r);
  TRY(cli_output_flush());
  return conclude(r);
}

int cli_audit(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  audit_command self = {0};
  status result = read_arguments(&self, argc, argv);
  if (result == OK) result = run(&self);
  audit_close(self.audit);
  plan_close(&self.plan);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  return fail_exit_code(result);
}
