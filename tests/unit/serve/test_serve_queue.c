/* test_serve_queue.c - which requests may wait for the engine, in which order they enter it, and how they leave it. The engine has
 * simulated steps: each step waits for the test's permission and generates one token for every request that has a slot. */
#include "tests/unit/unit.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "engine/base/clock.h"
#include "engine/serve/queue.h"

#define PLACES 2u
#define WAITING 3u
#define BYTES 100000u
#define ASKS 8u
#define EVENTS 64u
#define PATIENCE_SECONDS 10.0

int __wrap_verbatim_submit(verbatim *engine, verbatim_request *engine_request);
int __wrap_verbatim_cancel(verbatim *engine, verbatim_request *engine_request);
int __wrap_verbatim_poll(verbatim *engine, bool *busy);
verbatim_counters __wrap_verbatim_count(const verbatim *engine);
void __wrap_verbatim_reset_prefix_cache(verbatim *engine);
const char *__wrap_verbatim_error(void);

/* === An engine of simulated steps =========================================================================================== */

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t change;
  uint32_t leave;   /* steps that may still run */
  uint32_t polls, submits;
  uint32_t refuse_at; /* the number of the submission that is refused; 0: none */
  bool breaks;      /* the next step fails */
  bool is_full;     /* no request can be recorded */
  verbatim_request *inside[64];
  uint32_t count;
  char events[EVENTS][128]; /* the events, in order */
  uint32_t event_count;
} made = {.mutex = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

static void note(const char *what, const char *name) { /* under the mutex */
  assert_true(made.event_count < EVENTS);
  snprintf(made.events[made.event_count++], sizeof made.events[0], "%.20s %.80s", what, name);
}

static void note_now(const char *what, const char *name) {
  pthread_mutex_lock(&made.mutex);
  note(what, name);
  pthread_cond_broadcast(&made.change);
  pthread_mutex_unlock(&made.mutex);
}

static const char *id_of(const verbatim_request *engine_request) {
  const serve_choice *choice = engine_request->context;
  return choice->request->id;
}

int __wrap_verbatim_submit(verbatim *engine, verbatim_request *engine_request) {
  (void)engine;
  pthread_mutex_lock(&made.mutex);
  bool refused = ++made.submits == made.refuse_at;
  note(refused ? "refuse" : "submit", id_of(engine_request));
  if (!refused) made.inside[made.count++] = engine_request;
  pthread_mutex_unlock(&made.mutex);
  return refused ? ERR_USAGE : OK;
}

const char *__wrap_verbatim_error(void) { return "the reason"; }

static void remove_at(uint32_t at) {
  made.count--;
  memmove(made.inside + at, made.inside + at + 1, (made.count - at) * sizeof made.inside[0]);
}

int __wrap_verbatim_cancel(verbatim *engine, verbatim_request *engine_request) {
  (void)engine;
  pthread_mutex_lock(&made.mutex);
  note("cancel", id_of(engine_request));
  for (uint32_t i = 0; i < made.count; i++)
    if (made.inside[i] == engine_request) remove_at(i);
  engine_request->finish = VERBATIM_CANCELLED;
  pthread_mutex_unlock(&made.mutex);
  return OK;
}

void __wrap_verbatim_reset_prefix_cache(verbatim *engine) {
  (void)engine;
  note_now("reset", "cache");
}

static void make_tokens(void) {
  for (uint32_t i = 0, places = PLACES; i < made.count && places; places--) {
    verbatim_request *r = made.inside[i];
    if (++r->token_count == r->max_tokens) r->finish = VERBATIM_LENGTH;
    serve_choice *choice = r->context;
    if (choice->request->stream || r->finish != VERBATIM_RUNNING) choice->request->on_progress(choice->request);
    if (r->finish != VERBATIM_RUNNING) remove_at(i);
    else i++;
  }
}

int __wrap_verbatim_poll(verbatim *engine, bool *busy) {
  (void)engine;
  pthread_mutex_lock(&made.mutex);
  made.polls++;
  bool breaks = made.breaks;
  while (made.count && !made.leave && !made.breaks) pthread_cond_wait(&made.change, &made.mutex);
  if (made.count && made.leave) {
    made.leave--;
    make_tokens();
  }
  *busy = made.count > 0;
  pthread_cond_broadcast(&made.change);
  pthread_mutex_unlock(&made.mutex);
  return breaks ? FAIL(ERR_DEVICE, "the engine broke") : OK;
}

verbatim_counters __wrap_verbatim_count(const verbatim *engine) {
  (void)engine;
  return (verbatim_counters){.steps = 1};
}

static void allow(uint32_t steps) {
  pthread_mutex_lock(&made.mutex);
  made.leave += steps;
  pthread_cond_broadcast(&made.change);
  pthread_mutex_unlock(&made.mutex);
}

/* Waits until the event has happened that many times; fails if it does not. */
static void wait_for(const char *event, uint32_t times) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += (time_t)PATIENCE_SECONDS;
  pthread_mutex_lock(&made.mutex);
  for (int late = 0;;) {
    uint32_t seen = 0;
    for (uint32_t i = 0; i < made.event_count; i++) seen += strcmp(made.events[i], event) == 0;
    if (seen >= times || late) {
      pthread_mutex_unlock(&made.mutex);
      if (seen < times) fail_msg("expected %u times \"%s\", found it %u times", times, event, seen);
      return;
    }
    late = pthread_cond_timedwait(&made.change, &made.mutex, &end);
  }
}

/* The index of the event's first occurrence. */
static uint32_t place_of(const char *event) {
  uint32_t at = 0;
  pthread_mutex_lock(&made.mutex);
  while (at < made.event_count && strcmp(made.events[at], event) != 0) at++;
  bool found = at < made.event_count;
  pthread_mutex_unlock(&made.mutex);
  if (!found) fail_msg("expected the event \"%s\"", event);
  return at;
}

/* === Requests =============================================================================================================== */

static struct {
  serve_request request;
  serve_choice choices[8];
  serve_ticket ticket;
} requests[ASKS];
static serve_metrics metrics;
static serve_queue *queue;

void serve_request_finished(serve_choice *choice) { choice->finished = true; }

void serve_request_fail(serve_request *request, const serve_fault *fault) {
  request->fault = *fault;
  request->failed = true;
}

const char *serve_request_name(const serve_choice *choice, char name[SERVE_REQUEST_NAME_BYTES]) {
  snprintf(name, SERVE_REQUEST_NAME_BYTES, "%s", choice->request->id);
  return name;
}

static void on_progress(serve_ticket *t) { note_now("progress", t->request->id); }
static void on_left(serve_ticket *t) { note_now("left", t->request->id); }

static status on_finished(void *context, const char *name, const verbatim_request *engine_request) {
  char what[32];
  (void)context;
  snprintf(what, sizeof what, "finish%d", (int)engine_request->finish);
  note_now(what, name);
  return made.is_full ? FAIL(ERR_IO, "the receipt is full") : OK;
}

/* Request number `index`, which is its name, with that many choices of that many tokens. */
static enum serve_admission ask_for(uint32_t index, uint32_t choices, uint32_t tokens, uint64_t bytes, bool stream) {
  serve_request *request = &requests[index].request;
  *request = (serve_request){.choices = requests[index].choices, .choice_count = choices, .bytes = bytes, .stream = stream};
  snprintf(request->id, sizeof request->id, "%u", index);
  for (uint32_t i = 0; i < choices; i++) {
    requests[index].choices[i] = (serve_choice){.request = request, .engine_request = {.max_tokens = tokens, .prompt_count = 3}};
    requests[index].choices[i].engine_request.context = &requests[index].choices[i];
  }
  requests[index].ticket = (serve_ticket){.request = request, .on_progress = on_progress, .on_left = on_left};
  return serve_queue_add(queue, &requests[index].ticket);
}

static int begin(void **state) {
  (void)state;
  made.leave = made.polls = made.submits = made.refuse_at = made.count = made.event_count = 0;
  made.breaks = made.is_full = false;
  memset(&metrics, 0, sizeof metrics);
  serve_metrics_open(&metrics);
  const serve_queue_config config = {.metrics = &metrics, .active_max = PLACES, .waiting_max = WAITING, .bytes_max = BYTES,
                                     .on_finished = on_finished};
  return serve_queue_open(&queue, &config);
}

static int end(void **state) {
  (void)state;
  serve_queue_stop(queue);
  allow(1000);
  while (!serve_queue_idle(queue)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  serve_queue_close(queue);
  serve_metrics_close(&metrics);
  return 0;
}

static double gauge(enum serve_gauge which) {
  pthread_mutex_lock(&metrics.mutex);
  double value = metrics.gauges[which];
  pthread_mutex_unlock(&metrics.mutex);
  return value;
}

/* === Tests ================================================================================================================== */

static void requests_go_in_as_they_arrived_and_end_by_themselves(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 3; i++) assert_int_equal(ask_for(i, 1, 2, 100, false), SERVE_ADMITTED);
  allow(1); /* the first may be alone in the first step */
  wait_for("submit 2", 1);
  assert_true(place_of("submit 0") < place_of("submit 1") && place_of("submit 1") < place_of("submit 2"));
  assert_false(serve_queue_idle(queue));
  allow(10);
  for (uint32_t i = 0; i < 3; i++) wait_for(i == 0 ? "left 0" : i == 1 ? "left 1" : "left 2", 1);
  assert_true(place_of("finish2 0") < place_of("left 0"));
  assert_true(requests[0].choices[0].finished && requests[2].choices[0].finished && !requests[0].request.failed);
  assert_int_equal(metrics.counts[SERVE_COUNT_GENERATED_TOKENS], 6);
  assert_int_equal(metrics.counts[SERVE_COUNT_PROMPT_TOKENS], 9);
  assert_int_equal(metrics.finishes[VERBATIM_LENGTH], 3);
  assert_int_equal(metrics.engine.steps, 1);
  for (int i = 0; i < SERVE_TIMES; i++) {
    uint64_t measured = 0;
    for (uint32_t k = 0; k <= SERVE_METRICS_BUCKETS; k++) measured += metrics.times[i].buckets[k];
    assert_int_equal(measured, 3);
  }
  assert_true(metrics.sizes[SERVE_SIZE_PROMPT].sum == 9 && metrics.sizes[SERVE_SIZE_GENERATED].sum == 6);
  const double parts = metrics.times[SERVE_TIME_QUEUE].sum + metrics.times[SERVE_TIME_INFERENCE].sum;
  assert_true(parts > 0 && parts - metrics.times[SERVE_TIME_REQUEST].sum < 1e-9 && metrics.times[SERVE_TIME_REQUEST].sum - parts < 1e-9);
}

static void it_sleeps_when_there_is_nothing_to_do(void **state) {
  (void)state;
  assert_int_equal(ask_for(0, 1, 1, 100, false), SERVE_ADMITTED);
  allow(1);
  wait_for("left 0", 1);
  uint32_t polls = made.polls;
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  assert_true(made.polls <= polls + 1);
}

/* An idle queue does it at once; a request that is added later meets an empty cache. */
static void the_cache_is_emptied_before_later_requests(void **state) {
  (void)state;
  serve_queue_reset_cache(queue);
  wait_for("reset cache", 1);
  assert_int_equal(ask_for(0, 1, 3, 100, false), SERVE_ADMITTED);
  wait_for("submit 0", 1);
  serve_queue_reset_cache(queue); /* while the engine is in a step */
  assert_int_equal(ask_for(1, 1, 1, 100, false), SERVE_ADMITTED);
  allow(1);
  wait_for("submit 1", 1);
  pthread_mutex_lock(&made.mutex);
  assert_string_equal(made.events[made.event_count - 2], "reset cache");
  assert_string_equal(made.events[made.event_count - 1], "submit 1");
  pthread_mutex_unlock(&made.mutex);
}

static void a_streams_progress_is_told_once_a_step(void **state) {
  (void)state;
  assert_int_equal(ask_for(0, 2, 3, 100, true), SERVE_ADMITTED);
  allow(3);
  wait_for("left 0", 1);
  uint32_t told = 0;
  for (uint32_t i = 0; i < made.event_count; i++) told += strcmp(made.events[i], "progress 0") == 0;
  assert_in_range(told, 3, 4); /* taken, which may be reported with the first step, and three steps of two tokens each */
  assert_true(place_of("progress 0") < place_of("left 0"));
  for (uint32_t i = place_of("finish2 0"), told_after = 0; i < made.event_count; i++) {
    told_after += strcmp(made.events[i], "progress 0") == 0;
    if (strcmp(made.events[i], "left 0") == 0) assert_int_equal(told_after, 1); /* an event is recorded before it is reported */
  }
}

static void what_waits_is_bounded(void **state) {
  (void)state;
  assert_int_equal(ask_for(0, PLACES + WAITING + 1, 1, 100, false), SERVE_TOO_LARGE);
  assert_int_equal(ask_for(0, PLACES, 1, 100, false), SERVE_ADMITTED);
  assert_int_equal(ask_for(1, WAITING, 1, 100, false), SERVE_ADMITTED);
  assert_int_equal(ask_for(2, 1, 1, 100, false), SERVE_FULL);
  assert_true(gauge(SERVE_GAUGE_RUNNING) == PLACES && gauge(SERVE_GAUGE_WAITING) == WAITING);
  assert_int_equal(metrics.counts[SERVE_COUNT_REFUSED_FULL], 1);
  allow(1);
  wait_for("left 0", 1);
  assert_int_equal(ask_for(2, PLACES, 1, 100, false), SERVE_ADMITTED);
  allow(10);
  wait_for("left 1", 1);
  wait_for("left 2", 1);
  assert_true(gauge(SERVE_GAUGE_RUNNING) == 0 && gauge(SERVE_GAUGE_WAITING) == 0);
}

static void memory_is_bounded_until_it_is_given_back(void **state) {
  (void)state;
  assert_int_equal(ask_for(0, 1, 1, BYTES + 1, false), SERVE_TOO_LARGE);
  assert_int_equal(ask_for(0, 1, 1, BYTES / 2, false), SERVE_ADMITTED);
  assert_int_equal(ask_for(1, 1, 1, BYTES / 2, false), SERVE_NO_MEMORY); /* both need a little more than they state */
  assert_int_equal(metrics.counts[SERVE_COUNT_REFUSED_MEMORY], 1);
  assert_false(serve_queue_take_bytes(queue, BYTES / 2));
  assert_true(serve_queue_take_bytes(queue, 1000));
  allow(1);
  wait_for("left 0", 1);
  assert_int_equal(ask_for(1, 1, 1, BYTES / 2, false), SERVE_NO_MEMORY); /* its reply may still be on its way */
  serve_queue_give_bytes(queue, requests[0].ticket.bytes);
  serve_queue_give_bytes(queue, 1000);
  assert_int_equal(ask_for(1, 1, 1, BYTES / 2, false), SERVE_ADMITTED);
  allow(1);
  wait_for("left 1", 1);
  serve_queue_give_bytes(queue, requests[1].ticket.bytes);
  assert_true(gauge(SERVE_GAUGE_BYTES) == 0);
}

/* The reply is an error as soon as one of its requests is not recorded; the others of the reply end, and the next request is served. */
static void what_is_not_recorded_fails(void **state) {
  (void)state;
  made.is_full = true;
  assert_int_equal(ask_for(0, 1, 1, 100, false), SERVE_ADMITTED);
  allow(1);
  wait_for("left 0", 1);
  assert_true(requests[0].request.failed);
  assert_int_equal(requests[0].request.fault.http_status, 500);
  assert_string_equal(requests[0].request.fault.code, "receipt_not_written");
  assert_non_null(strstr(requests[0].request.fault.message, "the receipt is full"));
  made.is_full = false;
  assert_int_equal(ask_for(1, 1, 1, 100, false), SERVE_ADMITTED);
  allow(1);
  wait_for("left 1", 1);
  assert_false(requests[1].request.failed);
}

static void cancelling_ends_one_and_leaves_the_others(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 3; i++) assert_int_equal(ask_for(i, 1, i == 1 ? 1000 : 4, 100, i == 1), SERVE_ADMITTED);
  allow(1);
  wait_for("submit 2", 1);
  serve_queue_cancel(queue, &requests[1].ticket);
  allow(20);
  wait_for("left 1", 1);
  assert_true(place_of("cancel 1") < place_of("finish5 1") && place_of("finish5 1") < place_of("left 1"));
  assert_false(requests[1].request.failed);
  wait_for("finish2 0", 1);
  wait_for("finish2 2", 1);
  assert_int_equal(metrics.finishes[VERBATIM_CANCELLED], 1);
  serve_queue_cancel(queue, &requests[1].ticket); /* of one that has left: no event */
  wait_for("left 2", 1);
  assert_true(serve_queue_idle(queue));
}

static void what_the_engine_refuses_is_told(void **state) {
  (void)state;
  made.refuse_at = 2;
  assert_int_equal(ask_for(0, 3, 4, 100, true), SERVE_ADMITTED);
  wait_for("left 0", 1);
  assert_true(requests[0].request.failed);
  assert_int_equal(requests[0].request.fault.http_status, 400);
  assert_string_equal(requests[0].request.fault.code, "refused_by_engine");
  assert_string_equal(requests[0].request.fault.type, "invalid_request_error");
  assert_string_equal(requests[0].request.fault.message, "the reason");
  assert_int_equal(made.submits, 2); /* the third was not tried */
  wait_for("cancel 0", 1);
  wait_for("finish5 0", 1); /* of the first one, which the engine had accepted */
  uint32_t finishes = 0, cancels = 0;
  for (uint32_t i = 0; i < made.event_count; i++) finishes += strncmp(made.events[i], "finish", 6) == 0;
  for (uint32_t i = 0; i < made.event_count; i++) cancels += strncmp(made.events[i], "cancel", 6) == 0;
  assert_int_equal(finishes, 1);
  assert_int_equal(cancels, 1);
  for (int i = 0; i < 3; i++) assert_true(requests[0].choices[i].finished);
}

static void draining_finishes_and_stopping_tells(void **state) {
  (void)state;
  assert_int_equal(ask_for(0, 1, 2, 100, false), SERVE_ADMITTED);
  assert_int_equal(ask_for(1, 1, 200, 100, false), SERVE_ADMITTED);
  allow(1);
  wait_for("submit 1", 1);
  serve_queue_drain(queue);
  assert_int_equal(ask_for(2, 1, 1, 100, false), SERVE_CLOSING);
  allow(2);
  wait_for("finish2 0", 1);
  serve_queue_stop(queue);
  allow(2);
  wait_for("left 1", 1);
  assert_false(requests[0].request.failed);
  assert_true(requests[1].request.failed);
  assert_int_equal(requests[1].request.fault.http_status, 503);
  assert_int_equal(requests[1].choices[0].engine_request.finish, VERBATIM_CANCELLED);
}

static void an_engine_that_breaks_ends_everything(void **state) {
  (void)state;
  assert_int_equal(ask_for(0, 1, 5, 100, false), SERVE_ADMITTED);
  wait_for("submit 0", 1);
  pthread_mutex_lock(&made.mutex);
  made.breaks = true;
  pthread_cond_broadcast(&made.change);
  pthread_mutex_unlock(&made.mutex);
  wait_for("left 0", 1);
  assert_true(requests[0].request.failed);
  assert_int_equal(serve_queue_failure(queue), ERR_DEVICE);
  assert_string_equal(fail_text(), "the engine broke");
  fail_clear();
  assert_int_equal(ask_for(1, 1, 1, 100, false), SERVE_CLOSING);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(requests_go_in_as_they_arrived_and_end_by_themselves, begin, end),
    cmocka_unit_test_setup_teardown(it_sleeps_when_there_is_nothing_to_do, begin, end),
    cmocka_unit_test_setup_teardown(the_cache_is_emptied_before_later_requests, begin, end),
    cmocka_unit_test_setup_teardown(a_streams_progress_is_told_once_a_step, begin, end),
    cmocka_unit_test_setup_teardown(what_waits_is_bounded, begin, end),
    cmocka_unit_test_setup_teardown(memory_is_bounded_until_it_is_given_back, begin, end),
    cmocka_unit_test_setup_teardown(what_is_not_recorded_fails, begin, end),
    cmocka_unit_test_setup_teardown(cancelling_ends_one_and_leaves_the_others, begin, end),
    cmocka_unit_test_setup_teardown(what_the_engine_refuses_is_told, begin, end),
    cmocka_unit_test_setup_teardown(draining_finishes_and_stopping_tells, begin, end),
    cmocka_unit_test_setup_teardown(an_engine_that_breaks_ends_everything, begin, end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
