/* test_control.c - the controls of test_invariance.c: with a planted fault its comparisons must fail.
 *
 * Linked with --wrap for two ops, which are sound during start-up, because the self-check would find the fault. The faulty combination
 * ignores the groups: level 1 runs over all chunks. An engine makes that kind of error if the order of a sum depends on how the work was
 * split: tokens computed in small steps (split, combined) and in large ones (whole) then differ in their last bits, which the text does not
 * show. The faulty qkv_rope leaves out a row, so that the attention reads the row that the page's previous owner left: poison turns it into
 * NaN; without poison the fault would stay unnoticed. */
#include "tests/unit/unit.h"
#include <string.h>
#include "e2e.h"
#include "engine/cpu/cpu.h"

static const char DEPLOY[] =
  "max-num-seqs: 8\nmax-num-batched-tokens: 256\nmax-model-len: 512\nkv_pages: 64\nchunk_tokens: 64\ngroup_chunks: 2\n"
  "ladder: [1, 2, 4, 8]\n";

void __real_cpu_mla_fold(const mla_fold_args *args, cpu_pool *pool);
void __wrap_cpu_mla_fold(const mla_fold_args *args, cpu_pool *pool);
void __real_cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool);
void __wrap_cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool);
int __real_verbatim_open(verbatim **engine, const verbatim_config *config);
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config);
static bool faulty, forgetful, starting;

static const void *last_layer; /* its KV rows: the highest address used */

int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config) {
  starting = true;
  int result = __real_verbatim_open(engine, config);
  starting = false;
  return result;
}

/* Faulty: if there are several tokens, the last one's row is not written, in the last layer. */
void __wrap_cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool) {
  qkv_rope_args changed = *args;
  step_in fewer = *args->step;
  if (!starting && args->kv > last_layer) last_layer = args->kv;
  if (forgetful && fewer.token_count > 1 && args->kv == last_layer) fewer.token_count--;
  changed.step = &fewer;
  __real_cpu_qkv_rope(&changed, pool);
}

void __wrap_cpu_mla_fold(const mla_fold_args *args, cpu_pool *pool) {
  mla_fold_args changed = *args;
  if (faulty && !starting) changed.group_chunks = 1u << 20;
  __real_cpu_mla_fold(&changed, pool);
}

static bool cuts_agree(void) {
  e2e_model model;
  e2e_requests requests;
  e2e_make_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  e2e_requests_make(&requests, 3, 384, 400, 8); /* the second one has 400 tokens: four groups */
  verbatim_config config = {.plan_path = model.plan_path, .model_dir = model.model_dir, .device = VERBATIM_DEVICE_CPU, .threads = 2};
  digest large = e2e_run(&config, &requests, 1, 1);
  config.chunk_tokens = 1; /* every prompt token in a step of its own */
  digest small = e2e_run(&config, &requests, 1, 1);
  e2e_requests_free(&requests);
  e2e_remove(&model);
  return memcmp(large.bytes, small.bytes, DIGEST_BYTES) == 0;
}

static void sound_fold_agrees(void **state) {
  (void)state;
  faulty = false;
  assert_true(cuts_agree());
}

static void faulty_fold_is_caught(void **state) {
  (void)state;
  faulty = true;
  assert_false(cuts_agree());
}

/* Two requests, one after the other on the same pages; the second with the faulty or the sound qkv_rope. Returns how it ended, its chain in
 * `chain`. */
static enum verbatim_finish reuse_pages(bool poison, bool fault, uint8_t chain[16]) {
  e2e_model model;
  e2e_requests requests;
  verbatim *engine;
  last_layer = NULL;
  e2e_make_model(&model, "tests/oracle/small-v3.json",
                 "max-num-seqs: 1\nmax-num-batched-tokens: 64\nmax-model-len: 128\nkv_pages: 2\nchunk_tokens: 64\n"
                 "group_chunks: 2\nladder: [1]\n");
  e2e_requests_make(&requests, 4, 384, 60, 8); /* all but the first have 60 tokens */
  verbatim_config config = {.plan_path = model.plan_path, .model_dir = model.model_dir, .device = VERBATIM_DEVICE_CPU, .threads = 2,
                            .poison = poison};
  assert_int_equal(verbatim_open(&engine, &config), 0);
  for (uint32_t i = 1; i < 3; i++) {
    bool busy = true;
    forgetful = fault && i == 2;
    requests.list[i].max_tokens = 5;
    assert_int_equal(verbatim_submit(engine, &requests.list[i]), 0);
    while (busy) assert_int_equal(verbatim_poll(engine, &busy), 0);
  }
  forgetful = false;
  verbatim_close(engine);
  enum verbatim_finish finish = requests.list[2].finish;
  memcpy(chain, requests.list[2].chain, 16);
  e2e_requests_free(&requests);
  e2e_remove(&model);
  return finish;
}

static void stale_rows_are_caught_by_poison(void **state) {
  (void)state;
  uint8_t plain[16], poisoned[16], wrong[16];
  assert_int_not_equal(reuse_pages(false, false, plain), VERBATIM_NONFINITE);
  assert_int_not_equal(reuse_pages(true, false, poisoned), VERBATIM_NONFINITE);
  assert_memory_equal(plain, poisoned, sizeof plain);
  assert_int_not_equal(reuse_pages(false, true, wrong), VERBATIM_NONFINITE); /* finite, and wrong */
  assert_memory_not_equal(plain, wrong, sizeof plain);
  assert_int_equal(reuse_pages(true, true, wrong), VERBATIM_NONFINITE);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sound_fold_agrees), cmocka_unit_test(faulty_fold_is_caught),
                                     cmocka_unit_test(stale_rows_are_caught_by_poison)};
  e2e_begin(argc, argv);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
