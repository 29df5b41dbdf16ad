/* test_cli_trace.c - how the trace stores the engine's reports on a request: rows that the request does not use are left out, repeated rows
 * and values are not written twice, and values come before their row. tests/e2e/test_diff.c tests runs of the engine. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "engine/common/trace.h"
#include "kernels_src/num.h"

static const verbatim_point POINTS[] = {{"embed", UINT32_MAX, 0, VERBATIM_POINT_U32, 1, false}, {"lm_head", UINT32_MAX, 4,
                                        VERBATIM_POINT_U32, 1, true}};
static const verbatim_info INFO = {.point_count = 2, .points = POINTS};
static const int32_t PROMPT[] = {5, 6, 7};
static char path[64];

/* A step: the rows of both trace points, op by op, and then the digests. */
static void step(verbatim_request *request, uint32_t first, uint32_t count, uint32_t logits_from) {
  uint64_t digests[8][2];
  for (uint32_t k = 0; k < 2; k++)
    for (uint32_t p = first; p < first + count; p++) {
      uint32_t number = 100 * p + k;
      digests[p - first][k] = k == 0 || p >= logits_from ? num_digest_word(0, number) : 0;
      if (digests[p - first][k] && request->wants_values(request, p, k)) request->on_values(request, p, k, &number, sizeof number);
    }
  for (uint32_t p = first; p < first + count; p++) request->on_trace(request, p, digests[p - first]);
}

/* The kinds of the file's records, one letter each, followed by the position where the record has one. */
static void describe(char text[256]) {
  static const char kinds[] = " RVT.";
  trace_reader *reader;
  trace_record r = {0};
  size_t used = 0;
  assert_int_equal(trace_reader_open(&reader, path), OK);
  while (r.kind != TRACE_END) {
    assert_int_equal(trace_reader_next(reader, &r), OK);
    if (r.kind == TRACE_VALUES) assert_int_equal(*(const uint32_t *)r.values, 100 * r.position + r.point);
    used += (size_t)snprintf(text + used, 256 - used, "%c", kinds[r.kind]);
    if (r.kind == TRACE_VALUES || r.kind == TRACE_ROW) used += (size_t)snprintf(text + used, 256 - used, "%u", r.position);
    if (r.kind == TRACE_ROW) used += (size_t)snprintf(text + used, 256 - used, "(%d)", r.token);
  }
  trace_reader_close(reader);
}

/* A finished request of three prompt tokens and two generated tokens: the prompt took two steps, then came one decode step; the engine
 * reported more rows than that. */
static void run(enum verbatim_finish finish, uint32_t token_count, uint32_t steps, bool again, char text[256]) {
  cli_trace trace;
  cli_trace_request r = {0};
  verbatim_token tokens[] = {{.id = 8}, {.id = 9}, {.id = 10}};
  verbatim_request request = {.prompt = PROMPT, .prompt_count = 3, .tokens = tokens, .context = &r};
  cli_option table[8] = {{0}};
  memset(&trace, 0, sizeof trace);
  cli_trace_options(&trace, table, ARRAY_LEN(table));
  trace.path = path;
  assert_int_equal(table[1].take("--trace-values", "position=1-3", table[1].target), OK);
  assert_int_equal(cli_trace_check(&trace), OK);
  assert_int_equal(cli_trace_begin(&trace, &INFO), OK);
  cli_trace_watch(&trace, &r, &request);
  step(&request, 0, 2, 2);
  step(&request, 2, 1, 2);
  if (again) step(&request, 0, 3, 3);
  for (uint32_t i = 0; i < steps; i++) step(&request, 3 + i, 1, 2);
  request.finish = finish;
  request.token_count = token_count;
  assert_int_equal(cli_trace_failure(&trace), OK);
  cli_trace_add(&r, "x", &request);
  assert_int_equal(trace.bytes, 0);
  assert_int_equal(cli_trace_end(&trace), OK);
  cli_trace_close(&trace);
  describe(text);
}

static void rows_of_a_request(void **state) {
  (void)state;
  static const struct { enum verbatim_finish finish; uint32_t token_count, steps; const char *expected; } CASES[] = {
      {VERBATIM_LENGTH, 2, 1, "RT0(5)V1T1(6)V2V2T2(7)V3V3T3(8)."},
      {VERBATIM_STOP, 2, 2, "RT0(5)V1T1(6)V2V2T2(7)V3V3T3(8)."}, /* one row too many was computed */
      {VERBATIM_STOP, 1, 1, "RT0(5)V1T1(6)V2V2T2(7)."},
      {VERBATIM_NONFINITE, 1, 1, "RT0(5)V1T1(6)V2V2T2(7)V3V3T3(8)."}, /* the row that was not finite */
      {VERBATIM_NONFINITE, 0, 0, "RT0(5)V1T1(6)V2V2T2(7)."}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    for (int again = 0; again < 2; again++) {
      char text[256];
      run(CASES[i].finish, CASES[i].token_count, CASES[i].steps, again, text);
      if (strcmp(text, CASES[i].expected) != 0) fail_msg("case %zu: %s", i, text);
    }
  }
}

/* The control of repeated rows: a changed bit is reported when the request has ended, but not where NaN or Inf ended it. */
static void other_bits_are_told(void **state) {
  (void)state;
  for (int broken = 0; broken < 2; broken++) {
    static int32_t prompt[2];
    cli_trace trace = {.path = path, .memory_mib = 1, .points = POINTS, .point_count = 2};
    cli_trace_request r = {0};
    verbatim_request request = {.context = &r, .prompt = prompt, .prompt_count = 2};
    const verbatim_info info = {.points = POINTS, .point_count = 2};
    uint64_t digests[2] = {1, 2};
    assert_int_equal(cli_trace_begin(&trace, &info), OK);
    cli_trace_watch(&trace, &r, &request);
    request.on_trace(&request, 0, digests);
    request.on_trace(&request, 0, (uint64_t[2]){1, 0}); /* logits are computed once */
    assert_false(r.is_other);
    request.on_trace(&request, 0, (uint64_t[2]){1, 3});
    request.on_trace(&request, 0, (uint64_t[2]){4, 4});
    request.on_trace(&request, 1, digests);
    assert_int_equal(r.row_count, 2);
    assert_int_equal(cli_trace_failure(&trace), OK);
    request.finish = broken ? VERBATIM_NONFINITE : VERBATIM_LENGTH;
    cli_trace_add(&r, "a", &request);
    assert_int_equal(cli_trace_failure(&trace), broken ? OK : ERR_MISMATCH);
    if (!broken) assert_non_null(strstr(fail_text(), "position 0, \"lm_head\", 0000000000000002, then 0000000000000003"));
    fail_clear();
    assert_int_equal(cli_trace_end(&trace), broken ? OK : ERR_MISMATCH);
    cli_trace_close(&trace);
    fail_clear();
  }
}

static void off_is_off(void **state) {
  (void)state;
  cli_trace trace = {.path = NULL};
  cli_trace_request r = {0};
  verbatim_request request = {.context = &r};
  assert_int_equal(cli_trace_begin(&trace, &INFO), OK);
  cli_trace_watch(&trace, &r, &request);
  assert_true(!request.on_trace && !request.on_values && !request.wants_values);
  cli_trace_add(&r, "x", &request);
  assert_int_equal(cli_trace_end(&trace), OK);
  cli_trace_close(&trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_a_request), cmocka_unit_test(other_bits_are_told),
                                     cmocka_unit_test(off_is_off)};
  snprintf(path, sizeof path, "/tmp/verbatim-cli-trace-%ld", (long)getpid());
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(path);
  return failed;
}
