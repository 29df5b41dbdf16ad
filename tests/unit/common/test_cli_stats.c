/* test_cli_stats.c - the figures of a start and a run, from invented values: the content of the JSON, and that memory is reported where it
 * is not as planned and nowhere else. */
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/common/stats.h"

#define GIB (1ull << 30)

static verbatim_info sound(void) {
  return (verbatim_info){
    .device = "NVIDIA H200", .note = "", .numerics_id = {0xc0, [15] = 0x0f}, .graph_count = 7, .device_bytes = 4 * GIB - 5,
    .pinned_bytes = 64 << 20, .host_bytes = 1000,
    .stages = {.plan = 0.25, .weights = 0.5, .total = 2, .kernels_cached = 3, .kernels_compiled = 4, .weights_threads = 15,
               .weights_bytes = 4000000000ull},
    .memory = {.planned = 4 * GIB, .reserved = 4 * GIB, .total = 100 * GIB, .free_opened = 99 * GIB, .free_ready = 93 * GIB,
               .free_now = 93 * GIB}};
}

/* What a call prints to stderr. */
static void told(void (*call)(const verbatim_info *), const verbatim_info *info, char text[4096]) {
  char path[] = "/tmp/verbatim-stats-XXXXXX";
  int file = mkstemp(path), kept = dup(STDERR_FILENO);
  assert_true(file >= 0 && kept >= 0);
  fflush(stderr);
  dup2(file, STDERR_FILENO);
  call(info);
  fflush(stderr);
  dup2(kept, STDERR_FILENO);
  ssize_t bytes = pread(file, text, 4095, 0);
  text[bytes > 0 ? bytes : 0] = 0;
  close(file);
  close(kept);
  unlink(path);
}

static void print_verbose(const verbatim_info *info) { cli_stats_print(info, true); }
static void print_short(const verbatim_info *info) { cli_stats_print(info, false); }

static void expect_told(void (*call)(const verbatim_info *), const verbatim_info *info, const char *word) {
  char text[4096];
  told(call, info, text);
  if (!strstr(text, word)) fail_msg("expected \"%s\" in \"%s\"", word, text);
}

static void memory_that_is_not_as_planned_is_told(void **state) {
  (void)state;
  char text[4096];
  verbatim_info info = sound();
  told(cli_stats_check, &info, text);
  assert_string_equal(text, "");
  info.memory.free_now -= 4096;
  expect_told(cli_stats_check, &info, "4096 bytes more in use after the run than before, expected 0");
  info = sound();
  info.memory.free_now += 4096;
  expect_told(cli_stats_check, &info, "-4096 bytes more in use");
  info = sound();
  info.memory.reserved += 2 << 20;
  expect_told(cli_stats_check, &info, "the reservation took 4297064448 bytes, expected 4294967296");
  info = (verbatim_info){.device = "CPU", .note = ""};
  told(cli_stats_check, &info, text);
  assert_string_equal(text, "");
}

static void the_start_is_told(void **state) {
  (void)state;
  char text[4096];
  verbatim_info info = sound();
  told(print_short, &info, text);
  assert_string_equal(text, "device: NVIDIA H200, ready in 2.0 s (4.00 GB of weights in 0.5 s), 7 graphs\n");
  expect_told(print_verbose, &info, "4.000 GB, 8.00 GB/s, 15 threads");
  expect_told(print_verbose, &info, "3 from the cache, 4 compiled");
  expect_told(print_verbose, &info, "4294967296 bytes planned, 4294967296 reserved, 2147483648 more for kernels, graphs and libraries, "
                                    "1073741824 for the context and other programs");
}

static json_int_t number(const json_t *root, const char *part, const char *name) {
  json_t *value = json_object_get(json_object_get(root, part), name);
  assert_true(json_is_integer(value));
  return json_integer_value(value);
}

static json_t *written(const verbatim_info *info) {
  char path[] = "/tmp/verbatim-stats-XXXXXX";
  const cli_stats_run run = {.requests = 2, .prompt_tokens = 30, .generated_tokens = 10, .seconds = 0.5};
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  assert_int_equal(cli_stats_write(path, info, &run), OK);
  json_t *root = json_load_file(path, 0, NULL);
  unlink(path);
  assert_non_null(root);
  return root;
}

static void the_json_holds_every_figure(void **state) {
  (void)state;
  verbatim_info info = sound();
  info.memory.free_now -= 1;
  json_t *root = written(&info), *memory = json_object_get(root, "memory"), *start = json_object_get(root, "start");
  assert_string_equal(json_string_value(json_object_get(root, "numerics_id")), "c000000000000000000000000000000f");
  assert_int_equal(number(memory, "gpu", "planned_bytes"), 4 * GIB);
  assert_int_equal(number(memory, "gpu", "plan_bytes"), 4 * GIB - 5);
  assert_int_equal(number(memory, "gpu", "reserved_bytes"), 4 * GIB);
  assert_int_equal(number(memory, "gpu", "driver_bytes"), 2 * GIB);
  assert_int_equal(number(memory, "gpu", "context_bytes"), GIB);
  assert_int_equal(number(memory, "gpu", "growth_bytes"), 1);
  assert_int_equal(number(root, "memory", "pinned_bytes"), 64 << 20);
  assert_int_equal(number(root, "start", "weights_bytes"), 4000000000ll);
  assert_int_equal(number(root, "start", "kernels_compiled"), 4);
  assert_true(json_real_value(json_object_get(start, "weights_gb_per_s")) == 8.0);
  assert_true(json_real_value(json_object_get(json_object_get(start, "seconds"), "plan")) == 0.25);
  assert_int_equal(json_object_size(json_object_get(start, "seconds")), 10);
  assert_int_equal(number(root, "run", "prompt_tokens"), 30);
  assert_int_equal(number(root, "run", "made_tokens"), 10);
  assert_true(json_real_value(json_object_get(json_object_get(root, "run"), "tokens_per_s")) == 80.0);
  json_decref(root);
  info = (verbatim_info){.device = "CPU", .note = ""};
  root = written(&info);
  assert_true(json_is_null(json_object_get(json_object_get(root, "memory"), "gpu")));
  json_decref(root);
}

static void a_file_that_cannot_be_written_is_an_error(void **state) {
  (void)state;
  const cli_stats_run run = {.requests = 1};
  verbatim_info info = sound();
  fail_clear();
  assert_int_equal(cli_stats_write("/nonexistent/stats.json", &info, &run), ERR_IO);
  fail_clear();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(memory_that_is_not_as_planned_is_told), cmocka_unit_test(the_start_is_told),
                                     cmocka_unit_test(the_json_holds_every_figure),
                                     cmocka_unit_test(a_file_that_cannot_be_written_is_an_error)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
