/* test_request.c - checks of a request, its digest, stop ids, and how results are added to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "engine/request.h"

static plan_header header;
static plan view = {.header = &header};
static const uint8_t WEIGHTS[16] = {9};
static const int32_t PROMPT[200] = {1, 2, 3};
static int32_t tokens[300];
static float logprobs[300];
static uint64_t digests[300];

static verbatim_request sound(void) {
  header.model.vocab = 100;
  header.model.eos_count = 2;
  header.model.eos[0] = 50, header.model.eos[1] = 7;
  header.limits.max_len = 256;
  header.limits.kv_pages = 3;
  return (verbatim_request){.prompt = PROMPT, .prompt_count = 3, .max_tokens = 4, .top_p = 1.0, .tokens = tokens, .logprobs = logprobs,
                            .digests = digests};
}

static void expect_refused(verbatim_request r, status expected, const char *word) {
  fail_clear();
  status found = request_check(&view, &r, false);
  if (found != expected || !strstr(fail_text(), word)) fail_msg("expected \"%s\" in \"%s\"", word, fail_text());
}

static void on_logits(verbatim_request *request, uint32_t position, const float *row) { (void)request, (void)position, (void)row; }

static void checks(void **state) {
  (void)state;
  static const int32_t bad[] = {1, 100}, negative[] = {-1};
  verbatim_request r = sound();
  assert_int_equal(request_check(&view, &r, false), OK);
  r = sound(), r.prompt_count = 0, expect_refused(r, ERR_USAGE, "empty");
  r = sound(), r.prompt = NULL, expect_refused(r, ERR_USAGE, "empty");
  r = sound(), r.max_tokens = 0, expect_refused(r, ERR_USAGE, "max_tokens");
  r = sound(), r.tokens = NULL, expect_refused(r, ERR_USAGE, "outputs");
  r = sound(), r.max_tokens = 254, expect_refused(r, ERR_LIMIT, "max_len");
  r = sound(), r.max_tokens = UINT32_MAX, expect_refused(r, ERR_LIMIT, "max_len");
  r = sound(), r.max_tokens = 191, expect_refused(r, ERR_LIMIT, "KV pages");
  r = sound(), r.max_tokens = 190, assert_int_equal(request_check(&view, &r, false), OK); /* the last token needs no place */
  r = sound(), r.prompt = bad, r.prompt_count = 2, expect_refused(r, ERR_USAGE, "prompt token 1");
  r = sound(), r.prompt = negative, r.prompt_count = 1, expect_refused(r, ERR_USAGE, "prompt token 0");
  r = sound(), r.stop_ids = bad, r.stop_count = 2, expect_refused(r, ERR_USAGE, "stop id 1");
  r = sound(), r.stop_ids = PROMPT, r.stop_count = 65, expect_refused(r, ERR_LIMIT, "stop ids");
  r = sound(), r.temperature = -1.0f, expect_refused(r, ERR_USAGE, "temperature");
  r = sound(), r.temperature = NAN, expect_refused(r, ERR_USAGE, "temperature");
  r = sound(), r.temperature = INFINITY, expect_refused(r, ERR_USAGE, "temperature");
  r = sound(), r.top_p = 0.0, expect_refused(r, ERR_USAGE, "top_p");
  r = sound(), r.top_p = 1.1, expect_refused(r, ERR_USAGE, "top_p");
  r = sound(), r.top_p = NAN, expect_refused(r, ERR_USAGE, "top_p");
  r = sound(), r.on_logits = on_logits, expect_refused(r, ERR_USAGE, "logits");
  assert_int_equal(request_check(&view, &r, true), OK);
}

static void fixed_point(void **state) {
  (void)state;
  assert_true(request_top_p_fixed(1.0) == 1ull << 32);
  assert_true(request_top_p_fixed(0.5) == 1ull << 31);
  assert_true(request_top_p_fixed(1e-30) == 1);
}

static void stop_ids(void **state) {
  (void)state;
  static const int32_t given[] = {60, 7, 3, 60};
  int32_t ids[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  verbatim_request r = sound();
  r.stop_ids = given, r.stop_count = 4;
  assert_int_equal(request_stop_ids(&view, &r, ids), 4);
  const int32_t all[] = {3, 7, 50, 60}, own[] = {3, 7, 60};
  assert_memory_equal(ids, all, sizeof all);
  r.ignore_eos = true;
  assert_int_equal(request_stop_ids(&view, &r, ids), 3);
  assert_memory_equal(ids, own, sizeof own);
}

/* Everything that is asked for is in the digest; what cannot matter (order and repeats of stop ids) is not. */
static void start_digest(void **state) {
  (void)state;
  static const int32_t other[] = {1, 2, 4}, stops_a[] = {8, 9}, stops_b[] = {9, 8, 9};
  static const uint8_t weights[16] = {8};
  verbatim_request list[10];
  for (int i = 0; i < 10; i++) list[i] = sound();
  list[1].prompt = other;
  list[2].prompt_count = 2;
  list[3].max_tokens = 5;
  list[4].temperature = 0.5f;
  list[5].top_k = 1;
  list[6].top_p = 0.9;
  list[7].seed = 1;
  list[8].stop_ids = stops_a, list[8].stop_count = 2;
  for (int i = 0; i < 10; i++) {
    request_start(&view, i == 9 ? weights : WEIGHTS, &list[i]);
    assert_memory_equal(list[i].chain, list[i].request_digest, 16);
    for (int j = 0; j < i; j++) assert_memory_not_equal(list[i].request_digest, list[j].request_digest, 16);
  }
  verbatim_request same = sound();
  same.stop_ids = stops_b, same.stop_count = 3, same.temperature = -0.0f;
  request_start(&view, WEIGHTS, &same);
  assert_memory_equal(same.request_digest, list[8].request_digest, 16);
}

static void results(void **state) {
  (void)state;
  verbatim_request r = sound();
  request_start(&view, WEIGHTS, &r);
  sample_result result = {.token = 20, .logprob = -0.25f};
  request_push(&view, &r, &result, 77);
  assert_int_equal(r.finish, VERBATIM_RUNNING);
  assert_int_equal(tokens[0], 20);
  assert_true(digests[0] == 77);
  struct { uint8_t previous[16]; uint32_t position; int32_t token; float logprob; uint32_t zero; uint64_t logits; } link = {
    .position = 3, .token = 20, .logprob = -0.25f, .logits = 77};
  memcpy(link.previous, r.request_digest, 16);
  digest expected = digest_of(&link, sizeof link);
  assert_memory_equal(r.chain, expected.bytes, 16);
  result.token = 7; /* one of the model's stop ids */
  request_push(&view, &r, &result, 78);
  assert_int_equal(r.finish, VERBATIM_STOP);
  assert_int_equal(r.token_count, 2);

  r = sound(), r.ignore_eos = true, r.max_tokens = 2;
  request_start(&view, WEIGHTS, &r);
  request_push(&view, &r, &result, 1);
  assert_int_equal(r.finish, VERBATIM_RUNNING);
  request_push(&view, &r, &result, 1);
  assert_int_equal(r.finish, VERBATIM_LENGTH);

  r = sound();
  request_start(&view, WEIGHTS, &r);
  result.nonfinite = 1;
  request_push(&view, &r, &result, 1);
  assert_int_equal(r.finish, VERBATIM_NONFINITE);
  assert_int_equal(r.token_count, 0);
}

static void sampling(void **state) {
  (void)state;
  verbatim_request r = sound();
  r.seed = 5, r.temperature = 0.5f, r.top_k = 9, r.top_p = 0.25;
  sample_param p = request_sample(&r, 2, 6);
  assert_true(p.seed == 5 && p.top_p_fixed == 1ull << 30 && p.top_k == 9 && p.position == 5 && p.sample_index == 0 && p.slot == 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(checks), cmocka_unit_test(fixed_point), cmocka_unit_test(stop_ids),
                                     cmocka_unit_test(start_digest), cmocka_unit_test(results), cmocka_unit_test(sampling)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
