/* test_guarantee.c - what requests require of a plan: promised axes pass; excluded, unknown and missing names are refused, each with a
 * message that helps. The plans come from the planner; one has an edited table. */
#include "tests/unit/unit.h"
#include "engine/plan/guarantee.h"
#include "engine/verbatim.h"
#include "tests/unit/planner/planner_fixture.h"

static fixture_bytes file;
static plan view;

static int open_plan(void **state) {
  (void)state;
  file = fixture_plan("tests/data/configs/tiny.json", NULL, NULL);
  return (int)plan_view(file.bytes, file.count, &view);
}

static int close_plan(void **state) {
  (void)state;
  free(file.bytes);
  return 0;
}

static status require(const char *const *names, uint32_t count) {
  fail_clear();
  return guarantee_check(&view, names, count);
}

static void promised_axes_pass(void **state) {
  (void)state;
  const char *names[VERBATIM_REQUIRED_MAX] = {"batch"};
  uint32_t count = 0;
  for (uint32_t i = 0; i < view.guarantee_count; i++)
    if (view.guarantees[i].status != GUARANTEE_EXCLUDED) names[count++] = plan_string(&view, view.guarantees[i].axis);
  assert_int_equal(count, 17);
  assert_int_equal(require(names, count), OK);
  for (uint32_t i = 0; i < VERBATIM_REQUIRED_MAX; i++) names[i] = "prefix_hit"; /* repeated names, and the largest number of names */
  assert_int_equal(require(names, VERBATIM_REQUIRED_MAX), OK);
  assert_int_equal(require(NULL, 0), OK);
}

static void excluded_axes_are_refused_with_the_reason(void **state) {
  (void)state;
  fixture_expect(require((const char *const[]){"batch", "fast_prefill"}, 2), ERR_UNSUPPORTED,
                 "request: it requires the axis fast_prefill, which this plan excludes: the unabsorbed form");
  fixture_expect(require((const char *const[]){"fast_prefill"}, 1), ERR_UNSUPPORTED, "parity is strict");
}

/* The plan decides: the same name is refused once its row excludes it. */
static void the_plans_own_table_decides(void **state) {
  (void)state;
  plan_guarantee edited[32];
  plan other = view;
  assert_true(view.guarantee_count <= ARRAY_LEN(edited));
  memcpy(edited, view.guarantees, view.guarantee_count * sizeof *edited);
  other.guarantees = edited;
  const char *const names[] = {"batch"};
  fail_clear();
  assert_int_equal(guarantee_check(&other, names, 1), OK);
  edited[0].status = GUARANTEE_EXCLUDED;
  fixture_expect(guarantee_check(&other, names, 1), ERR_UNSUPPORTED, "batch");
  fail_clear();
  other.guarantee_count = 0;
  fixture_expect(guarantee_check(&other, names, 1), ERR_USAGE, "\"batch\"");
}

static void wrong_lists_are_refused(void **state) {
  (void)state;
  const char *many[VERBATIM_REQUIRED_MAX + 1];
  for (size_t i = 0; i < ARRAY_LEN(many); i++) many[i] = "batch";
  fixture_expect(require(many, ARRAY_LEN(many)), ERR_LIMIT, "33 required axes, at most 32");
  fixture_expect(require((const char *const[]){"Batch"}, 1), ERR_USAGE, "\"Batch\", expected one of the plan's: batch, slot, padding");
  fixture_expect(require((const char *const[]){"nonsense"}, 1), ERR_USAGE, ", fast_prefill, speculation"); /* all fit */
  fixture_expect(require((const char *const[]){""}, 1), ERR_USAGE, "\"\"");
  fixture_expect(require((const char *const[]){"batch", NULL}, 2), ERR_USAGE, "required axis 1: expected a name");
  fixture_expect(require(NULL, 3), ERR_USAGE, "no list");
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(promised_axes_pass), cmocka_unit_test(excluded_axes_are_refused_with_the_reason),
    cmocka_unit_test(the_plans_own_table_decides), cmocka_unit_test(wrong_lists_are_refused)};
  return cmocka_run_group_tests(tests, open_plan, close_plan);
}
