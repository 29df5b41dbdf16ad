/* cli/diff.c - `verbatim diff`: where two runs diverge, by their receipts, their traces, or both.
 *
 * Owns the arguments, the kinds of files, and both forms of the result. Runs nothing. Read next: diff_receipt.h, diff_trace.h,
 * common/compare.h. */
#include "cli/cli.h"
#include "common/compare.h"
#include "common/options.h"
#include "common/output.h"
#include "receipts/diff_receipt.h"
#include "traces/diff_trace.h"
#include "base/digest.h"
#include "ops/kernels.h"
#include "base/input_file.h"
#include "traces/file.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_SHOWN 10u
#define SELECTOR_BYTES 384u

static const char HELP[] =
  "usage: verbatim diff A B [--json]\n"
  "       verbatim diff A B --trace A_TRACE B_TRACE [--json]\n\n"
  "Compares two receipts, or two traces (of `--trace`); the kind is read from the files. Of receipts:\n"
  "what ran, what was asked, and the first token that differs. Of traces: the first token, layer and op\n"
  "whose values differ, and the values if both traces have them (`--trace-values`). First means by\n"
  "request in the order of A, then by position, then in the order of computation. Requests are paired\n"
  "by id; several with one id, by their order.\n\n"
  "Examples:\n"
  "  verbatim diff a.receipt b.receipt\n"
  "  verbatim diff a.trace b.trace\n"
  "  verbatim diff a.receipt b.receipt --trace a.trace b.trace\n\n"
  "  --json              one JSON object instead of text\n\n"
  "Exit code: 0 when they are equal, 8 when they differ.\n";

typedef struct diff_run {
  const char *paths[4];
  uint32_t path_count;
  bool json, trace;
  bool has_receipts, has_traces;
  cli_output_progress progress;
  diff_receipt receipts;
  diff_trace traces;
} diff_run;

/* === Text =================================================================================================================== */

static void print_head(const char *what, bool same, const uint8_t *a, const uint8_t *b) {
  char x[DIGEST_TEXT_BYTES], y[DIGEST_TEXT_BYTES];
  if (!same) printf("  %-15s %s | %s\n", what, a ? digest_text(a, x) : "none", b ? digest_text(b, y) : "none");
}

static void print_alone(const diff_requests *requests, const char *what) {
  uint32_t count = diff_requests_alone(requests), shown = 0;
  if (count == 0) return;
  printf("  only in %s: %" PRIu32 " requests:", what, count);
  for (uint32_t i = 0; i < requests->count && shown < NAMES_SHOWN; i++) {
    if (requests->list[i].match != DIFF_REQUESTS_NONE) continue;
    putchar(' ');
    cli_output_quoted(requests->list[i].id);
    shown++;
  }
  printf("%s\n", shown < count ? " ..." : "");
}

static void print_requests(const diff_requests requests[2]) {
  uint32_t shown = 0, differ = diff_requests_differ(&requests[0]), both = requests[0].count - diff_requests_alone(&requests[0]);
  printf("  %" PRIu32 " of %" PRIu32 " requests differ%s", differ, both, differ ? ":" : "\n");
  for (uint32_t i = 0; i < requests[0].count && shown < min_u32(differ, NAMES_SHOWN); i++) {
    if (!requests[0].list[i].differs) continue;
    putchar(' ');
    cli_output_quoted(requests[0].list[i].id);
    shown++;
  }
  if (differ) printf("%s\n", shown < differ ? " ..." : "");
  print_alone(&requests[0], "A");
  print_alone(&requests[1], "B");
}

static void print_receipts(const diff_receipt *r) {
  const uint8_t *tokenizers[2] = {r->head[0].has_tokenizer ? r->head[0].tokenizer_digest : NULL,
                                  r->head[1].has_tokenizer ? r->head[1].tokenizer_digest : NULL};
  printf("receipts: %s\n", r->differs ? "they differ" : "equal");
  print_head("numerics id", r->same_numerics, r->head[0].numerics_id, r->head[1].numerics_id);
  print_head("config", r->same_config, r->head[0].config_digest, r->head[1].config_digest);
  print_head("weights", r->same_weights, r->head[0].weights_digest, r->head[1].weights_digest);
  print_head("tokenizer", r->same_tokenizer, tokenizers[0], tokenizers[1]);
  if (strcmp(r->device[0], r->device[1]) != 0) {
    printf("  %-15s ", "made on");
    cli_output_quoted(r->device[0]);
    printf(" | ");
    cli_output_quoted(r->device[1]);
    putchar('\n');
  }
  for (int i = 0; i < 2; i++)
    if (!r->complete[i]) printf("  the run of %s did not end\n", i ? "B" : "A");
  print_requests(r->requests);
  if (!r->has_first) return;
  printf("first divergence: request ");
  cli_output_quoted(r->requests[0].list[r->first_request].id);
  putchar('\n');
  cli_compare_print(&r->first);
}

/* === Text of traces ========================================================================================================= */

static const char *kernel_name(uint32_t kernel) { return kernel < KERNEL_COUNT ? kernels_row(kernel)->name : "unknown"; }

/* The value of --trace-values that would record the row. */
static const char *selector_of(const diff_trace_first *f, char text[SELECTOR_BYTES]) {
  if (f->point.layer == UINT32_MAX) snprintf(text, SELECTOR_BYTES, "op=%s,position=%" PRIu32, f->point.name, f->position);
  else snprintf(text, SELECTOR_BYTES, "layer=%" PRIu32 ",op=%s,position=%" PRIu32, f->point.layer, trace_op_name(&f->point), f->position);
  return text;
}

static void print_point(const diff_trace_first *f) {
  char what[32], selector[SELECTOR_BYTES];
  printf("position %" PRIu32 " (token %" PRId32 "), ", f->position, f->token[0]);
  if (f->point.layer != UINT32_MAX) printf("layer %" PRIu32 ", ", f->point.layer);
  printf("op ");
  cli_output_quoted(trace_op_name(&f->point));
  printf(" (%s)\n  %" PRIu32 " rows of the request before it are the same, and %" PRIu32 " results of this token\n",
         kernel_name(f->point.kernel), f->rows_same, f->points_same);
  printf("  %-15s %016" PRIx64 " | %016" PRIx64 "\n", "digest", f->digest[0], f->digest[1]);
  if (f->has_values[0] && f->has_values[1]) {
    snprintf(what, sizeof what, "number %" PRIu32, f->values.index);
    cli_compare_print_numbers(what, f->values.type, f->values.a, f->values.b);
    printf("  %" PRIu32 " of %" PRIu32 " numbers differ", f->values.differ_count, f->values.count);
    uint64_t most = f->values.most_ulps;
    if (f->values.type != VERBATIM_POINT_U32) printf(", by %" PRIu64 " ulp%s at most", most, most == 1 ? "" : "s");
    putchar('\n');
    return;
  }
  printf("  the numbers are in %s; to record them, run each again with the same prompts and\n"
         "    verbatim run PLAN MODEL_DIR ... --trace FILE --trace-values '%s'\n"
         "  or by its receipt: verbatim verify RECEIPT PLAN MODEL_DIR with these two options\n",
         f->has_values[0] ? "A alone" : f->has_values[1] ? "B alone" : "neither", selector_of(f, selector));
}

static void print_row(const diff_trace_first *f) {
  if (f->kind == DIFF_TRACE_POINT) print_point(f);
  else if (f->kind == DIFF_TRACE_TOKEN)
    printf("position %" PRIu32 ": token %" PRId32 " | %" PRId32 "\n  %" PRIu32 " rows of the request before it are the same: "
           "the requests differ, or another token was chosen from the same values\n", f->position, f->token[0], f->token[1], f->rows_same);
  else
    printf("position %" PRIu32 ": only %s has a row\n  %" PRIu32 " rows of the request before it are the same\n", f->position,
           f->has_row[0] ? "A" : "B", f->rows_same);
}

static void print_traces(const diff_trace *t) {
  printf("traces: %s; %" PRIu64 " tokens, %" PRIu32 " results of each\n", t->differs ? "they differ" : "equal", t->rows,
         t->points_compared);
  print_head("numerics id", t->same_numerics, t->numerics_id[0], t->numerics_id[1]);
  print_head("config", t->same_config, t->config_digest[0], t->config_digest[1]);
  print_head("weights", t->same_weights, t->weights_digest[0], t->weights_digest[1]);
  for (int i = 0; i < 2; i++) {
    if (t->points_alone[i] == 0) continue;
    printf("  only in %s: %" PRIu32 " results, which are not compared, such as ", i ? "B" : "A", t->points_alone[i]);
    cli_output_quoted(t->alone_name[i]);
    putchar('\n');
  }
  print_requests(t->requests);
  if (!t->first.kind) return;
  if (!t->first.same_question) printf("  the request digests differ: the requests or the models differ\n");
  printf("first divergence: request ");
  cli_output_quoted(t->requests[0].list[t->first.request].id);
  printf(", ");
  print_row(&t->first);
}

/* === JSON =================================================================================================================== */

static json_t *digest_json(const uint8_t *bytes) {
  char text[DIGEST_TEXT_BYTES];
  return bytes ? json_string(digest_text(bytes, text)) : json_null();
}

static void set_head(json_t *object, const char *key, bool same, const uint8_t *a, const uint8_t *b) {
  if (!same) json_object_set_new(object, key, cli_compare_pair(digest_json(a), digest_json(b)));
}

static json_t *names_json(const diff_requests *requests, bool alone) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < requests->count; i++) {
    const diff_request *r = &requests->list[i];
    if (alone ? r->match == DIFF_REQUESTS_NONE : r->differs) json_array_append_new(list, cli_compare_text(r->id));
  }
  return list;
}

static void set_requests(json_t *object, const diff_requests requests[2]) {
  json_object_set_new(object, "compared", json_integer(requests[0].count - diff_requests_alone(&requests[0])));
  json_object_set_new(object, "differ", names_json(&requests[0], false));
  json_object_set_new(object, "only_a", names_json(&requests[0], true));
  json_object_set_new(object, "only_b", names_json(&requests[1], true));
}

static json_t *receipts_json(const diff_receipt *r) {
  json_t *object = json_pack("{s:b, s:[b, b]}", "equal", !r->differs, "complete", r->complete[0], r->complete[1]), *first = json_null();
  json_object_set_new(object, "devices", cli_compare_pair(cli_compare_text(r->device[0]), cli_compare_text(r->device[1])));
  set_head(object, "numerics_id", r->same_numerics, r->head[0].numerics_id, r->head[1].numerics_id);
  set_head(object, "config", r->same_config, r->head[0].config_digest, r->head[1].config_digest);
  set_head(object, "weights", r->same_weights, r->head[0].weights_digest, r->head[1].weights_digest);
  set_head(object, "tokenizer", r->same_tokenizer, r->head[0].has_tokenizer ? r->head[0].tokenizer_digest : NULL,
           r->head[1].has_tokenizer ? r->head[1].tokenizer_digest : NULL);
  set_requests(object, r->requests);
  if (r->has_first) {
    first = cli_compare_json(&r->first);
    json_object_set_new(first, "request", cli_compare_text(r->requests[0].list[r->first_request].id));
  }
  json_object_set_new(object, "first", first);
  return object;
}

static void set_point(json_t *object, const diff_trace_first *f) {
  char selector[SELECTOR_BYTES];
  json_object_set_new(object, "points_same", json_integer(f->points_same));
  json_object_set_new(object, "layer", f->point.layer == UINT32_MAX ? json_null() : json_integer(f->point.layer));
  json_object_set_new(object, "op", cli_compare_text(trace_op_name(&f->point)));
  json_object_set_new(object, "kernel", json_string(kernel_name(f->point.kernel)));
  json_object_set_new(object, "digests", cli_compare_pair(cli_compare_hex(f->digest[0]), cli_compare_hex(f->digest[1])));
  if (f->has_values[0] && f->has_values[1]) {
    json_t *numbers = json_pack("{s:I, s:I, s:I, s:I}", "index", (json_int_t)f->values.index, "count", (json_int_t)f->values.count,
                                "differ", (json_int_t)f->values.differ_count, "most_ulps", (json_int_t)f->values.most_ulps);
    cli_compare_set_numbers(numbers, f->values.type, f->values.a, f->values.b);
    json_object_set_new(object, "numbers", numbers);
  } else {
    json_object_set_new(object, "numbers", json_null());
    json_object_set_new(object, "trace_values", cli_compare_text(selector_of(f, selector)));
  }
}

static json_t *traces_json(const diff_trace *t) {
  static const char *const kinds[] = {"", "ends", "token", "op"};
  json_t *object = json_pack("{s:b, s:I, s:I, s:[I, I]}", "equal", !t->differs, "rows", (json_int_t)t->rows, "points",
                             (json_int_t)t->points_compared, "points_alone", (json_int_t)t->points_alone[0],
                             (json_int_t)t->points_alone[1]), *first = json_null();
  const diff_trace_first *f = &t->first;
  set_head(object, "numerics_id", t->same_numerics, t->numerics_id[0], t->numerics_id[1]);
  set_head(object, "config", t->same_config, t->config_digest[0], t->config_digest[1]);
  set_head(object, "weights", t->same_weights, t->weights_digest[0], t->weights_digest[1]);
  set_requests(object, t->requests);
  if (f->kind) {
    json_t *tokens[2];
    for (int i = 0; i < 2; i++) tokens[i] = f->has_row[i] ? json_integer(f->token[i]) : json_null();
    first = json_pack("{s:o, s:s, s:b, s:I, s:I, s:o}", "request", cli_compare_text(t->requests[0].list[f->request].id), "kind",
                      kinds[f->kind], "same_request_digest", f->same_question, "position", (json_int_t)f->position, "rows_same",
                      (json_int_t)f->rows_same, "tokens", cli_compare_pair(tokens[0], tokens[1]));
    if (f->kind == DIFF_TRACE_POINT) set_point(first, f);
  }
  json_object_set_new(object, "first", first);
  return object;
}

/* === The command ============================================================================================================ */

static status parse_arguments(diff_run *self, int argc, char **argv, const char **words) {
  const cli_option table[] = {{"--json", NULL, &self->json}, {"--trace", NULL, &self->trace}, {NULL, NULL, NULL}};
  TRY(cli_options_parse(table, argc, argv, words, &self->path_count));
  uint32_t expected = self->trace ? 4 : 2;
  if (self->path_count != expected)
    return FAIL(ERR_USAGE, "diff: expected %s, found %" PRIu32 " files; hint: verbatim diff --help",
                self->trace ? "A B --trace A_TRACE B_TRACE" : "A and B", self->path_count);
  memcpy(self->paths, words, expected * sizeof *words);
  return OK;
}

/* Whether a file is a trace, which begins like a zstd file, or a receipt, a line of JSON. The reader refuses any other file. */
static status is_trace(const char *path, bool *trace) {
  char begin[4] = {0};
  FILE *file;
  TRY(input_file_open(path, INPUT_RUN, &file));
  *trace = fread(begin, 1, sizeof begin, file) == sizeof begin && memcmp(begin, TRACE_MAGIC, sizeof begin) == 0;
  fclose(file);
  return OK;
}

static status check_kinds(diff_run *self) {
  static const char *const names[] = {"receipt", "trace"};
  bool trace[4] = {false};
  for (uint32_t i = 0; i < self->path_count; i++) TRY(is_trace(self->paths[i], &trace[i]));
  if (trace[0] != trace[1])
    return FAIL(ERR_USAGE, "diff: expected two receipts or two traces, found a %s and a %s", names[trace[0]], names[trace[1]]);
  for (uint32_t i = 0; i < self->path_count; i++)
    if (trace[i] != (i >= 2) && self->trace)
      return FAIL(ERR_USAGE, "diff: %s: expected a %s, found a %s", self->paths[i], names[i >= 2], names[trace[i]]);
  self->has_receipts = !trace[0];
  self->has_traces = trace[0] || self->trace;
  return OK;
}

static void show_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  diff_run *self = context;
  cli_output_progress_bytes(&self->progress, "reading", done_bytes, total_bytes);
}

static status print_json(const diff_run *self) {
  bool equal = !self->receipts.differs && !self->traces.differs;
  json_t *receipts = self->has_receipts ? receipts_json(&self->receipts) : json_null();
  json_t *traces = self->has_traces ? traces_json(&self->traces) : json_null();
  return cli_output_json(json_pack("{s:b, s:o, s:o}", "equal", equal, "receipts", receipts, "traces", traces),
                         JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}

static status diff_steps(diff_run *self) {
  TRY(check_kinds(self));
  const char *const *traces = self->paths + (self->has_receipts ? 2 : 0);
  if (self->has_receipts) TRY(diff_receipt_compare(&self->receipts, self->paths[0], self->paths[1]));
  if (self->has_traces)
    TRY(diff_trace_compare(&self->traces, traces[0], traces[1], show_progress, self));
  if (self->json) TRY(print_json(self));
  else if (self->has_receipts) print_receipts(&self->receipts);
  if (!self->json && self->has_traces) print_traces(&self->traces);
  TRY(cli_output_flush());
  if (!self->receipts.differs && !self->traces.differs) return OK;
  return FAIL(ERR_MISMATCH, "%s and %s differ", self->paths[0], self->paths[1]);
}

int cli_diff(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  diff_run self = {.path_count = 0};
  const char **words = calloc((size_t)argc, sizeof *words);
  status result = words ? parse_arguments(&self, argc, argv, words) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) result = diff_steps(&self);
  cli_output_progress_end(&self.progress);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  diff_receipt_close(&self.receipts);
  diff_trace_close(&self.traces);
  free(words);
  return fail_exit_code(result);
}
