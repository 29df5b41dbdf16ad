/* test_fail.c - the one recorded error: first cause kept, text bounded, exit codes, assertions that stop the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "engine/base.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int clear(void **state) {
  (void)state;
  fail_clear();
  return 0;
}

static status open_nothing(void) { return FAIL(ERR_IO, "expected a file, found %d; hint: %s", 7, "give one"); }

static status pass_on(bool *reached_end) {
  TRY(open_nothing());
  *reached_end = true;
  return OK;
}

static void nothing_recorded_at_first(void **state) {
  (void)state;
  assert_string_equal(fail_text(), "");
  assert_string_equal(fail_where(), "");
}

static void first_cause_is_kept(void **state) {
  (void)state;
  assert_int_equal(open_nothing(), ERR_IO);
  assert_int_equal(FAIL(ERR_FORMAT, "a later consequence"), ERR_FORMAT);
  assert_string_equal(fail_text(), "expected a file, found 7; hint: give one");
  assert_non_null(strstr(fail_where(), "test_fail.c:"));
}

static void clear_makes_room(void **state) {
  (void)state;
  assert_int_equal(open_nothing(), ERR_IO);
  fail_clear();
  assert_string_equal(fail_text(), "");
  assert_int_equal(FAIL(ERR_LIMIT, "second"), ERR_LIMIT);
  assert_string_equal(fail_text(), "second");
}

static void try_returns_at_once(void **state) {
  (void)state;
  bool reached_end = false;
  assert_int_equal(pass_on(&reached_end), ERR_IO);
  assert_false(reached_end);
}

static void long_text_is_cut(void **state) {
  (void)state;
  char long_text[2 * FAIL_TEXT_MAX];
  memset(long_text, 'x', sizeof long_text - 1);
  long_text[sizeof long_text - 1] = 0;
  assert_int_equal(FAIL(ERR_USAGE, "%s", long_text), ERR_USAGE);
  assert_int_equal(strlen(fail_text()), FAIL_TEXT_MAX - 1);
}

static void exit_codes_are_distinct(void **state) {
  (void)state;
  const status all[] = {OK, ERR_USAGE, ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED, ERR_LIMIT, ERR_DEVICE, ERR_MISMATCH};
  const int expected[] = {0, 2, 3, 4, 5, 6, 7, 8};
  for (size_t i = 0; i < ARRAY_LEN(all); i++) assert_int_equal(fail_exit_code(all[i]), expected[i]);
}

static int status_of_child(bool condition) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    signal(SIGABRT, SIG_DFL);
    ASSERT(condition);
    _exit(0);
  }
  int child_status = 0;
  assert_int_equal(waitpid(child, &child_status, 0), child);
  return child_status;
}

static void assertion_stops_the_process(void **state) {
  (void)state;
  int broken = status_of_child(false), held = status_of_child(true);
  assert_true(WIFSIGNALED(broken) && WTERMSIG(broken) == SIGABRT);
  assert_true(WIFEXITED(held) && WEXITSTATUS(held) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(nothing_recorded_at_first, clear), cmocka_unit_test_setup(first_cause_is_kept, clear),
    cmocka_unit_test_setup(clear_makes_room, clear),          cmocka_unit_test_setup(try_returns_at_once, clear),
    cmocka_unit_test_setup(long_text_is_cut, clear),          cmocka_unit_test_setup(exit_codes_are_distinct, clear),
    cmocka_unit_test_setup(assertion_stops_the_process, clear),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
