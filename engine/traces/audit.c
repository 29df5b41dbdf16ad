/* audit.c - see audit.h. Two passes over the trace: the first counts the rows that can be checked, without weights or values in memory; the
 * second takes one request at a time, and within it one op at a time with as many rows as the plan allows. */
#include "traces/audit.h"
#include "traces/audit_inputs.h"
#include "traces/audit_backend.h"
#include "traces/audit_source.h"
#include "base/clock.h"
#include "traces/diff_values.h"
#include "ops/kernels.h"
#include "kernels_src/num.h"
#include "plan/points.h"
#include "traces/file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct audit {
  audit_options options;
  const plan *plan;
  arena host;
  points points;
  audit_inputs inputs;
  audit_want want;
  uint8_t *chosen, *wanted; /* [points]: whether its rows are compared; enum audit_wanted of its values */
  audit_point *counts;      /* [points] */
  audit_kind kinds[KERNEL_COUNT];
  audit_report report;
  char first_id[TRACE_ID_BYTES_MAX + 1]; /* text of the report's first difference */
  audit_backend *machine;
  uint8_t weights_digest[DIGEST_BYTES]; /* of the trace                                                        */
  uint64_t random, left_covered, left_wanted; /* for --sample: covered rows left, and how many of them to take */
  const audit_request *request; /* current request, as are the fields below                                    */
  const audit_op *op;
  uint32_t kv_rows;         /* the trace has the op's KV rows for positions 0 .. kv_rows - 1 */
  uint32_t *batch;          /* [max_batch_tokens] rows of the request */
  uint32_t batch_count;
  uint8_t *picked;          /* [max_len] per row of the request: bit i: the op's point i is compared */
};

typedef void audit_step(audit *self);

/* === Selection of points ==================================================================================================== */

/* "qkv_rope" selects qkv_rope's three points, "qkv_rope q_nope" one of them. */
static bool is_named(const verbatim_point *point, const char *op) {
  const char *name = trace_op_name(point);
  size_t bytes = strlen(op);
  return strncmp(name, op, bytes) == 0 && (name[bytes] == 0 || name[bytes] == ' ');
}

static bool is_chosen(const audit *self, uint32_t point) {
  const audit_options *o = &self->options;
  const verbatim_point *p = &self->points.list[point];
  if (self->inputs.op_of[point] == AUDIT_NONE) return false;
  if (o->is_layered && (p->layer < o->layer_min || p->layer > o->layer_max)) return false; /* outside of layers: UINT32_MAX */
  return !o->op || is_named(p, o->op);
}

static void want_inputs(audit *self, const audit_list *list) {
  for (uint32_t i = 0; i < list->count; i++)
    self->wanted[list->point[i]] |=
        self->points.places[list->point[i]].rows == POINT_KV ? AUDIT_WANTED_EARLIER : AUDIT_WANTED_ROWS;
}

static status choose(audit *self) {
  const plan_header *header = self->plan->header;
  uint32_t count = 0;
  uint64_t pages = header->limits.kv_pages;
  TRY(arena_take(&self->host, self->points.count, &self->chosen));
  TRY(arena_take(&self->host, self->points.count, &self->wanted));
  TRY(arena_take(&self->host, self->points.count * sizeof *self->counts, &self->counts));
  for (uint32_t i = 0; i < self->points.count; i++) {
    self->counts[i].needs = AUDIT_NONE;
    if (!is_chosen(self, i)) continue;
    const audit_op *op = &self->inputs.ops[self->inputs.op_of[i]];
    self->chosen[i] = 1;
    self->wanted[i] |= AUDIT_WANTED_ROWS;
    want_inputs(self, &op->inputs);
    want_inputs(self, &op->prior_inputs);
    count++;
  }
  self->want = (audit_want){.point = self->wanted, .position_min = self->options.position_min, .position_max = self->options.position_max,
                            .length = header->limits.max_len, .vocab = header->model.vocab, .experts = header->model.experts,
                            .id = self->options.id};
  if (pages * PAGE_TOKENS < self->want.length) self->want.length = (uint32_t)(pages * PAGE_TOKENS);
  if (count) return OK;
  return FAIL(ERR_USAGE, "audit: expected --layer and --op that name ops of the plan, found none; hint: verbatim show PLAN --ops");
}

/* === Do trace, plan and model match? ========================================================================================= */

static status check_digest(const char *what, const uint8_t *trace, const uint8_t *own, const char *hint) {
  char texts[2][DIGEST_TEXT_BYTES];
  if (memcmp(trace, own, DIGEST_BYTES) == 0) return OK;
  return FAIL(ERR_MISMATCH, "audit: %s: expected %s as in the trace, found %s; hint: %s", what, digest_text(trace, texts[0]),
              digest_text(own, texts[1]), hint);
}

/* The points follow from the numerics id, so a trace with other points belongs to another run. */
static status check_points(const audit *self, const trace_head *head) {
  if (head->point_count != self->points.count)
    return FAIL(ERR_MISMATCH, "audit: the trace has %u points, expected %u as the plan", head->point_count, self->points.count);
  for (uint32_t i = 0; i < head->point_count; i++) {
    const verbatim_point *a = &head->points[i], *b = &self->points.list[i];
    if (strcmp(a->name, b->name) != 0 || a->layer != b->layer || a->kernel != b->kernel || a->type != b->type || a->count != b->count ||
        a->of_logits != b->of_logits)
      return FAIL(ERR_MISMATCH, "audit: point %u of the trace is %s of %u numbers, expected %s of %u as the plan", i, a->name, a->count,
                  b->name, b->count);
  }
  return OK;
}

static status check_head(const audit *self, const trace_head *head) {
  const plan_header *header = self->plan->header;
  TRY(check_digest("numerics id of the plan", head->numerics_id, header->numerics_id, "use a plan of the model that was run"));
  TRY(check_digest("digest of the plan's config.json", head->config_digest, header->config_digest, "plan from the model that was run"));
  return check_points(self, head);
}

/* === Coverage ================================================================================================================ */

/* A point whose missing row prevents recomputing this row, or AUDIT_NONE; *position: the missing row's token. */
static uint32_t missing_of(const audit *self, const audit_list *list, const audit_row *row, uint32_t *position) {
  for (uint32_t i = 0; i < list->count; i++) {
    uint32_t point = list->point[i];
    bool is_kv = self->points.places[point].rows == POINT_KV;
    if (is_kv ? row->position < self->kv_rows : row->values[point] != NULL) continue;
    *position = is_kv ? self->kv_rows : row->position;
    return point;
  }
  return AUDIT_NONE;
}

/* Number of positions, counted from 0 without a gap, that have a row of this point. */
static uint32_t count_rows(const audit *self, uint32_t point) {
  uint32_t count = 0;
  while (count < self->request->count && self->request->rows[count].position == count && self->request->rows[count].values[point]) count++;
  return count;
}

/* Number of positions, counted from 0 without a gap, that have all rows of the paged tables that the op reads. */
static uint32_t count_kv(const audit *self, const audit_op *op) {
  const audit_list *lists[] = {&op->inputs, &op->prior_inputs};
  uint32_t count = UINT32_MAX;
  for (uint32_t l = 0; l < ARRAY_LEN(lists); l++)
    for (uint32_t i = 0; i < lists[l]->count; i++)
      if (self->points.places[lists[l]->point[i]].rows == POINT_KV) count = min_u32(count, count_rows(self, lists[l]->point[i]));
  return count;
}

static void note_uncovered(audit *self, uint32_t point, uint32_t needs, uint32_t position) {
  audit_point *c = &self->counts[point];
  if (c->uncovered++ > 0) return;
  c->needs = needs;
  c->needs_position = position;
}

/* Selection sampling (Knuth, algorithm S): takes each covered row with probability (rows to take) / (rows left). */
static bool takes(audit *self) {
  if (self->options.sample == 0 || self->left_wanted == 0) return self->options.sample == 0;
  bool is_taken = random_next(&self->random) % self->left_covered < self->left_wanted;
  self->left_covered--;
  self->left_wanted -= is_taken;
  return is_taken;
}

/* Which of the op's points are selected and present in this row. */
static uint32_t points_in(const audit *self, const audit_op *op, const audit_row *row) {
  uint32_t bits = 0;
  if (row->position < self->options.position_min || row->position > self->options.position_max) return 0;
  for (uint32_t i = 0; i < op->made.count; i++)
    if (self->chosen[op->made.point[i]] && row->digests[op->made.point[i]]) bits |= 1u << i;
  return bits;
}

/* The first pass: nothing is computed. */
static void count_op(audit *self) {
  const audit_op *op = self->op;
  for (uint32_t r = 0; r < self->request->count; r++) {
    const audit_row *row = &self->request->rows[r];
    uint32_t bits = points_in(self, op, row), position = 0;
    if (bits == 0) continue;
    uint32_t needs = missing_of(self, &op->inputs, row, &position);
    if (needs == AUDIT_NONE) needs = missing_of(self, &op->prior_inputs, row, &position);
    for (uint32_t i = 0; i < op->made.count; i++) {
      if (!(bits >> i & 1)) continue;
      self->counts[op->made.point[i]].chosen++;
      if (needs == AUDIT_NONE) self->report.covered++;
      else note_uncovered(self, op->made.point[i], needs, position);
    }
  }
}

/* Calls the step for every op with selected points, for every wanted request. */
static status for_requests(audit *self, audit_source *source, audit_step *step) {
  for (;;) {
    TRY(audit_source_next(source, &self->request));
    if (!self->request) return OK;
    for (uint32_t i = 0; i < self->inputs.count; i++) {
      bool is_wanted = false;
      self->op = &self->inputs.ops[i];
      for (uint32_t k = 0; k < self->op->made.count; k++) is_wanted |= self->chosen[self->op->made.point[k]];
      if (!is_wanted) continue;
      self->kv_rows = self->op->reads_kv ? count_kv(self, self->op) : 0;
      step(self);
    }
  }
}

/* === The first pass ========================================================================================================= */

static status check_counts(const audit *self) {
  const audit_report *r = &self->report;
  if (r->chosen == 0)
    return FAIL(ERR_USAGE, "audit: expected rows of --id, --position, --layer and --op in the trace, found none of %llu",
                (unsigned long long)r->trace_rows);
  if (r->covered > 0) return OK;
  for (uint32_t i = 0; i < self->points.count; i++) {
    const audit_point *c = &self->counts[i];
    if (c->uncovered)
      return FAIL(ERR_USAGE, "audit: none of the %llu rows chosen can be computed again: %s needs the values of %s at position %u; hint: "
                  "record them with --trace-values", (unsigned long long)r->chosen, self->points.list[i].name,
                  self->points.list[c->needs].name, c->needs_position);
  }
  return OK;
}

static status count_all(audit *self, audit_source *source) {
  TRY(check_head(self, audit_source_head(source)));
  memcpy(self->weights_digest, audit_source_head(source)->weights_digest, DIGEST_BYTES);
  TRY(for_requests(self, source, count_op));
  audit_totals totals = audit_source_total(source);
  audit_report *r = &self->report;
  r->requests = totals.requests;
  r->tokens = totals.tokens;
  r->trace_rows = totals.rows;
  r->trace_values = totals.values;
  for (uint32_t i = 0; i < self->points.count; i++) {
    r->chosen += self->counts[i].chosen;
    r->uncovered += self->counts[i].uncovered;
  }
  return check_counts(self);
}

static status first_pass(audit *self) {
  audit_source *source;
  self->want.presence = true;
  TRY(audit_source_open(&source, self->options.trace_path, &self->want));
  status result = count_all(self, source);
  audit_source_close(source);
  return result;
}

/* === Comparing ============================================================================================================== */

static bool is_nan(const verbatim_point *point, uint32_t bits) { return isnan(diff_values_number(point->type, bits)); }

/* For integers and NaN, the difference of the bits. */
static uint64_t distance_of(const verbatim_point *point, uint32_t a, uint32_t b) {
  uint64_t ulps;
  return diff_values_ulps(point->type, a, b, &ulps) ? ulps : a > b ? a - b : b - a;
}

/* Numbers that differ; NaN equals NaN, since payloads are outside the contract. */
static bool find_difference(const verbatim_point *point, const void *recorded, const void *computed, audit_difference *out) {
  for (uint32_t i = 0; i < point->count; i++) {
    uint32_t a = diff_values_bits(point->type, recorded, i), b = diff_values_bits(point->type, computed, i);
    if (a == b || (is_nan(point, a) && is_nan(point, b))) continue;
    if (out->count++ > 0) continue;
    out->number = i;
    out->recorded = a;
    out->computed = b;
    out->ulps = distance_of(point, a, b);
  }
  return out->count > 0;
}

static bool holds_nan(const verbatim_point *point, const void *row) {
  for (uint32_t i = 0; i < point->count; i++)
    if (is_nan(point, diff_values_bits(point->type, row, i))) return true;
  return false;
}

/* First by request, position and order of computation; requests arrive in order. */
static void note_difference(audit *self, const audit_difference *found) {
  audit_difference *first = &self->report.first;
  bool is_earlier = found->position != first->position ? found->position < first->position : found->point < first->point;
  if (first->is_found && (first->request != found->request || !is_earlier)) return;
  *first = *found;
  snprintf(self->first_id, sizeof self->first_id, "%s", self->request->id);
  first->id = self->first_id;
}

static void see_row(void *context, uint32_t at, uint32_t number, const void *computed) {
  audit *self = context;
  const verbatim_point *point = &self->points.list[number];
  const audit_row *row = &self->request->rows[at];
  audit_kind *kind = &self->kinds[point->kernel];
  audit_point *counts = &self->counts[number];
  audit_difference found = {.is_found = true, .request = self->request->index, .position = row->position, .point = number};
  bool is_picked = false, differs;
  for (uint32_t i = 0; i < self->op->made.count; i++) is_picked |= self->op->made.point[i] == number && (self->picked[at] >> i & 1);
  if (!is_picked) return;
  found.recorded_digest = row->digests[number];
  found.computed_digest = points_row_digest(point, computed);
  found.is_digest = !row->values[number];
  if (!found.is_digest) differs = find_difference(point, row->values[number], computed, &found);
  else differs = found.recorded_digest != found.computed_digest;
  if (differs && found.is_digest && holds_nan(point, computed)) { /* the digest of a row with NaN says nothing */
    note_uncovered(self, number, number, row->position);
    self->report.uncovered++;
    self->report.covered--;
    return;
  }
  counts->checked++;
  counts->different += differs;
  kind->rows++;
  kind->numbers += point->count;
  kind->different += differs;
  self->report.checked++;
  self->report.different += differs;
  if (differs) note_difference(self, &found);
}

/* === The second pass ======================================================================================================== */

static void tell(const audit *self, const char *what, uint64_t done, uint64_t total) {
  if (self->options.on_progress) self->options.on_progress(self->options.context, what, done, total);
}

static void run_batch(audit *self) {
  if (self->batch_count == 0) return;
  audit_kind *kind = &self->kinds[self->points.list[self->op->made.point[0]].kernel];
  kind->seconds += audit_backend_run(self->machine, self->op, self->request, self->batch, self->batch_count, see_row, self);
  for (uint32_t i = 0; i < self->batch_count; i++)
    kind->flops += audit_inputs_flops(self->plan, self->op, self->request->rows[self->batch[i]].position);
  self->batch_count = 0;
  tell(self, "rows", self->report.checked, self->options.sample ? self->options.sample : self->report.covered);
}

static bool is_covered(const audit *self, const audit_row *row) {
  uint32_t position;
  return missing_of(self, &self->op->inputs, row, &position) == AUDIT_NONE &&
         missing_of(self, &self->op->prior_inputs, row, &position) == AUDIT_NONE;
}

static void check_op(audit *self) {
  bool has_kv = false;
  for (uint32_t r = 0; r < self->request->count; r++) {
    const audit_row *row = &self->request->rows[r];
    uint32_t bits = points_in(self, self->op, row);
    self->picked[r] = 0;
    if (bits == 0 || !is_covered(self, row)) continue;
    for (uint32_t i = 0; i < self->op->made.count; i++)
      if (bits >> i & 1 && takes(self)) self->picked[r] |= (uint8_t)(1u << i);
    if (!self->picked[r]) continue;
    if (self->op->reads_kv && !has_kv) audit_backend_put_kv(self->machine, self->op, self->request, self->kv_rows);
    has_kv = true;
    self->batch[self->batch_count++] = r;
    if (self->batch_count == self->op->rows_max) run_batch(self);
  }
  run_batch(self);
}

status audit_run(audit *self) {
  audit_source *source;
  double from = clock_seconds();
  uint64_t covered = self->report.covered;
  self->want.presence = false;
  self->random = self->options.seed;
  self->left_covered = covered;
  self->left_wanted = self->options.sample < covered ? self->options.sample : covered;
  TRY(audit_source_open(&source, self->options.trace_path, &self->want));
  status result = check_head(self, audit_source_head(source));
  if (result == OK) result = for_requests(self, source, check_op);
  audit_totals totals = audit_source_total(source);
  audit_source_close(source);
  TRY(result);
  if (totals.rows != self->report.trace_rows || totals.values != self->report.trace_values)
    return FAIL(ERR_IO, "%s changed while it was read", self->options.trace_path);
  self->report.seconds = clock_seconds() - from;
  return OK;
}

/* === Opening ================================================================================================================ */

static void on_loading(void *context, uint64_t done, uint64_t total) { tell(context, "weights", done, total); }

static status start(audit *self) {
  const audit_options *o = &self->options;
  const plan_limits *limits = &self->plan->header->limits;
  TRY(points_open(&self->points, self->plan, &self->host));
  TRY(audit_inputs_open(&self->inputs, self->plan, &self->points, &self->host));
  TRY(choose(self));
  TRY(first_pass(self));
  TRY(arena_take(&self->host, limits->max_batch_tokens * sizeof *self->batch, &self->batch));
  TRY(arena_take(&self->host, limits->max_len, &self->picked));
  TRY(audit_backend_open(&self->machine, self->plan, &self->points, o->model_dir, o->threads, on_loading, self, &self->host));
  TRY(check_digest("digest of the model's weights", self->weights_digest, audit_backend_weights(self->machine),
                   "use the model that was run"));
  for (uint32_t i = 0; i < KERNEL_COUNT; i++) self->kinds[i].name = kernels_row(i)->name;
  audit_report *r = &self->report;
  r->point_count = self->points.count;
  r->points = self->points.list;
  r->counts = self->counts;
  r->kind_count = KERNEL_COUNT;
  r->kinds = self->kinds;
  r->device = audit_backend_name(self->machine);
  return OK;
}

status audit_open(audit **out, const audit_options *options) {
  if (options->plan->header->limits.parity != PARITY_STRICT)
    return FAIL(ERR_UNSUPPORTED, "audit: the plan's parity is fast-prefill, whose ops over contexts it does not run; hint: verbatim verify "
                "runs a request again, on the CPU too");
  audit *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "audit: no memory");
  self->options = *options;
  self->plan = options->plan;
  status result = start(self);
  if (result != OK) audit_close(self);
  else *out = self;
  return result;
}

const audit_report *audit_results(const audit *self) { return &self->report; }

void audit_close(audit *self) {
  if (!self) return;
  audit_backend_close(self->machine);
  arena_close(&self->host);
  free(self);
}
