/* test_library.c - products computed by cuBLASLt instead of our gemm kernel: the same receipt, or a refusal at start-up.
 *
 * Probes the shipped model's plan on this GPU, plans again with the profile, and runs the same requests under both plans. Controls: a
 * profile of another library version is refused, and so is a library that gets one word of a product wrong, because the bits differ. Pins
 * of a shipped profile are dropped instead if the library has another version or is missing, and their bits are checked as well. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/base/base.h"
#include "engine/gpu/gemm_lt.h"
#include "planner/planner.h"
#include "tests/e2e/e2e.h"

#define FILE_BYTES_MAX (16u << 20)

enum { PLAIN, PINNED, WRONG, OPTIONAL, STALE, FILES };
static char program[E2E_PATH_MAX], folder[256], plans[FILES][512], profiles[FILES][512], receipt[512];

static char *arg(const char *text) { return (char *)(uintptr_t)text; }

static int call(char *const argv[], char *output, size_t bytes) {
  int code = e2e_command(argv, output, bytes);
  print_message("    verbatim %s: exit code %d\n", argv[1], code);
  return code;
}

/* With a profile, or without one if null. */
static int make_plan(const char *profile, const char *plan) {
  char output[8192];
  return call((char *[]){program, arg("plan"), arg("tests/tiny"), arg("--config"), arg("tests/tiny/deploy.yaml"), arg("-o"), arg(plan),
                         arg("--force"), profile ? arg("--profile") : NULL, arg(profile), NULL}, output, sizeof output);
}

/* Prompt steps of up to 512 rows and decode steps of up to 64. */
static int run(const char *plan, char *output, size_t bytes) {
  return call((char *[]){program, arg("run"), arg(plan), arg("tests/tiny"), arg("--jsonl"), arg("tests/tiny/items.jsonl"),
                         arg("--max-tokens"), arg("96"), arg("--output"), arg("jsonl"), arg("--device"), arg("gpu"), arg("--receipt"),
                         receipt, arg("--quiet"), NULL}, output, bytes);
}

static char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  char *text = calloc(1, FILE_BYTES_MAX);
  assert_non_null(text);
  const size_t bytes = fread(text, 1, FILE_BYTES_MAX - 1, file);
  assert_true(bytes > 0 && bytes < FILE_BYTES_MAX - 1); /* the whole file */
  fclose(file);
  return text;
}

static void write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

/* The probe chooses by time; this test uses every certified entry, fast or not. */
static void use_all(char *profile) {
  for (char *at; (at = strstr(profile, "\"use\": false"));) memcpy(at, "\"use\": true ", 12);
}

/* As if the profile were shipped with the program. */
static void make_shipped_plan(const char *profile, const char *path) {
  char *texts[] = {read_file("tests/tiny/config.json"), read_file("tests/tiny/deploy.yaml"), read_file(profile)};
  const planner_input input = {.config = {texts[0], strlen(texts[0])}, .deploy = {texts[1], strlen(texts[1])},
                               .profile = {texts[2], strlen(texts[2])}, .shipped = "test.json"};
  void *plan = NULL;
  size_t bytes = 0;
  assert_int_equal(planner_make(&input, &plan, &bytes), OK);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(plan, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
  free(plan);
  for (size_t i = 0; i < ARRAY_LEN(texts); i++) free(texts[i]);
}

static void pinned_products_give_the_same_receipt(void **state) {
  (void)state;
  static char output[1 << 20];
  assert_int_equal(make_plan(NULL, plans[PLAIN]), 0);
  assert_int_equal(run(plans[PLAIN], output, sizeof output), 0);
  char *expected = read_file(receipt);
  assert_int_equal(call((char *[]){program, arg("probe"), plans[PLAIN], arg("--offered"), arg("-o"), profiles[PINNED], NULL}, output,
                        sizeof output), 0);
  char *profile = read_file(profiles[PINNED]);
  use_all(profile);
  write_file(profiles[PINNED], profile);
  assert_int_equal(make_plan(profiles[PINNED], plans[PINNED]), 0);
  assert_int_equal(call((char *[]){program, arg("show"), plans[PINNED], NULL}, output, sizeof output), 0);
  assert_null(strstr(output, " 0 library pins"));
  assert_int_equal(run(plans[PINNED], output, sizeof output), 0);
  char *found = read_file(receipt);
  assert_string_equal(e2e_without_machine(expected), e2e_without_machine(found));
  free(profile);
  free(expected);
  free(found);
}

static void another_library_version_is_refused(void **state) {
  (void)state;
  static char output[65536];
  static const char key[] = "\"library_version\": ";
  char *profile = read_file(profiles[PINNED]), *at = strstr(profile, key);
  assert_non_null(at);
  at[strlen(key)] = at[strlen(key)] == '9' ? '8' : '9';
  write_file(profiles[WRONG], profile);
  free(profile);
  assert_int_equal(make_plan(profiles[WRONG], plans[WRONG]), 0); /* the planner cannot know this */
  assert_int_equal(run(plans[WRONG], output, sizeof output), fail_exit_code(ERR_DEVICE));
  assert_non_null(strstr(output, "cuBLASLt version"));
}

static void shipped_pins_of_another_version_are_left_out(void **state) {
  (void)state;
  static char output[1 << 20];
  make_shipped_plan(profiles[WRONG], plans[STALE]);
  assert_int_equal(run(plans[PLAIN], output, sizeof output), 0);
  char *expected = read_file(receipt);
  assert_int_equal(run(plans[STALE], output, sizeof output), 0);
  char *found = read_file(receipt);
  assert_string_equal(e2e_without_machine(expected), e2e_without_machine(found));
  free(expected);
  free(found);
}

/* === A library with a wrong result ========================================================================================== */

static gpu *device;
static bool errs, is_absent;

status __real_gemm_lt_open(gpu *on, const dynlib_search *search, gemm_lt **out);
status __real_gemm_lt_run(gemm_lt *self, gemm_lt_op *op, gpu_stream *stream, uint32_t rows, uint64_t x, uint64_t w, uint64_t y,
                          uint64_t workspace);
status __wrap_gemm_lt_open(gpu *on, const dynlib_search *search, gemm_lt **out);
status __wrap_gemm_lt_run(gemm_lt *self, gemm_lt_op *op, gpu_stream *stream, uint32_t rows, uint64_t x, uint64_t w, uint64_t y,
                          uint64_t workspace);

status __wrap_gemm_lt_open(gpu *on, const dynlib_search *search, gemm_lt **out) {
  device = on;
  if (is_absent) return FAIL(ERR_DEVICE, "cuBLASLt not found");
  return __real_gemm_lt_open(on, search, out);
}

status __wrap_gemm_lt_run(gemm_lt *self, gemm_lt_op *op, gpu_stream *stream, uint32_t rows, uint64_t x, uint64_t w, uint64_t y,
                          uint64_t workspace) {
  status result = __real_gemm_lt_run(self, op, stream, rows, x, w, y, workspace);
  if (result == OK && errs) gpu_fill32(device, stream, y + 4, 0x3f800001u, 1);
  return result;
}

static void wrong_bits_are_refused(void **state) {
  (void)state;
  const verbatim_config config = {.plan_path = plans[PINNED], .model_dir = "tests/tiny", .device = 0};
  verbatim *engine = NULL;
  assert_int_equal(verbatim_open(&engine, &config), OK);
  verbatim_close(engine);
  errs = true;
  int result = verbatim_open(&engine, &config);
  errs = false;
  assert_int_equal(result, ERR_MISMATCH);
  assert_non_null(strstr(verbatim_error(), "does not give the bits of our gemm"));
}

static verbatim *open_plan(const char *path, int *result) {
  const verbatim_config config = {.plan_path = path, .model_dir = "tests/tiny", .device = 0};
  verbatim *engine = NULL;
  *result = verbatim_open(&engine, &config);
  return engine;
}

static void shipped_pins_need_no_library(void **state) {
  (void)state;
  int result;
  make_shipped_plan(profiles[PINNED], plans[OPTIONAL]);
  verbatim *engine = open_plan(plans[OPTIONAL], &result);
  assert_int_equal(result, OK);
  assert_true(verbatim_describe(engine).cublaslt_version > 0);
  assert_null(strstr(verbatim_describe(engine).note, "by our kernel"));
  verbatim_close(engine);
  engine = open_plan(plans[STALE], &result);
  assert_int_equal(result, OK);
  assert_non_null(strstr(verbatim_describe(engine).note, "cuBLASLt version"));
  verbatim_close(engine);
  errs = true;
  open_plan(plans[OPTIONAL], &result);
  errs = false;
  assert_int_equal(result, ERR_MISMATCH);
  is_absent = true;
  engine = open_plan(plans[OPTIONAL], &result);
  assert_int_equal(result, OK);
  assert_true(verbatim_describe(engine).cublaslt_version == 0);
  assert_non_null(strstr(verbatim_describe(engine).note, "cuBLASLt not found"));
  verbatim_close(engine);
  open_plan(plans[PINNED], &result);
  is_absent = false;
  assert_int_equal(result, ERR_DEVICE);
}

int main(int argc, char **argv) {
  (void)argc;
  e2e_begin(3, (char *[]){argv[0], arg("--device"), arg("gpu"), NULL});
  e2e_binary("verbatim", program);
  snprintf(folder, sizeof folder, "/tmp/verbatim-library-%ld", (long)getpid());
  snprintf(receipt, sizeof receipt, "%s.receipt", folder);
  for (int i = 0; i < FILES; i++) {
    snprintf(plans[i], sizeof plans[i], "%s-%d.plan", folder, i);
    snprintf(profiles[i], sizeof profiles[i], "%s-%d.json", folder, i);
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(pinned_products_give_the_same_receipt),
                                     cmocka_unit_test(another_library_version_is_refused),
                                     cmocka_unit_test(shipped_pins_of_another_version_are_left_out),
                                     cmocka_unit_test(wrong_bits_are_refused),
                                     cmocka_unit_test(shipped_pins_need_no_library)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 0; i < FILES; i++) unlink(plans[i]), unlink(profiles[i]);
  unlink(receipt);
  return failed;
}
