/* test_fail.c - the recorded error of a thread: the first cause is kept, its text is bounded, threads are separate, an error can be handed
 * to another thread; also exit codes, and assertions that stop the process. */
#include "tests/unit/unit.h"
#include "engine/base/base.h"
#include <pthread.h>
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

/* Fails with a text of its own, whatever its creator has recorded, and hands the error over. cmocka's assertions work only on the main
 * thread. */
static void *fail_elsewhere(void *argument) {
  fail_cause *cause = argument;
  bool clear_before = fail_text()[0] == 0;
  if (FAIL(ERR_DEVICE, "of the worker%s", clear_before ? "" : ", who found another's") != ERR_DEVICE) return cause;
  fail_take(cause);
  return fail_text()[0] ? cause : NULL; /* taken: nothing is left */
}

static void run_worker(fail_cause *cause) {
  pthread_t worker;
  void *left = NULL;
  assert_int_equal(pthread_create(&worker, NULL, fail_elsewhere, cause), 0);
  assert_int_equal(pthread_join(worker, &left), 0);
  assert_null(left);
  assert_int_equal(cause->code, ERR_DEVICE);
  assert_string_equal(cause->text, "of the worker"); /* and none of the creator's error */
  assert_non_null(strstr(cause->where, "test_fail.c:"));
}

static void threads_do_not_mix(void **state) {
  (void)state;
  fail_cause cause;
  assert_int_equal(open_nothing(), ERR_IO);
  run_worker(&cause);
  assert_string_equal(fail_text(), "expected a file, found 7; hint: give one");
}

static void a_cause_is_handed_over(void **state) {
  (void)state;
  fail_cause cause, none = {.code = OK};
  run_worker(&cause);
  assert_int_equal(fail_give(&none), OK);
  assert_string_equal(fail_text(), "");
  assert_int_equal(fail_give(&cause), ERR_DEVICE);
  assert_string_equal(fail_text(), "of the worker");
  assert_string_equal(fail_where(), cause.where);
  assert_int_equal(FAIL(ERR_IO, "a later consequence"), ERR_IO);
  assert_string_equal(fail_text(), "of the worker");
}

static void an_earlier_cause_is_kept_by_give(void **state) {
  (void)state;
  fail_cause cause;
  run_worker(&cause);
  assert_int_equal(open_nothing(), ERR_IO);
  assert_int_equal(fail_give(&cause), ERR_DEVICE);
  assert_string_equal(fail_text(), "expected a file, found 7; hint: give one");
}

static void a_file_is_named_once(void **state) {
  (void)state;
  fail_prefix("a.plan"); /* nothing was recorded */
  assert_string_equal(fail_text(), "");
  assert_int_equal(open_nothing(), ERR_IO);
  fail_prefix("a.plan");
  assert_string_equal(fail_text(), "a.plan: expected a file, found 7; hint: give one");
  fail_prefix("a.plan");
  assert_string_equal(fail_text(), "a.plan: expected a file, found 7; hint: give one");
  fail_prefix("file"); /* a word of the text is not the name of a file */
  assert_string_equal(fail_text(), "file: a.plan: expected a file, found 7; hint: give one");
  fail_drop_hint();
  fail_drop_hint();
  assert_string_equal(fail_text(), "file: a.plan: expected a file, found 7");
  assert_non_null(strstr(fail_where(), "test_fail.c:"));
  assert_int_equal(FAIL(ERR_LIMIT, "a later consequence"), ERR_LIMIT);
  assert_string_equal(fail_text(), "file: a.plan: expected a file, found 7");
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
    cmocka_unit_test_setup(threads_do_not_mix, clear),        cmocka_unit_test_setup(a_cause_is_handed_over, clear),
    cmocka_unit_test_setup(an_earlier_cause_is_kept_by_give, clear), cmocka_unit_test_setup(a_file_is_named_once, clear),
    cmocka_unit_test_setup(assertion_stops_the_process, clear),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
