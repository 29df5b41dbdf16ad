/* test_control.c - the control of test_invariance.c: with a planted fault its comparison must fail.
 *
 * Linked with --wrap=cpu_mla_fold. The faulty fold forgets the groups: level 1 runs over all chunks. That is the kind of error an
 * engine has when the order of a sum depends on how the work was cut: tokens computed in small steps (split, folded) and in
 * large ones (whole) then differ in their last bits, which nobody sees in the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "e2e.h"
#include "engine/cpu/cpu.h"

static const char DEPLOY[] =
  "max_seqs: 8\nmax_batch_tokens: 256\nmax_len: 512\nkv_pages: 64\nchunk_tokens: 64\ngroup_chunks: 2\nladder: [1, 2, 4, 8]\n";

void __real_cpu_mla_fold(const mla_fold_args *args, cpu_pool *pool);
void __wrap_cpu_mla_fold(const mla_fold_args *args, cpu_pool *pool);
static bool faulty;

void __wrap_cpu_mla_fold(const mla_fold_args *args, cpu_pool *pool) {
  mla_fold_args changed = *args;
  if (faulty) changed.group_chunks = 1u << 20;
  __real_cpu_mla_fold(&changed, pool);
}

static bool cuts_agree(void) {
  e2e_model model;
  e2e_requests requests;
  e2e_make_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  e2e_requests_make(&requests, 3, 384, 400, 8); /* the second one has 400 tokens: four groups */
  verbatim_config config = {.plan_path = model.plan_path, .model_dir = model.model_dir, .device = VERBATIM_DEVICE_CPU, .threads = 2};
  digest large = e2e_run(&config, &requests, 1, 1);
  config.chunk_tokens = 1; /* every prompt token a step of its own */
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

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sound_fold_agrees), cmocka_unit_test(faulty_fold_is_caught)};
  e2e_begin(argc, argv);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
