/* common/trace.c - see common/trace.h. A request's rows arrive step by step, in ascending positions, and within a step op by op; the file
 * orders them token by token and request by request. So everything is collected, up to a limit, until its request is written. */
#include "common/trace.h"
#include "common/files.h"
#include "ops/kernels.h"
#include "base/limits.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_MIB 4096u
#define NAMES_BYTES 512u /* of op names in a message */

struct cli_trace_value {
  uint32_t position, point;
  void *row;
};

/* Whether a selector matches a point: not at all, at its positions, or at all positions up to the last of them. */
enum { MATCH_NOT, MATCH_POSITIONS, MATCH_UP_TO };

/* === Selectors ============================================================================================================== */

static bool starts(const char *text, size_t bytes, const char *with) {
  return bytes >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

static status take_part(cli_trace_selector *s, const char *part, size_t bytes) {
  if (starts(part, bytes, "layer=")) {
    s->has_layer = true;
    return cli_options_range("--trace-values layer=", part + 6, bytes - 6, LAYERS_MAX - 1, &s->layer_first, &s->layer_last);
  }
  if (starts(part, bytes, "position="))
    return cli_options_range("--trace-values position=", part + 9, bytes - 9, LENGTH_MAX - 1, &s->position_first, &s->position_last);
  if (starts(part, bytes, "op=") && bytes > 3 && !s->is_audit) {
    s->op = part + 3;
    s->op_bytes = bytes - 3;
    return OK;
  }
  return FAIL(ERR_USAGE, "--trace-values %s: expected all, or parts of layer=, position= and%s op=, found \"%.*s\"", s->text,
              s->is_audit ? " (not with audit:)" : "", (int)bytes, part);
}

static status take_selector(const char *name, const char *value, void *target) {
  cli_trace *self = target;
  if (self->selector_count == CLI_TRACE_SELECTORS_MAX)
    return FAIL(ERR_USAGE, "%s: given more than %u times", name, CLI_TRACE_SELECTORS_MAX);
  cli_trace_selector s = {.text = value, .position_last = LENGTH_MAX - 1, .layer_last = LAYERS_MAX - 1};
  const char *part = value;
  if (starts(part, strlen(part), "audit:")) {
    s.is_audit = true;
    part += 6;
  }
  if (s.is_audit || strcmp(value, "all") != 0) {
    for (bool more = true; more;) {
      size_t bytes = strcspn(part, ",");
      TRY(take_part(&s, part, bytes));
      more = part[bytes] == ',';
      part += bytes + more;
    }
  }
  self->selectors[self->selector_count++] = s;
  return OK;
}

void cli_trace_options(cli_trace *self, cli_option *rows, size_t row_count) {
  const cli_option own[] = {{"--trace", cli_options_text, &self->path}, {"--trace-values", take_selector, self},
                            {"--trace-memory", cli_options_u32, &self->memory_mib}};
  self->memory_mib = MEMORY_MIB;
  size_t at = 0;
  while (rows[at].name) at++;
  ASSERT(at + ARRAY_LEN(own) < row_count);
  memcpy(rows + at, own, sizeof own);
}

status cli_trace_check(const cli_trace *self) {
  if (!self->path && self->selector_count) return FAIL(ERR_USAGE, "--trace-values: needs --trace FILE");
  return self->path ? cli_files_check_output(self->path) : OK;
}

/* A point before all layers counts as the layer before the first. */
static bool is_before(const cli_trace *self, uint32_t point, uint32_t layer) {
  if (self->points[point].layer != UINT32_MAX) return self->points[point].layer + 1 == layer;
  while (point < self->point_count && self->points[point].layer == UINT32_MAX) point++;
  return layer == 0 && point < self->point_count && self->points[point].layer == 0;
}

static uint8_t match_of(const cli_trace *self, const cli_trace_selector *s, uint32_t point) {
  const verbatim_point *p = &self->points[point];
  bool is_layer = !s->has_layer || (p->layer >= s->layer_first && p->layer <= s->layer_last);
  const bool is_row = (p->kernel == KERNEL_qkv_rope && strcmp(trace_op_name(p), "qkv_rope kv") == 0) ||
                      (p->kernel == KERNEL_kv_rope && strcmp(trace_op_name(p), "kv_rope kv") == 0);
  if (s->is_audit && is_layer && is_row) return MATCH_UP_TO;
  if (s->is_audit && s->has_layer && is_before(self, point, s->layer_first)) return MATCH_POSITIONS;
  const char *op = trace_op_name(p);
  return is_layer && (!s->op || (strlen(op) >= s->op_bytes && memcmp(op, s->op, s->op_bytes) == 0)) ? MATCH_POSITIONS : MATCH_NOT;
}

/* The names of the ops, each once, as many as fit. */
static void list_names(const cli_trace *self, char text[NAMES_BYTES]) {
  size_t used = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < self->point_count; i++) {
    const char *name = trace_op_name(&self->points[i]);
    bool is_new = true;
    for (uint32_t k = 0; k < i && is_new; k++) is_new = strcmp(trace_op_name(&self->points[k]), name) != 0;
    if (!is_new || used + strlen(name) + 3 > NAMES_BYTES) continue;
    used += (size_t)snprintf(text + used, NAMES_BYTES - used, "%s%s", used ? ", " : "", name);
  }
}

static status match_points(cli_trace *self, cli_trace_selector *s) {
  bool found = false;
  char names[NAMES_BYTES];
  if (!(s->match = malloc(self->point_count))) return FAIL(ERR_LIMIT, "trace: no memory");
  for (uint32_t i = 0; i < self->point_count; i++) found |= (s->match[i] = match_of(self, s, i)) != MATCH_NOT;
  if (found) return OK;
  list_names(self, names);
  return FAIL(ERR_USAGE, "--trace-values %s: nothing in the plan matches; hint: its ops are %s", s->text, names);
}

status cli_trace_begin(cli_trace *self, const verbatim_info *info) {
  if (!self->path) return OK;
  trace_head head = {.point_count = info->point_count, .points = info->points};
  self->points = info->points;
  self->point_count = info->point_count;
  memcpy(head.numerics_id, info->numerics_id, 16);
  memcpy(head.config_digest, info->config_digest, 16);
  memcpy(head.weights_digest, info->weights_digest, 16);
  if (info->point_count > TRACE_POINTS_MAX)
    return FAIL(ERR_LIMIT, "trace: the plan has %" PRIu32 " points, at most %u", info->point_count, TRACE_POINTS_MAX);
  for (uint32_t i = 0; i < self->selector_count; i++) TRY(match_points(self, &self->selectors[i]));
  return trace_writer_open(&self->writer, self->path, &head);
}

/* === Callbacks of the engine ================================================================================================ */

/* A callback cannot return an error; the next cli_trace_failure does. The thread's record is cleared because the engine expects an empty
 * one. */
static void keep_failure(cli_trace *self) {
  if (self->failure.code == OK) fail_take(&self->failure);
  else fail_clear();
}

static bool is_full(cli_trace *self, uint64_t more_bytes) {
  if (self->failure.code != OK) return true;
  if (self->bytes + more_bytes <= (uint64_t)self->memory_mib << 20) return false;
  (void)FAIL(ERR_LIMIT, "trace: more than %" PRIu32 " MiB of trace data wait to be written; hint: select fewer values, trace fewer "
                                                    "requests at a time, "
             "or raise --trace-memory", self->memory_mib);
  keep_failure(self);
  return true;
}

/* Room for one more entry in a list that doubles; NULL: no memory, which was recorded. */
static void *grow(cli_trace *self, void *list, uint32_t count, uint32_t *room, size_t entry_bytes) {
  if (count < *room) return list;
  uint32_t more = *room ? 2 * *room : 16;
  void *grown = realloc(list, more * entry_bytes);
  if (grown) {
    *room = more;
    return grown;
  }
  (void)FAIL(ERR_LIMIT, "trace: no memory for data that waits to be written");
  keep_failure(self);
  return NULL;
}

static void check_again(cli_trace_request *r, uint32_t position, const uint64_t *digests) {
  const cli_trace *self = r->trace;
  const uint64_t *before = r->digests + (size_t)position * self->point_count;
  for (uint32_t i = 0; i < self->point_count && !r->is_other; i++) {
    if (before[i] == digests[i] || (self->points[i].of_logits && digests[i] == 0)) continue; /* logits are not computed twice */
    r->is_other = true;
    r->other_position = position;
    r->other_point = i;
    r->other_digest = digests[i];
  }
}

static void tell_other(const cli_trace_request *r, const verbatim_request *request) {
  cli_trace *self = r->trace;
  if (!r->is_other || request->finish == VERBATIM_NONFINITE || self->failure.code != OK) return;
  (void)FAIL(ERR_MISMATCH, "trace: a recomputed row has other bits: position %" PRIu32 ", \"%s\", %016" PRIx64
             ", then %016" PRIx64, r->other_position, self->points[r->other_point].name,
             r->digests[(size_t)r->other_position * self->point_count + r->other_point], r->other_digest);
  keep_failure(self);
}

static void on_row(verbatim_request *request, uint32_t position, const uint64_t *digests) {
  cli_trace_request *r = request->context;
  cli_trace *self = r->trace;
  size_t row_bytes = self->point_count * sizeof *digests;
  if (self->failure.code != OK) return;
  ASSERT(position <= r->row_count);
  if (position < r->row_count) {
    check_again(r, position, digests);
    return;
  }
  uint64_t *grown = is_full(self, row_bytes) ? NULL : grow(self, r->digests, r->row_count, &r->row_room, row_bytes);
  if (!grown) return;
  r->digests = grown;
  memcpy(r->digests + (size_t)r->row_count++ * self->point_count, digests, row_bytes);
  self->bytes += row_bytes;
}

static bool wants_values(const verbatim_request *request, uint32_t position, uint32_t point) {
  const cli_trace_request *r = request->context;
  const cli_trace *self = r->trace;
  for (uint32_t i = 0; i < self->selector_count; i++) {
    const cli_trace_selector *s = &self->selectors[i];
    if (s->match[point] == MATCH_NOT || position > s->position_last) continue;
    if (s->match[point] == MATCH_UP_TO || position >= s->position_first) return true;
  }
  return false;
}

/* A row that was computed again is checked by its digest. */
static void on_values(verbatim_request *request, uint32_t position, uint32_t point, const void *row, size_t bytes) {
  cli_trace_request *r = request->context;
  cli_trace *self = r->trace;
  if (position < r->row_count || is_full(self, bytes + sizeof *r->values)) return;
  cli_trace_value *grown = grow(self, r->values, r->value_count, &r->value_room, sizeof *grown);
  if (!grown) return;
  r->values = grown;
  void *copy = malloc(bytes);
  if (!copy) {
    (void)FAIL(ERR_LIMIT, "trace: no memory for data that waits to be written");
    keep_failure(self);
    return;
  }
  memcpy(copy, row, bytes);
  r->values[r->value_count++] = (cli_trace_value){position, point, copy};
  self->bytes += bytes + sizeof *r->values;
}

void cli_trace_watch(cli_trace *self, cli_trace_request *r, verbatim_request *request) {
  if (!self->path) return;
  r->trace = self;
  request->on_trace = on_row;
  if (self->selector_count == 0) return;
  request->wants_values = wants_values;
  request->on_values = on_values;
}

status cli_trace_failure(const cli_trace *self) { return self->failure.code == OK ? OK : fail_give(&self->failure); }

/* === Writing ================================================================================================================ */

static int compare_values(const void *a, const void *b) {
  const cli_trace_value *x = a, *y = b;
  if (x->position != y->position) return x->position < y->position ? -1 : 1;
  return x->point < y->point ? -1 : x->point > y->point;
}

/* The last generated token is not the input of any step, unless its row was not finite and so ended the request. Whether its row is
 * computed anyway depends on how steps overlap. */
static uint32_t computed_count(const verbatim_request *request) {
  bool is_last_computed = request->token_count == 0 || request->finish == VERBATIM_NONFINITE;
  return request->prompt_count + request->token_count - !is_last_computed;
}

static void write_rows(const cli_trace_request *r, const verbatim_request *request) {
  const cli_trace *self = r->trace;
  const cli_trace_value *v = r->values;
  uint32_t rows = min_u32(r->row_count, computed_count(request));
  for (uint32_t i = 0; i < rows; i++) {
    int32_t token = i < request->prompt_count ? request->prompt[i] : request->tokens[i - request->prompt_count].id;
    for (; v < r->values + r->value_count && v->position == i; v++)
      trace_writer_add(self->writer, &(trace_record){.kind = TRACE_VALUES, .position = i, .point = v->point, .values = v->row,
                                                     .value_bytes = (size_t)trace_row_bytes(&self->points[v->point])});
    trace_writer_add(self->writer, &(trace_record){.kind = TRACE_ROW, .position = i, .token = token,
                                                   .digests = r->digests + (size_t)i * self->point_count});
  }
}

void cli_trace_add(cli_trace_request *r, const char *name, const verbatim_request *request) {
  if (!r->trace) return;
  tell_other(r, request);
  trace_record head = {.kind = TRACE_REQUEST, .id = name, .prompt_count = request->prompt_count};
  memcpy(head.request_digest, request->request_digest, 16);
  trace_writer_add(r->trace->writer, &head);
  if (r->value_count) qsort(r->values, r->value_count, sizeof *r->values, compare_values);
  write_rows(r, request);
  cli_trace_release(r);
}

status cli_trace_end(cli_trace *self) {
  trace_writer *writer = self->writer;
  TRY(cli_trace_failure(self));
  self->writer = NULL;
  return writer ? trace_writer_close(writer) : OK;
}

void cli_trace_release(cli_trace_request *r) {
  if (r->trace) r->trace->bytes -= (uint64_t)r->row_count * r->trace->point_count * sizeof *r->digests;
  for (uint32_t i = 0; i < r->value_count; i++) {
    r->trace->bytes -= trace_row_bytes(&r->trace->points[r->values[i].point]) + sizeof *r->values;
    free(r->values[i].row);
  }
  free(r->values);
  free(r->digests);
  *r = (cli_trace_request){0};
}

void cli_trace_close(cli_trace *self) {
  trace_writer_abandon(self->writer);
  for (uint32_t i = 0; i < self->selector_count; i++) free(self->selectors[i].match);
}
