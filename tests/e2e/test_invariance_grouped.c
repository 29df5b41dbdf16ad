/* test_invariance_grouped.c - the same requests under every way of splitting the work: one receipt. Grouped-query attention.
 *
 * The ways are in cuts.h; this file has the structures of models. Read next: test_invariance.c. */
#include "tests/unit/unit.h"
#include "cuts.h"

static void llama(void **state) { (void)state, cuts_check("tests/oracle/small-llama-bias.json", CUTS_GROUPED); }
static void qwen2(void **state) { (void)state, cuts_check("tests/oracle/small-qwen2.json", CUTS_GROUPED); }
static void glm4_moe(void **state) { (void)state, cuts_check("tests/oracle/small-glm4-moe.json", CUTS_GROUPED); }
static void olmo2(void **state) { (void)state, cuts_check("tests/oracle/small-olmo2.json", CUTS_GROUPED); }

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(llama), cmocka_unit_test(qwen2), cmocka_unit_test(glm4_moe), cmocka_unit_test(olmo2)};
  cuts_begin(argc, argv);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  cuts_end();
  return failed;
}
