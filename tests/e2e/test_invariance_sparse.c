/* test_invariance_sparse.c - the same requests under every way of cutting the work: one receipt. Lists of tokens; e4m3 weights and cache.
 *
 * As test_invariance.c, and apart from it because these two models take the CPU longer than all of those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "cuts.h"

static void v32(void **state) { (void)state, cuts_check("tests/oracle/small-v32.json", CUTS_64); }
static void v32_e4m3(void **state) { (void)state, cuts_check("tests/oracle/small-v32-fp8.json", CUTS_128); }

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(v32), cmocka_unit_test(v32_e4m3)};
  cuts_begin(argc, argv);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  cuts_end();
  return failed;
}
