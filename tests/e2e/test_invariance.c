/* test_invariance.c - the same requests under every way of splitting the work: one receipt. Dense attention in bf16.
 *
 * The ways are in cuts.h; this file has the structures of models, instruction sets, and a request alone. Sparse attention and e4m3:
 * test_invariance_sparse.c. */
#include "tests/unit/unit.h"
#include <string.h>
#include "cuts.h"
#include "engine/base/base.h"
#include "tests/kernel/force_isa.h"

static void v3(void **state) { (void)state, cuts_check("tests/oracle/small-v3.json", CUTS_64); }
static void v2lite(void **state) { (void)state, cuts_check("tests/oracle/small-v2lite.json", CUTS_128); }
static void minicpm3(void **state) { (void)state, cuts_check("tests/oracle/small-minicpm3.json", CUTS_64); }
static void mistral4(void **state) { (void)state, cuts_check("tests/oracle/small-mistral4.json", CUTS_64); }

static void instruction_sets(void **state) {
  (void)state;
  static const char *const sets[] = FORCE_ISA_NAMES;
  e2e_model model;
  e2e_make_model(&model, "tests/oracle/small-v3.json", CUTS_64.plan);
  verbatim_config c = e2e_config(&model);
  c.device = VERBATIM_DEVICE_CPU;
  digest best = e2e_run(&c, &cuts_requests, 0, cuts_requests.count);
  for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
    if (force_isa(sets[i]) != OK) {
      print_message("SKIPPED: this processor lacks %s\n", sets[i]);
      fail_clear();
      continue;
    }
    cuts_expect(sets[i], &c, best);
  }
  assert_int_equal(force_isa(NULL), OK);
  e2e_remove(&model);
}

/* A request's outputs do not depend on other requests: here it runs in the middle of all others, and then alone in a new engine. */
static void one_of_many(void **state) {
  (void)state;
  e2e_model model;
  e2e_make_model(&model, "tests/oracle/small-v3.json", CUTS_64.plan);
  verbatim_config c = e2e_config(&model);
  (void)e2e_run(&c, &cuts_requests, 0, cuts_requests.count);
  for (uint32_t i = 0; i < cuts_requests.count; i += cuts_requests.count / 5) {
    uint8_t chain[16];
    memcpy(chain, cuts_requests.list[i].chain, sizeof chain);
    (void)e2e_run(&c, &cuts_requests, i, 1);
    assert_memory_equal(chain, cuts_requests.list[i].chain, sizeof chain);
  }
  e2e_remove(&model);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(v3), cmocka_unit_test(v2lite), cmocka_unit_test(minicpm3),
                                     cmocka_unit_test(mistral4), cmocka_unit_test(instruction_sets), cmocka_unit_test(one_of_many)};
  cuts_begin(argc, argv);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  cuts_end();
  return failed;
}
