/* test_serve_metrics.c - the metrics text for Prometheus: every sample has its help and type, counts and histograms match what was counted,
 * and a label's value cannot leave its quotes. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/serve/metrics.h"

static const serve_metrics_labels PLAIN = {.model_name = "m", .numerics_id = "aa", .plan_digest = "bb", .device = "CPU",
                                           .kv_pages = 8, .ranks = 1, .started_at = 12.5};

static char *text_of(serve_metrics *metrics, const serve_metrics_labels *labels) {
  char *text = NULL;
  size_t bytes = 0;
  assert_int_equal(serve_metrics_text(metrics, labels, &text, &bytes), OK);
  assert_int_equal(strlen(text), bytes);
  return text;
}

/* The whole line is in the text. */
static void expect_line(const char *text, const char *line) {
  char wanted[512];
  snprintf(wanted, sizeof wanted, "\n%s\n", line);
  if (!strstr(text, wanted)) fail_msg("expected the line %s in\n%s", line, text);
}

static void counts_are_what_was_counted(void **state) {
  (void)state;
  serve_metrics metrics = {0};
  serve_metrics_open(&metrics);
  serve_metrics_add(&metrics, SERVE_COUNT_GENERATED_TOKENS, 5);
  serve_metrics_add(&metrics, SERVE_COUNT_GENERATED_TOKENS, 2);
  serve_metrics_set(&metrics, SERVE_GAUGE_WAITING, 3);
  serve_metrics_set(&metrics, SERVE_GAUGE_WAITING, 1);
  serve_metrics_set(&metrics, SERVE_GAUGE_BYTES, 123456789012.0);
  const enum verbatim_finish ends[] = {VERBATIM_STOP, VERBATIM_STOP_TEXT, VERBATIM_LENGTH, VERBATIM_CANCELLED, VERBATIM_DEADLINE,
                                       VERBATIM_DEADLINE, VERBATIM_NONFINITE};
  for (size_t i = 0; i < ARRAY_LEN(ends); i++) serve_metrics_finish(&metrics, ends[i]);
  serve_metrics_reply(&metrics, 200);
  serve_metrics_reply(&metrics, 429);
  serve_metrics_reply(&metrics, 429);
  serve_metrics_reply(&metrics, 599);
  serve_metrics_engine(&metrics, &(verbatim_counters){.steps = 77, .preemptions = 4, .kv_pages_used = 2, .queried_tokens = 9});
  char *text = text_of(&metrics, &PLAIN);
  static const char *const lines[] = {
    "vllm:generation_tokens_total{model_name=\"m\"} 7", "vllm:prompt_tokens_total{model_name=\"m\"} 0",
    "vllm:num_requests_waiting{model_name=\"m\"} 1", "verbatim_request_memory_bytes{model_name=\"m\"} 123456789012",
    "vllm:request_success_total{model_name=\"m\",finished_reason=\"stop\"} 2",
    "vllm:request_success_total{model_name=\"m\",finished_reason=\"length\"} 1",
    "vllm:request_success_total{model_name=\"m\",finished_reason=\"abort\"} 3",
    "vllm:request_success_total{model_name=\"m\",finished_reason=\"error\"} 1", "verbatim_requests_finished_total{finish=\"deadline\"} 2",
    "verbatim_requests_finished_total{finish=\"stop_text\"} 1", "verbatim_http_replies_total{code=\"200\"} 1",
    "verbatim_http_replies_total{code=\"429\"} 2", "verbatim_http_replies_total{code=\"599\"} 1", "verbatim_steps_total 77",
    "verbatim_preemptions_total 4", "vllm:num_preemptions_total{model_name=\"m\"} 4",
    "vllm:prefix_cache_queries_total{model_name=\"m\"} 9", "vllm:prefix_cache_hits_total{model_name=\"m\"} 0",
    "vllm:kv_cache_usage_perc{model_name=\"m\"} 0.25", "process_start_time_seconds 12.500",
    "verbatim_build_info{version=\"" VERBATIM_VERSION "\",numerics_id=\"aa\",plan_digest=\"bb\",device=\"CPU\",model_name=\"m\"} 1"};
  for (size_t i = 0; i < ARRAY_LEN(lines); i++) expect_line(text, lines[i]);
  assert_null(strstr(text, "code=\"500\""));
  free(text);
  serve_metrics_close(&metrics);
}

static void every_gpu_has_its_memory(void **state) {
  (void)state;
  static const verbatim_gpu GPUS[] = {{.index = 3, .total = 150, .reserved = 140}, {.index = 4, .total = 151, .reserved = 141}};
  static const char *const LINES[] = {
    "verbatim_ranks 2", "verbatim_gpu_memory_bytes{gpu=\"3\"} 150", "verbatim_gpu_memory_bytes{gpu=\"4\"} 151",
    "verbatim_gpu_memory_reserved_bytes{gpu=\"3\"} 140", "verbatim_gpu_memory_reserved_bytes{gpu=\"4\"} 141"};
  serve_metrics metrics = {0};
  serve_metrics_labels labels = PLAIN;
  serve_metrics_open(&metrics);
  char *text = text_of(&metrics, &labels);
  expect_line(text, "verbatim_ranks 1");
  assert_null(strstr(text, "gpu_memory")); /* on the CPU */
  free(text);
  labels.ranks = 2;
  labels.gpus = GPUS;
  text = text_of(&metrics, &labels);
  for (size_t i = 0; i < ARRAY_LEN(LINES); i++) expect_line(text, LINES[i]);
  free(text);
  serve_metrics_close(&metrics);
}

static void buckets_are_cumulative_and_hold_their_bounds(void **state) {
  (void)state;
  serve_metrics metrics = {0};
  serve_metrics_open(&metrics);
  serve_metrics_measure(&metrics, SERVE_TIME_FIRST_TOKEN, 0.25); /* at most 0.25 */
  serve_metrics_measure(&metrics, SERVE_TIME_FIRST_TOKEN, 0.26);
  serve_metrics_measure(&metrics, SERVE_TIME_FIRST_TOKEN, 0);
  serve_metrics_measure(&metrics, SERVE_TIME_FIRST_TOKEN, 1e6);
  serve_metrics_size(&metrics, SERVE_SIZE_PROMPT, 5);
  serve_metrics_size(&metrics, SERVE_SIZE_PROMPT, 1048576);
  char *text = text_of(&metrics, &PLAIN);
#define NAME "vllm:time_to_first_token_seconds"
  static const char *const lines[] = {
    NAME "_bucket{model_name=\"m\",le=\"0.001\"} 1", NAME "_bucket{model_name=\"m\",le=\"0.1\"} 1",
    NAME "_bucket{model_name=\"m\",le=\"0.25\"} 2", NAME "_bucket{model_name=\"m\",le=\"0.5\"} 3",
    NAME "_bucket{model_name=\"m\",le=\"2560\"} 3", NAME "_bucket{model_name=\"m\",le=\"+Inf\"} 4",
    NAME "_sum{model_name=\"m\"} 1000000.51", NAME "_count{model_name=\"m\"} 4",
    "vllm:e2e_request_latency_seconds_count{model_name=\"m\"} 0", "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"2\"} 0",
    "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"5\"} 1", "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"2e+06\"} 2",
    "vllm:request_prompt_tokens_sum{model_name=\"m\"} 1048581"};
  for (size_t i = 0; i < ARRAY_LEN(lines); i++) expect_line(text, lines[i]);
  free(text);
  serve_metrics_close(&metrics);
}

/* A line is "# HELP name text", "# TYPE name type", or a sample whose name, without the suffixes of a histogram, is that of the TYPE line
 * before it. */
static void every_sample_has_its_help_and_type(void **state) {
  (void)state;
  serve_metrics metrics = {0};
  serve_metrics_open(&metrics);
  serve_metrics_reply(&metrics, 200);
  serve_metrics_labels labels = PLAIN;
  labels.gpus = &(verbatim_gpu){.total = 2, .reserved = 1};
  char *text = text_of(&metrics, &labels), helped[128] = "", typed[128] = "", type[32] = "", *kept = NULL;
  uint32_t samples = 0;
  for (char *line = strtok_r(text, "\n", &kept); line; line = strtok_r(NULL, "\n", &kept)) {
    if (sscanf(line, "# HELP %127s", helped) == 1) continue;
    if (sscanf(line, "# TYPE %127s %31s", typed, type) == 2) {
      assert_string_equal(typed, helped);
      continue;
    }
    size_t bytes = strlen(typed);
    assert_true(strncmp(line, typed, bytes) == 0);
    const char *rest = line + bytes;
    if (strcmp(type, "histogram") == 0)
      assert_true(strncmp(rest, "_bucket{", 8) == 0 || strncmp(rest, "_sum{", 5) == 0 || strncmp(rest, "_count{", 7) == 0);
    else assert_true(*rest == '{' || *rest == ' ');
    const char *value = strrchr(line, ' ');
    char *end = NULL;
    assert_true(value && strtod(value + 1, &end) >= 0 && *end == 0);
    samples++;
  }
  assert_true(samples > 80);
  free(text);
  serve_metrics_close(&metrics);
}

static void a_label_cannot_leave_its_quotes(void **state) {
  (void)state;
  serve_metrics metrics = {0};
  serve_metrics_labels labels = PLAIN;
  labels.model_name = "a\"} 1\nb\\c";
  serve_metrics_open(&metrics);
  char *text = text_of(&metrics, &labels);
  expect_line(text, "verbatim_connections{model_name=\"a\\\"} 1\\nb\\\\c\"} 0");
  free(text);
  serve_metrics_close(&metrics);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(counts_are_what_was_counted), cmocka_unit_test(every_gpu_has_its_memory),
    cmocka_unit_test(buckets_are_cumulative_and_hold_their_bounds),
    cmocka_unit_test(every_sample_has_its_help_and_type), cmocka_unit_test(a_label_cannot_leave_its_quotes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
