/* test_engines.c - several engines in one process: alternating on one thread, concurrently on two, and one engine on changing threads,
 * whatever floating-point state the caller's thread has.
 *
 * The library has no state except its engines and an error text per thread. So every request ends in the chain that it has when its engine
 * is alone, and no thread reads another's error. */
#include "tests/unit/unit.h"
#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/base/base.h"

static const char DEPLOY[] =
  "max-num-seqs: 6\nmax-num-batched-tokens: 96\nmax-model-len: 192\nkv_pages: 16\nchunk_tokens: 64\ngroup_chunks: 2\n"
  "ladder: [1, 2, 4, 6]\n";

enum { ENGINES = 2, REQUESTS = 8, PROMPT_MAX = 100, TOKENS_MAX = 9, ERRORS = 20000 };

typedef struct side { /* a model and its requests; chains: of the requests when its engine is alone in the process */
  e2e_model model;
  e2e_requests requests;
  uint8_t chains[REQUESTS][16];
  verbatim *engine;
  const char *problem; /* of a thread, for the main one: null if all was well */
} side;

static side sides[ENGINES];

static const char *open_side(side *s) {
  const verbatim_config config = e2e_config(&s->model);
  for (uint32_t i = 0; i < REQUESTS; i++) {
    s->requests.list[i].token_count = 0;
    memset(s->requests.list[i].chain, 0, 16);
  }
  return verbatim_open(&s->engine, &config) == 0 ? NULL : "open";
}

static const char *submit_all(side *s) {
  for (uint32_t i = 0; i < REQUESTS; i++)
    if (verbatim_submit(s->engine, &s->requests.list[i]) != 0) return "submit";
  return NULL;
}

static const char *close_side(side *s) {
  verbatim_close(s->engine);
  s->engine = NULL;
  for (uint32_t i = 0; i < REQUESTS; i++)
    if (memcmp(s->requests.list[i].chain, s->chains[i], 16) != 0) return "a request has another chain than alone";
  return NULL;
}

static const char *run_side(side *s) {
  bool busy = true;
  const char *problem = open_side(s);
  if (!problem) problem = submit_all(s);
  while (!problem && busy)
    if (verbatim_poll(s->engine, &busy) != 0) problem = "poll";
  return problem ? problem : close_side(s);
}

static int make_sides(void **state) {
  (void)state;
  static const char *const configs[ENGINES] = {"tests/oracle/small-v3.json", "tests/oracle/small-v2lite.json"};
  for (int i = 0; i < ENGINES; i++) {
    side *s = &sides[i];
    e2e_make_model(&s->model, configs[i], DEPLOY);
    e2e_requests_make(&s->requests, REQUESTS, 384, PROMPT_MAX, TOKENS_MAX);
    (void)run_side(s); /* the chains are not known yet */
    for (uint32_t r = 0; r < REQUESTS; r++) memcpy(s->chains[r], s->requests.list[r].chain, 16);
  }
  return 0;
}

static int remove_sides(void **state) {
  (void)state;
  for (int i = 0; i < ENGINES; i++) {
    e2e_remove(&sides[i].model);
    e2e_requests_free(&sides[i].requests);
  }
  return 0;
}

static void expect_none(const char *problem) {
  if (problem) fail_msg("%s: %s", problem, verbatim_error());
}

/* Control: the chains compared below differ between the engines, and from a chain before a run. */
static void engines_differ(void **state) {
  (void)state;
  static const uint8_t none[16];
  for (uint32_t i = 0; i < REQUESTS; i++) {
    assert_memory_not_equal(sides[0].chains[i], sides[1].chains[i], 16);
    assert_memory_not_equal(sides[0].chains[i], none, 16);
  }
}

static void alternately_on_one_thread(void **state) {
  (void)state;
  bool busy[ENGINES] = {true, true};
  for (int i = 0; i < ENGINES; i++) expect_none(open_side(&sides[i]));
  for (int i = 0; i < ENGINES; i++) expect_none(submit_all(&sides[i]));
  while (busy[0] || busy[1])
    for (int i = 0; i < ENGINES; i++) assert_int_equal(verbatim_poll(sides[i].engine, &busy[i]), 0);
  for (int i = 0; i < ENGINES; i++) expect_none(close_side(&sides[i]));
}

static void *run_thread(void *argument) {
  side *s = argument;
  s->problem = run_side(s);
  return NULL;
}

static void on_two_threads(void *(*work)(void *)) {
  pthread_t threads[ENGINES];
  for (int i = 0; i < ENGINES; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &sides[i]), 0);
  for (int i = 0; i < ENGINES; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < ENGINES; i++) expect_none(sides[i].problem);
}

static void at_once_on_two_threads(void **state) {
  (void)state;
  on_two_threads(run_thread);
}

static void *poll_once(void *argument) {
  side *s = argument;
  bool busy = false;
  s->problem = verbatim_poll(s->engine, &busy) != 0 ? "poll" : busy ? "busy" : NULL;
  return NULL;
}

/* Opened here, polled by a new thread each time, closed here. */
static void on_changing_threads(void **state) {
  (void)state;
  side *s = &sides[0];
  expect_none(open_side(s));
  expect_none(submit_all(s));
  do {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, poll_once, s), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
  } while (s->problem && strcmp(s->problem, "busy") == 0);
  expect_none(s->problem);
  expect_none(close_side(s));
}

#define FLUSH_SUBNORMALS 0x8040u /* both such bits of the control register */

/* A thread that rounds upward and flushes subnormals, as some numeric programs leave it: no bit changes, and its state is the same
 * afterwards. */
static void the_callers_rounding_does_not_matter(void **state) {
  (void)state;
  assert_int_equal(fesetround(FE_UPWARD), 0);
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | FLUSH_SUBNORMALS);
  const char *problem = run_side(&sides[0]);
  int rounding = fegetround();
  uint32_t flushed = __builtin_ia32_stmxcsr() & FLUSH_SUBNORMALS;
  assert_int_equal(fesetenv(FE_DFL_ENV), 0);
  expect_none(problem);
  assert_int_equal(rounding, FE_UPWARD);
  assert_int_equal(flushed, FLUSH_SUBNORMALS);
}

/* Repeatedly submits requests that its engine refuses; the text must always be about its own request. */
static void *err_thread(void *argument) {
  side *s = argument;
  bool first = s == &sides[0];
  const int32_t prompt[1] = {1};
  verbatim_token token;
  verbatim_request wrong = VERBATIM_REQUEST_DEFAULTS;
  wrong.prompt = prompt;
  wrong.prompt_count = 1;
  wrong.tokens = &token;
  if (first) wrong.temperature = -1;
  else wrong.top_p = 7;
  s->problem = NULL;
  for (int i = 0; i < ERRORS && !s->problem; i++) {
    if (verbatim_submit(s->engine, &wrong) != VERBATIM_ERR_USAGE) s->problem = "a wrong request was not refused";
    else if (!strstr(verbatim_error(), first ? "temperature" : "top_p")) s->problem = "the text is not of this thread's error";
  }
  return NULL;
}

static void errors_do_not_mix(void **state) {
  (void)state;
  for (int i = 0; i < ENGINES; i++) expect_none(open_side(&sides[i]));
  on_two_threads(err_thread);
  assert_string_equal(verbatim_error(), ""); /* this thread had none */
  for (int i = 0; i < ENGINES; i++) verbatim_close(sides[i].engine);
}

/* Null where something is expected. */
static void null_is_an_error(void **state) {
  (void)state;
  side *s = &sides[0];
  verbatim *engine = NULL;
  verbatim_config config = e2e_config(&s->model), no_plan = config, no_model = config;
  bool busy;
  no_plan.plan_path = no_model.model_dir = NULL;
  assert_int_equal(verbatim_open(&engine, NULL), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_open(NULL, &config), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_open(&engine, &no_plan), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_open(&engine, &no_model), VERBATIM_ERR_USAGE);
  assert_null(engine);
  expect_none(open_side(s));
  assert_int_equal(verbatim_submit(s->engine, NULL), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_cancel(s->engine, NULL), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_submit(NULL, &s->requests.list[0]), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_cancel(NULL, &s->requests.list[0]), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_poll(NULL, &busy), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_poll(s->engine, NULL), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_encode(NULL, "a", 1, false, false, NULL, 0, NULL), VERBATIM_ERR_USAGE);
  assert_int_equal(verbatim_decode(NULL, NULL, 1, NULL, 0, NULL), VERBATIM_ERR_USAGE);
  assert_true(*verbatim_error() != 0);
  expect_none(submit_all(s));
  while (verbatim_poll(s->engine, &busy) == 0 && busy) continue;
  expect_none(close_side(s));
}

/* Queued, running, finished and cancelled: only the first two are refused, and nothing changes for the others. */
static void a_request_is_submitted_once(void **state) {
  (void)state;
  side *s = &sides[0];
  bool busy = true;
  expect_none(open_side(s));
  expect_none(submit_all(s));
  for (int round = 0; round < 2; round++) {
    for (uint32_t i = 0; i < REQUESTS; i++) {
      if (s->requests.list[i].finish != VERBATIM_RUNNING) continue;
      assert_int_equal(verbatim_submit(s->engine, &s->requests.list[i]), VERBATIM_ERR_USAGE);
      assert_non_null(strstr(verbatim_error(), "submitted before"));
    }
    assert_int_equal(verbatim_poll(s->engine, &busy), 0);
  }
  while (busy) assert_int_equal(verbatim_poll(s->engine, &busy), 0);
  expect_none(submit_all(s)); /* finished ones may come again */
  assert_int_equal(verbatim_cancel(s->engine, &s->requests.list[0]), 0);
  assert_int_equal(verbatim_submit(s->engine, &s->requests.list[0]), 0);
  for (busy = true; busy;) assert_int_equal(verbatim_poll(s->engine, &busy), 0);
  expect_none(close_side(s));
}

/* In a child every call returns at once. Before the alarm the child would wait for threads that it does not have. */
static void a_forked_child_has_no_engine(void **state) {
  (void)state;
  side *s = &sides[0];
  int code = -1;
  bool busy = true;
  expect_none(open_side(s));
  expect_none(submit_all(s));
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(20);
    bool good = verbatim_poll(s->engine, &busy) == VERBATIM_ERR_USAGE && strstr(verbatim_error(), "fork") != NULL;
    good = good && verbatim_submit(s->engine, &s->requests.list[0]) == VERBATIM_ERR_USAGE;
    good = good && verbatim_cancel(s->engine, &s->requests.list[0]) == VERBATIM_ERR_USAGE;
    (void)verbatim_describe(s->engine);
    verbatim_close(s->engine);
    _exit(good ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &code, 0), child);
  assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
  while (busy) assert_int_equal(verbatim_poll(s->engine, &busy), 0); /* and the parent goes on */
  expect_none(close_side(s));
}

static void the_parts_of_a_start_are_all_of_it(void **state) {
  (void)state;
  assert_null(open_side(&sides[0]));
  verbatim_stages t = verbatim_describe(sides[0].engine).stages;
  double sum = t.plan + t.text + t.device + t.memory + t.kernels + t.weights + t.tables + t.library + t.graphs;
  assert_true(t.total > 0 && sum > t.total - 1e-9 && sum < t.total + 1e-9);
  verbatim_close(sides[0].engine);
  sides[0].engine = NULL;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(null_is_an_error),       cmocka_unit_test(a_request_is_submitted_once),
      cmocka_unit_test(engines_differ),         cmocka_unit_test(alternately_on_one_thread),
      cmocka_unit_test(at_once_on_two_threads), cmocka_unit_test(on_changing_threads),
      cmocka_unit_test(errors_do_not_mix),      cmocka_unit_test(the_callers_rounding_does_not_matter),
      cmocka_unit_test(a_forked_child_has_no_engine), cmocka_unit_test(the_parts_of_a_start_are_all_of_it),
  };
  e2e_begin(argc, argv);
  return cmocka_run_group_tests(tests, make_sides, remove_sides);
}
