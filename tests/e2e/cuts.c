/* cuts.c - see cuts.h. */
#include "cuts.h"
#include "tests/unit/unit.h"
#include <string.h>
#include "engine/base/base.h"

#ifdef __SANITIZE_ADDRESS__
#define REQUESTS 8u /* instrumented code is slow */
#else
#define REQUESTS 40u
#endif
#define REQUESTS_OF_GPU 66u /* more than a step takes */
#define PROMPT_MAX 150u
#define LONG 1u /* the request with a prompt of LONG_TOKENS */
#define LONG_TOKENS 420u
#define TOKENS_MAX 12u

#define LIMITS "max-num-seqs: 64\nmax-num-batched-tokens: 256\nmax-model-len: 448\nkv_pages: 200\nladder: [1, 2, 4, 8, 16, 32, 64]\n"
#define OTHER_LIMITS "max-num-seqs: 5\nmax-num-batched-tokens: 33\nmax-model-len: 512\nkv_pages: 16\nladder: [3]\n"
#define CHUNKS_64 "chunk_tokens: 64\ngroup_chunks: 2\n"
#define CHUNKS_128 "chunk_tokens: 128\ngroup_chunks: 2\n"
#define BF16 "kv-cache-dtype: bfloat16\n"
const cuts_plans CUTS_64 = {LIMITS CHUNKS_64, OTHER_LIMITS CHUNKS_64}, CUTS_128 = {LIMITS CHUNKS_128, OTHER_LIMITS CHUNKS_128};
const cuts_plans CUTS_GROUPED = {LIMITS "chunk_tokens: 64\n", OTHER_LIMITS "chunk_tokens: 64\n"};
const cuts_plans CUTS_128_BF16 = {LIMITS CHUNKS_128 BF16, OTHER_LIMITS CHUNKS_128 BF16};

e2e_requests cuts_requests;

void cuts_begin(int argc, char **argv) {
  e2e_begin(argc, argv);
  const uint32_t count = e2e_device() == VERBATIM_DEVICE_CPU ? REQUESTS : REQUESTS_OF_GPU;
  e2e_requests_make_long(&cuts_requests, count, 384, LONG, LONG_TOKENS, PROMPT_MAX, TOKENS_MAX);
}

void cuts_end(void) { e2e_requests_free(&cuts_requests); }

void cuts_expect(const char *what, const verbatim_config *config, digest expected) {
  char expected_text[DIGEST_TEXT_BYTES], found_text[DIGEST_TEXT_BYTES];
  digest found = e2e_run(config, &cuts_requests, 0, cuts_requests.count);
  digest_text(expected.bytes, expected_text);
  digest_text(found.bytes, found_text);
  if (strcmp(expected_text, found_text) != 0) print_error("%s: expected receipt %s, found %s\n", what, expected_text, found_text);
  assert_string_equal(found_text, expected_text);
}

void cuts_check(const char *config_path, cuts_plans plans) {
  e2e_model model;
  char other_plan[E2E_PATH_MAX];
  e2e_make_model(&model, config_path, plans.plan);
  e2e_make_plan(&model, "other", plans.other, other_plan);
  verbatim_config c = e2e_config(&model);
  c.max_active = 1;
  digest alone = e2e_run(&c, &cuts_requests, 0, cuts_requests.count);
  c = e2e_config(&model), cuts_expect("as planned", &c, alone);
  c = e2e_config(&model), c.chunk_tokens = 1, c.logits = true, cuts_expect("chunks of 1, logits kept", &c, alone);
  c = e2e_config(&model), c.chunk_tokens = 7, c.max_active = 7, c.slot_offset = 61;
  cuts_expect("chunks of 7, batches of 7 in late slots", &c, alone);
  c = e2e_config(&model), c.chunk_tokens = 64, c.shuffle_pages = 99, c.slot_offset = 5, c.threads = 3;
  cuts_expect("chunks of 64, other pages and slots, three threads", &c, alone);
  c = e2e_config(&model), c.chunk_tokens = 65, c.max_active = 2, c.threads = 1, c.poison = true, c.shuffle_pages = 7;
  cuts_expect("chunks of 65, batches of 2, one thread, poison", &c, alone);
  c = e2e_config(&model), c.direct = c.poison = true, c.max_active = 9, c.chunk_tokens = 13, cuts_expect("direct, poison", &c, alone);
  c = e2e_config(&model), c.plan_path = other_plan, c.poison = true, c.shuffle_pages = 3;
  cuts_expect("other limits, few pages, poison", &c, alone);
  if (e2e_device() != VERBATIM_DEVICE_CPU) {
    c = e2e_config(&model), c.direct = true, cuts_expect("direct", &c, alone);
    c = e2e_config(&model), c.device = VERBATIM_DEVICE_CPU, cuts_expect("CPU", &c, alone);
  }
  e2e_remove(&model);
}
