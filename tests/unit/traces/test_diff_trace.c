/* test_diff_trace.c - traces written by hand: the difference found first, requests in any order, different tables of points, values in one
 * file only, and damaged files. tests/e2e/test_diff.c compares traces of runs. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "engine/traces/diff_trace.h"
#include "kernels_src/num.h"

#define ROWS 3u
static const verbatim_point POINTS[] = {{"embed", UINT32_MAX, 0, VERBATIM_POINT_F32, 2, false},
                                        {"layer 0 o_proj", 0, 4, VERBATIM_POINT_F32, 2, false},
                                        {"layer 1 o_proj", 1, 4, VERBATIM_POINT_F32, 2, false},
                                        {"head", UINT32_MAX, 4, VERBATIM_POINT_F32, 2, true}};

typedef struct made { /* a trace to write: the values of a request follow from its id */
  const char *ids[4];    /* to a null */
  uint32_t order[4];     /* of POINTS, to point_count */
  uint32_t point_count;
  uint32_t wrong_request, wrong_position, wrong_point; /* UINT32_MAX: none; otherwise the point whose first value has changed bits */
  uint32_t last_request; /* its rows are one fewer; UINT32_MAX: none */
  uint32_t token_request; /* its token at position 1 is another; UINT32_MAX: none */
  uint32_t gap_request;   /* its last row is one position further; UINT32_MAX: none */
  uint8_t numerics;
  bool values;
} made;

static const made SOUND = {.ids = {"a", "b", "a"}, .order = {0, 1, 2, 3}, .point_count = 4, .wrong_request = UINT32_MAX,
                           .last_request = UINT32_MAX, .token_request = UINT32_MAX, .gap_request = UINT32_MAX, .numerics = 1};
static char paths[2][64];

/* The numbers of a point, by its place in POINTS. */
static void numbers_of(const made *m, uint32_t request, uint32_t position, uint32_t point, uint32_t out[2]) {
  uint32_t number = 0;
  for (uint32_t i = 0; i < request; i++) number += strcmp(m->ids[i], m->ids[request]) == 0; /* among equal ids */
  uint32_t seed = ((uint32_t)m->ids[request][0] << 8) + number;
  for (uint32_t i = 0; i < 2; i++) out[i] = (uint32_t)num_digest_word(seed, position * 64 + point * 8 + i) & 0x3fffffffu;
  if (m->wrong_request == request && m->wrong_position == position && m->wrong_point == point) out[1]++;
}

static void write_trace(const char *path, const made *m) {
  verbatim_point points[4];
  trace_writer *writer;
  trace_head head = {.numerics_id = {m->numerics}, .point_count = m->point_count, .points = points};
  for (uint32_t i = 0; i < m->point_count; i++) points[i] = POINTS[m->order[i]];
  assert_int_equal(trace_writer_open(&writer, path, &head), OK);
  for (uint32_t r = 0; r < 4 && m->ids[r]; r++) {
    trace_writer_add(writer, &(trace_record){.kind = TRACE_REQUEST, .id = m->ids[r], .prompt_count = 2});
    for (uint32_t p = 0; p < ROWS - (m->last_request == r); p++) {
      uint64_t digests[4];
      uint32_t numbers[4][2];
      for (uint32_t k = 0; k < m->point_count; k++) {
        numbers_of(m, r, p, m->order[k], numbers[k]);
        digests[k] = num_digest_word(0, numbers[k][0]) + num_digest_word(1, numbers[k][1]);
        if (m->values)
          trace_writer_add(writer, &(trace_record){.kind = TRACE_VALUES, .position = p, .point = k, .values = numbers[k],
                                                   .value_bytes = sizeof numbers[k]});
      }
      int32_t token = (int32_t)p + (m->token_request == r && p == 1);
      uint32_t position = p + (m->gap_request == r && p + 1 == ROWS);
      trace_writer_add(writer, &(trace_record){.kind = TRACE_ROW, .position = position, .token = token, .digests = digests});
    }
  }
  assert_int_equal(trace_writer_close(writer), OK);
}

static diff_trace compare(const made *a, const made *b) {
  diff_trace d;
  write_trace(paths[0], a);
  write_trace(paths[1], b);
  assert_int_equal(diff_trace_compare(&d, paths[0], paths[1], NULL, NULL), OK);
  return d;
}

static void equal_traces(void **state) {
  (void)state;
  made a = SOUND, b = SOUND;
  b.values = true; /* values in one file only are not compared */
  diff_trace d = compare(&a, &b);
  assert_true(!d.differs && d.first.kind == 0 && d.rows == 3 * ROWS && d.points_compared == 4 && d.same_numerics);
  diff_trace_close(&d);
}

/* Every place of every request and, with several wrong ones, the first by position. */
static void first_is_by_position_then_point(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 3 * ROWS * 4; i++) {
    made a = SOUND, b = SOUND;
    b.wrong_request = i / 12, b.wrong_position = i / 4 % 3, b.wrong_point = i % 4;
    a.values = b.values = i % 2;
    diff_trace d = compare(&a, &b);
    const diff_trace_first *f = &d.first;
    uint32_t numbers[2];
    numbers_of(&a, b.wrong_request, b.wrong_position, b.wrong_point, numbers);
    assert_true(d.differs && f->kind == DIFF_TRACE_POINT && f->request == b.wrong_request && f->position == b.wrong_position);
    assert_true(f->rows_same == b.wrong_position && f->points_same == b.wrong_point && f->same_question);
    assert_string_equal(f->point.name, POINTS[b.wrong_point].name);
    assert_int_equal(diff_requests_differ(&d.requests[0]), 1);
    assert_true(f->has_values[0] == a.values && f->has_values[1] == a.values);
    if (a.values) assert_true(f->values.index == 1 && f->values.a == numbers[1] && f->values.b == numbers[1] + 1);
    if (a.values) assert_int_equal(f->values.differ_count, 1);
    diff_trace_close(&d);
  }
}

static void rows_and_tokens(void **state) {
  (void)state;
  made a = SOUND, b = SOUND;
  b.last_request = 1;
  diff_trace d = compare(&a, &b);
  assert_true(d.first.kind == DIFF_TRACE_ENDS && d.first.request == 1 && d.first.position == 2);
  assert_true(d.first.has_row[0] && !d.first.has_row[1]);
  diff_trace_close(&d);
  a.token_request = 1; /* comes before */
  d = compare(&a, &b);
  assert_true(d.first.kind == DIFF_TRACE_TOKEN && d.first.position == 1 && d.first.token[0] == 2 && d.first.token[1] == 1);
  diff_trace_close(&d);
  b.last_request = UINT32_MAX; /* alone */
  d = compare(&a, &b);
  assert_true(d.differs && d.first.kind == DIFF_TRACE_TOKEN && d.first.position == 1);
  assert_true(diff_requests_differ(&d.requests[0]) == 1 && diff_requests_differ(&d.requests[1]) == 1);
  diff_trace_close(&d);
  a.token_request = UINT32_MAX;
  b.gap_request = 0; /* the same rows but for a position */
  d = compare(&a, &b);
  assert_true(d.first.kind == DIFF_TRACE_ENDS && d.first.request == 0 && d.first.position == 2 && d.first.rows_same == 2);
  diff_trace_close(&d);
}

static void requests_in_any_order(void **state) {
  (void)state;
  made a = SOUND, b = SOUND;
  memcpy(b.ids, (const char *[4]){"b", "a", "C", "a"}, sizeof b.ids);
  diff_trace d = compare(&a, &b);
  assert_true(d.differs && d.first.kind == 0 && diff_requests_alone(&d.requests[0]) == 0 && diff_requests_alone(&d.requests[1]) == 1);
  diff_trace_close(&d);
  b.wrong_request = 3, b.wrong_position = 2, b.wrong_point = 1; /* the second of two "a" */
  a.values = b.values = true;
  d = compare(&a, &b);
  assert_true(d.first.kind == DIFF_TRACE_POINT && d.first.request == 2 && d.first.position == 2 && d.first.values.differ_count == 1);
  diff_trace_close(&d);
}

/* Another order of points, and fewer of them: points of the same name, type and size are compared. */
static void other_tables(void **state) {
  (void)state;
  made a = SOUND, b = SOUND;
  memcpy(b.order, (const uint32_t[4]){3, 0, 2}, sizeof b.order);
  b.point_count = 3;
  diff_trace d = compare(&a, &b);
  assert_true(d.differs && d.first.kind == 0 && d.points_compared == 3 && d.points_alone[0] == 1 && d.points_alone[1] == 0);
  assert_string_equal(d.alone_name[0], "layer 0 o_proj");
  diff_trace_close(&d);
  a.values = b.values = true;
  b.wrong_request = 1, b.wrong_position = 1, b.wrong_point = 2;
  d = compare(&a, &b);
  assert_true(d.first.kind == DIFF_TRACE_POINT && d.first.values.index == 1 && d.first.values.differ_count == 1);
  assert_string_equal(d.first.point.name, "layer 1 o_proj");
  diff_trace_close(&d);
  a = b = SOUND;
  a.order[2] = 1; /* one occurs twice, and has one counterpart */
  d = compare(&a, &b);
  assert_true(d.first.kind == 0 && d.points_compared == 3 && d.points_alone[0] == 1 && d.points_alone[1] == 1);
  diff_trace_close(&d);
}

static void heads(void **state) {
  (void)state;
  made a = SOUND, b = SOUND;
  b.numerics = 2;
  diff_trace d = compare(&a, &b);
  assert_true(d.differs && !d.same_numerics && d.same_weights && d.same_config && d.first.kind == 0);
  diff_trace_close(&d);
}

static void damaged_files(void **state) {
  (void)state;
  diff_trace d;
  write_trace(paths[0], &SOUND);
  write_trace(paths[1], &SOUND);
  assert_int_equal(truncate(paths[1], 100), 0);
  for (int i = 0; i < 2; i++) {
    fail_clear();
    assert_int_equal(diff_trace_compare(&d, paths[i], paths[!i], NULL, NULL), ERR_FORMAT);
    assert_non_null(strstr(fail_text(), paths[1]));
    diff_trace_close(&d);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_traces), cmocka_unit_test(first_is_by_position_then_point),
                                     cmocka_unit_test(rows_and_tokens), cmocka_unit_test(requests_in_any_order),
                                     cmocka_unit_test(other_tables), cmocka_unit_test(heads), cmocka_unit_test(damaged_files)};
  for (int i = 0; i < 2; i++) snprintf(paths[i], sizeof paths[i], "/tmp/verbatim-diff-%ld-%d", (long)getpid(), i);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 0; i < 2; i++) unlink(paths[i]);
  return failed;
}
