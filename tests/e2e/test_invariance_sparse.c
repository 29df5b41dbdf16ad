/* test_invariance_sparse.c - the same requests under every way of splitting the work: one receipt. Sparse attention; e4m3 weights and
 * cache.
 *
 * Like test_invariance.c, and separate because the first two models take the CPU longer than all of those. */
#include "tests/unit/unit.h"
#include "cuts.h"

static void v32(void **state) { (void)state, cuts_check("tests/oracle/small-v32.json", CUTS_64); }
static void v32_e4m3(void **state) { (void)state, cuts_check("tests/oracle/small-v32-fp8.json", CUTS_128); }

/* 72 heads with index lists of 128: where they are one chunk a GPU has a form of attention for up to 4, 8, 16 and 33 tokens and one for
 * more; where they are two chunks it has another one. The CPU has one form for all, which the models above have tested. */
static void check_many_heads(cuts_plans plans) {
  if (e2e_device() == VERBATIM_DEVICE_CPU) {
    print_message("SKIPPED: many heads over lists have forms of their own on a GPU alone; hint: --device gpu\n");
    skip();
  }
  cuts_check("tests/oracle/small-v32-heads-fp8.json", plans);
}
static void many_heads(void **state) { (void)state, check_many_heads(CUTS_128); }
static void many_heads_bf16_rows(void **state) { (void)state, check_many_heads(CUTS_128_BF16); }
static void many_heads_two_chunks(void **state) { (void)state, check_many_heads(CUTS_64); }

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(v32), cmocka_unit_test(v32_e4m3), cmocka_unit_test(many_heads),
                                     cmocka_unit_test(many_heads_bf16_rows), cmocka_unit_test(many_heads_two_chunks)};
  cuts_begin(argc, argv);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  cuts_end();
  return failed;
}
