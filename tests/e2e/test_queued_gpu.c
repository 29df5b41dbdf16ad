/* test_queued_gpu.c - the GPU backend without a GPU: requests get the same results from queued streams as from the CPU.
 *
 * The device is queued_gpu.h's, whose kernels are the CPU's functions. The test checks the order that the backend gives to copies, launches
 * and waits, including graphs: on a late device everything happens as late as that order allows. */
#include "tests/unit/unit.h"
#include <string.h>
#include "e2e.h"
#include "engine/base/base.h"
#include "tests/e2e/queued_gpu.h"

#define DEPLOY \
  "max-num-seqs: 6\nmax-num-batched-tokens: 96\nmax-model-len: 192\nkv_pages: 12\nchunk_tokens: 64\ngroup_chunks: 2\nladder: [1, 2, 4, 6]\n"

enum { MODELS = 3, REQUESTS = 10, PROMPT_MAX = 110, TOKENS_MAX = 12 };

static const struct { const char *config, *deploy; } CASES[MODELS] = {
    {"tests/oracle/small-v3.json", DEPLOY},
    {"tests/oracle/small-v3.json", DEPLOY "parity: fast-prefill\n"},
    {"tests/oracle/small-v32.json", DEPLOY},
};

static e2e_model models[MODELS];
static e2e_requests requests;
static digest alone[MODELS]; /* the results of the CPU */

static verbatim_config on_cpu(uint32_t model) {
  verbatim_config config = e2e_config(&models[model]);
  config.device = VERBATIM_DEVICE_CPU;
  return config;
}

static verbatim_config on_gpu(uint32_t model) {
  verbatim_config config = e2e_config(&models[model]);
  config.device = 0;
  return config;
}

static int make_models(void **state) {
  (void)state;
  e2e_requests_make(&requests, REQUESTS, 384, PROMPT_MAX, TOKENS_MAX);
  for (uint32_t i = 0; i < MODELS; i++) {
    e2e_make_model(&models[i], CASES[i].config, CASES[i].deploy);
    verbatim_config config = on_cpu(i);
    alone[i] = e2e_run(&config, &requests, 0, REQUESTS);
  }
  return 0;
}

static int remove_models(void **state) {
  (void)state;
  for (uint32_t i = 0; i < MODELS; i++) e2e_remove(&models[i]);
  e2e_requests_free(&requests);
  return 0;
}

static void reset(bool eager) { queued = (queued_gpu){.eager = eager}; }

static void a_late_gpu_gives_what_the_cpu_gives(void **state) {
  (void)state;
  reset(false);
  for (uint32_t i = 0; i < MODELS; i++) {
    verbatim_config config = on_gpu(i);
    assert_true(e2e_is_same(&config, &requests, alone[i]));
    assert_true(queued.captures == 8 && queued.graph_launches > 0);
  }
}

static void an_eager_gpu_does_too(void **state) {
  (void)state;
  reset(true);
  verbatim_config config = on_gpu(0);
  assert_true(e2e_is_same(&config, &requests, alone[0]));
}

static void so_does_one_without_graphs(void **state) {
  (void)state;
  reset(false);
  for (uint32_t i = 0; i < MODELS; i++) {
    verbatim_config config = on_gpu(i);
    config.direct = true, config.poison = true, config.timed = true;
    assert_true(e2e_is_same(&config, &requests, alone[i]));
    assert_true(queued.captures == 0 && queued.graph_launches == 0 && queued.branch_launches > 0);
  }
}

/* Control: without the waits between its streams a late device gives other results. */
static void streams_must_wait(void **state) {
  (void)state;
  static const int waiting[] = {QUEUED_OPS, QUEUED_RESULTS};
  for (size_t i = 0; i < ARRAY_LEN(waiting); i++) {
    reset(false);
    queued.ignores_waits[waiting[i]] = true;
    verbatim_config config = on_gpu(0);
    const digest found = e2e_run(&config, &requests, 0, REQUESTS);
    assert_memory_not_equal(found.bytes, alone[0].bytes, DIGEST_BYTES);
  }
}

int main(int argc, char **argv) {
  e2e_begin(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_late_gpu_gives_what_the_cpu_gives),
      cmocka_unit_test(an_eager_gpu_does_too),
      cmocka_unit_test(so_does_one_without_graphs),
      cmocka_unit_test(streams_must_wait),
  };
  return cmocka_run_group_tests(tests, make_models, remove_models);
}
