/* test_invariance.c - the same requests under every way of cutting the work: one receipt.
 *
 * Batches, slots, chunk cuts, pages, poison, direct launches or ladder sizes, other limits of the plan, threads, instruction sets,
 * the models' structures. test_control.c shows that a planted fault breaks exactly this comparison. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "e2e.h"
#include "engine/base.h"
#include "tests/kernel/force_isa.h"

#ifdef __SANITIZE_ADDRESS__
#define REQUESTS 14u /* instrumented code is slow */
#else
#define REQUESTS 66u
#endif
#define PROMPT_MAX 150u
#define LONG 1u /* the request with a prompt of LONG_TOKENS */
#define LONG_TOKENS 420u
#define TOKENS_MAX 12u

/* Two plans of one numerics, with small chunks and groups: the long context is of seven chunks in four groups, or of four in two. */
#define LIMITS "max-num-seqs: 64\nmax-num-batched-tokens: 256\nmax-model-len: 448\nkv_pages: 200\nladder: [1, 2, 4, 8, 16, 32, 64]\n"
#define OTHER_LIMITS "max-num-seqs: 5\nmax-num-batched-tokens: 33\nmax-model-len: 512\nkv_pages: 16\nladder: [3]\n"
#define CHUNKS_64 "chunk_tokens: 64\ngroup_chunks: 2\n"
#define CHUNKS_128 "chunk_tokens: 128\ngroup_chunks: 2\n" /* steps end within them */
typedef struct deploy { const char *plan, *other; } deploy;
static const deploy DEPLOY_64 = {LIMITS CHUNKS_64, OTHER_LIMITS CHUNKS_64}, DEPLOY_128 = {LIMITS CHUNKS_128, OTHER_LIMITS CHUNKS_128};

static e2e_model model;
static e2e_requests requests;

static void expect(const char *what, const verbatim_config *config, digest expected) {
  char expected_text[DIGEST_TEXT_BYTES], found_text[DIGEST_TEXT_BYTES];
  digest found = e2e_run(config, &requests, 0, requests.count);
  digest_text(expected.bytes, expected_text);
  digest_text(found.bytes, found_text);
  if (strcmp(expected_text, found_text) != 0) print_error("%s: expected receipt %s, found %s\n", what, expected_text, found_text);
  assert_string_equal(found_text, expected_text);
}

static void check_all(const char *config_path, deploy d) {
  char other_plan[E2E_PATH_MAX];
  e2e_make_model(&model, config_path, d.plan);
  e2e_make_plan(&model, "other", d.other, other_plan);
  verbatim_config c = e2e_config(&model);
  c.max_active = 1;
  digest alone = e2e_run(&c, &requests, 0, requests.count);
  const uint32_t batches[] = {2, 7, 64}, chunks[] = {1, 7, 64, 65};
  for (size_t i = 0; i < ARRAY_LEN(batches); i++) c = e2e_config(&model), c.max_active = batches[i], expect("batch", &c, alone);
  for (size_t i = 0; i < ARRAY_LEN(chunks); i++) c = e2e_config(&model), c.chunk_tokens = chunks[i], expect("chunk", &c, alone);
  c = e2e_config(&model), c.slot_offset = 61, expect("slots", &c, alone);
  c = e2e_config(&model), c.shuffle_pages = 99, c.slot_offset = 5, expect("pages", &c, alone);
  c = e2e_config(&model), c.poison = true, c.shuffle_pages = 7, expect("poison", &c, alone);
  c = e2e_config(&model), c.direct = true, expect("direct", &c, alone);
  c = e2e_config(&model), c.direct = c.poison = true, c.max_active = 9, c.chunk_tokens = 13, expect("direct, poison", &c, alone);
  c = e2e_config(&model), c.logits = true, expect("logits kept", &c, alone);
  c = e2e_config(&model), c.plan_path = other_plan, expect("other limits", &c, alone);
  c = e2e_config(&model), c.plan_path = other_plan, c.poison = true, c.shuffle_pages = 3, expect("few pages, poison", &c, alone);
  c = e2e_config(&model), c.threads = 1, expect("one thread", &c, alone);
  c = e2e_config(&model), c.threads = 3, expect("three threads", &c, alone);
  c = e2e_config(&model), c.device = VERBATIM_DEVICE_CPU, expect("CPU", &c, alone);
  e2e_remove(&model);
}

static void check_instruction_sets(const char *config_path) {
  static const char *const sets[] = {"avx512", "avx2", "portable"};
  e2e_make_model(&model, config_path, DEPLOY_64.plan);
  verbatim_config c = e2e_config(&model);
  c.device = VERBATIM_DEVICE_CPU;
  digest best = e2e_run(&c, &requests, 0, requests.count);
  for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
    if (force_isa(sets[i]) != OK) {
      print_message("SKIPPED: this processor lacks %s\n", sets[i]);
      fail_clear();
      continue;
    }
    expect(sets[i], &c, best);
  }
  assert_int_equal(force_isa(NULL), OK);
  e2e_remove(&model);
}

static void v3(void **state) { (void)state, check_all("tests/oracle/small-v3.json", DEPLOY_64); }
static void v2lite(void **state) { (void)state, check_all("tests/oracle/small-v2lite.json", DEPLOY_128); }
static void minicpm3(void **state) { (void)state, check_all("tests/oracle/small-minicpm3.json", DEPLOY_64); }
static void mistral4(void **state) { (void)state, check_all("tests/oracle/small-mistral4.json", DEPLOY_64); }
static void v32(void **state) { (void)state, check_all("tests/oracle/small-v32.json", DEPLOY_64); }
static void v32_e4m3(void **state) { (void)state, check_all("tests/oracle/small-v32-fp8.json", DEPLOY_128); }
static void instruction_sets(void **state) { (void)state, check_instruction_sets("tests/oracle/small-v3.json"); }

/* A request's outputs do not change when others come and go: here it is run in the midst of all, and then by itself in a new engine. */
static void one_of_many(void **state) {
  (void)state;
  e2e_make_model(&model, "tests/oracle/small-v3.json", DEPLOY_64.plan);
  verbatim_config c = e2e_config(&model);
  (void)e2e_run(&c, &requests, 0, requests.count);
  for (uint32_t i = 0; i < requests.count; i += requests.count / 5) {
    uint8_t chain[16];
    memcpy(chain, requests.list[i].chain, sizeof chain);
    (void)e2e_run(&c, &requests, i, 1);
    assert_memory_equal(chain, requests.list[i].chain, sizeof chain);
  }
  e2e_remove(&model);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(v3), cmocka_unit_test(v2lite), cmocka_unit_test(minicpm3),
                                     cmocka_unit_test(mistral4), cmocka_unit_test(v32), cmocka_unit_test(v32_e4m3),
                                     cmocka_unit_test(instruction_sets), cmocka_unit_test(one_of_many)};
  e2e_begin(argc, argv);
  e2e_requests_make_long(&requests, REQUESTS, 384, LONG, LONG_TOKENS, PROMPT_MAX, TOKENS_MAX);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_requests_free(&requests);
  return failed;
}
