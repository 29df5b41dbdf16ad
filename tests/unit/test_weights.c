/* test_weights.c - tensors into REGION_WEIGHTS on the CPU: copies, slices, batches, transposes; what does not match is refused; the digest
 * depends on what is used and on nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/weights.h"

#define ROWS 12u
#define COLS 70u /* beyond the transpose's tile */
#define DATA_BYTES (2u * ROWS * COLS + 4u * COLS + 8u)

static const char STRINGS[] = "matrix\0vector\0other"; /* at 0, 7, 14 */
enum { MATRIX = 0, VECTOR = 7, OTHER = 14 };

typedef struct fixture {
  uint8_t file[8 + 1024 + DATA_BYTES];
  size_t bytes;
  const uint8_t *matrix, *vector;
  safetensors *set;
  uint8_t memory[65536];
} fixture;

/* matrix BF16 [ROWS][COLS], vector F32 [COLS], extra I64 [1] */
static void make(fixture *f, const char *matrix_shape, uint8_t salt) {
  char header[1024];
  int length = snprintf(header, sizeof header,
                        "{\"matrix\":{\"dtype\":\"BF16\",\"shape\":%s,\"data_offsets\":[0,%u]},\"vector\":{\"dtype\":\"F32\","
                        "\"shape\":[%u],\"data_offsets\":[%u,%u]},\"extra\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[%u,%u]}}",
                        matrix_shape, 2 * ROWS * COLS, COLS, 2 * ROWS * COLS, 2 * ROWS * COLS + 4 * COLS,
                        2 * ROWS * COLS + 4 * COLS, DATA_BYTES);
  memset(f, 0, sizeof *f);
  for (int i = 0; i < 8; i++) f->file[i] = (uint8_t)((uint64_t)length >> (8 * i));
  memcpy(f->file + 8, header, (size_t)length);
  f->matrix = f->file + 8 + length;
  f->vector = f->matrix + 2 * ROWS * COLS;
  for (uint32_t i = 0; i < DATA_BYTES; i++) f->file[8 + length + (int)i] = (uint8_t)(i * 7 + i / 256 + (i < DATA_BYTES - 8 ? salt : 0));
  f->bytes = 8 + (size_t)length + DATA_BYTES;
  fail_clear();
  if (safetensors_view(&f->set, f->file, f->bytes) != OK) fail_msg("%s", fail_text());
}

static status load(fixture *f, const plan_tensor *tensors, uint32_t count, weights_report *report) {
  plan p = {.tensors = tensors, .tensor_count = count, .strings = STRINGS};
  weights_target target = {.address = (uint64_t)(uintptr_t)f->memory};
  fail_clear();
  return weights_load(&p, f->set, &target, NULL, NULL, report);
}

static plan_tensor whole_matrix(uint64_t offset) {
  return (plan_tensor){.name = MATRIX, .dtype = DTYPE_BF16, .rows = ROWS, .cols = COLS, .row_count = ROWS, .batches = 1, .offset = offset};
}

static void copies(void **state) {
  (void)state;
  static fixture f;
  make(&f, "[12,70]", 0);
  plan_tensor t[3] = {whole_matrix(0), whole_matrix(4096), whole_matrix(32768)};
  t[1].row0 = 1, t[1].row_count = 2, t[1].row_step = 4, t[1].batches = 3; /* rows 1,2, 5,6, 9,10 */
  t[2] = (plan_tensor){.name = VECTOR, .dtype = DTYPE_F32, .rows = 1, .cols = COLS, .row_count = 1, .batches = 1, .offset = 32768};
  weights_report report;
  assert_int_equal(load(&f, t, 3, &report), OK);
  assert_memory_equal(f.memory, f.matrix, 2 * ROWS * COLS);
  for (uint32_t batch = 0; batch < 3; batch++)
    assert_memory_equal(f.memory + 4096 + batch * 4 * COLS, f.matrix + (1 + 4 * batch) * 2 * COLS, 4 * COLS);
  assert_int_equal(f.memory[4096 + 12 * COLS], 0); /* nothing beyond the six rows */
  assert_memory_equal(f.memory + 32768, f.vector, 4 * COLS);
  assert_int_equal(report.source_count, 2);
  assert_int_equal(report.unused_count, 1);
  assert_string_equal(report.unused_first, "extra");
  safetensors_close(f.set);
}

static void transposes(void **state) {
  (void)state;
  static fixture f;
  make(&f, "[12,70]", 0);
  plan_tensor t = whole_matrix(0);
  t.row0 = 2, t.row_count = 3, t.row_step = 5, t.batches = 2, t.transform = TRANSFORM_TRANSPOSE;
  weights_report report;
  assert_int_equal(load(&f, &t, 1, &report), OK);
  for (uint32_t batch = 0; batch < 2; batch++)
    for (uint32_t col = 0; col < COLS; col++)
      for (uint32_t row = 0; row < 3; row++)
        assert_memory_equal(f.memory + 2 * ((batch * COLS + col) * 3 + row), f.matrix + 2 * ((2 + 5 * batch + row) * COLS + col), 2);
  safetensors_close(f.set);
}

static digest digest_for(uint8_t salt, bool twice) {
  static fixture f;
  make(&f, "[12,70]", salt);
  plan_tensor t[2] = {whole_matrix(0), whole_matrix(8192)};
  weights_report report;
  assert_int_equal(load(&f, t, twice ? 2 : 1, &report), OK);
  safetensors_close(f.set);
  return report.digest;
}

static void digests(void **state) {
  (void)state;
  digest a = digest_for(0, false), same = digest_for(0, true), other = digest_for(1, false);
  assert_memory_equal(a.bytes, same.bytes, DIGEST_BYTES);
  assert_memory_not_equal(a.bytes, other.bytes, DIGEST_BYTES);
}

static void expect_refused(const char *shape, plan_tensor t, const char *word) {
  static fixture f;
  weights_report report;
  make(&f, shape, 0);
  status result = load(&f, &t, 1, &report);
  if (result != ERR_FORMAT || !strstr(fail_text(), word)) fail_msg("expected \"%s\" in \"%s\"", word, fail_text());
  safetensors_close(f.set);
}

static void mismatches(void **state) {
  (void)state;
  plan_tensor f32 = whole_matrix(0), missing = whole_matrix(0);
  f32.dtype = DTYPE_F32;
  missing.name = OTHER;
  expect_refused("[70,12]", whole_matrix(0), "expected BF16 [12][70], found BF16 [70][12]");
  expect_refused("[840]", whole_matrix(0), "found BF16 [840]");
  expect_refused("[12,70,1]", whole_matrix(0), "found BF16 [12][70][1]");
  expect_refused("[12,70]", f32, "expected F32");
  expect_refused("[12,70]", missing, "lack 1 tensors of the plan: other");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(copies), cmocka_unit_test(transposes), cmocka_unit_test(digests),
                                     cmocka_unit_test(mismatches)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
