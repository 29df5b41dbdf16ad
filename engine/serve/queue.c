/* serve/queue.c - see serve/queue.h.
 *
 * New tickets and cancellations are handed over under the mutex; everything else of a ticket belongs to the queue's thread. Requests are
 * examined after every step, so that the end of a request is recorded before its client sees it. */
#include "serve/queue.h"
#include "base/clock.h"
#include "base/thread.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum stage { SERVING, DRAINING, STOPPING };

struct serve_place { /* what the queue knows of a choice */
  double submitted_at, first_at, last_at; /* time of submission, of its first token, of the last step that gave it tokens */
  uint32_t tokens;
  bool is_submitted, is_over;
};

typedef struct ticket_list {
  serve_ticket *first, *last;
} ticket_list;

struct serve_queue {
  serve_queue_config config;
  pthread_t thread;
  ticket_list inside; /* submitted to the engine, in order of arrival; the thread's own */
  pthread_mutex_t mutex; /* protects all members below */
  pthread_cond_t news;
  ticket_list arrived;
  bool has_cancelled, is_closed, resets_cache;
  enum stage stage;
  uint32_t tickets, requests; /* admitted and not finished */
  uint64_t bytes;
  fail_cause failure;
};

static void append(ticket_list *list, serve_ticket *t) {
  t->next = NULL;
  t->previous = list->last;
  *(list->last ? &list->last->next : &list->first) = t;
  list->last = t;
}

static void take_out(ticket_list *list, serve_ticket *t) {
  *(t->previous ? &t->previous->next : &list->first) = t->next;
  *(t->next ? &t->next->previous : &list->last) = t->previous;
}

/* === Admission ============================================================================================================== */

/* The caller holds the mutex. */
static void show_load(serve_queue *self) {
  uint32_t running = min_u32(self->requests, self->config.active_max);
  serve_metrics_set(self->config.metrics, SERVE_GAUGE_RUNNING, running);
  serve_metrics_set(self->config.metrics, SERVE_GAUGE_WAITING, self->requests - running);
  serve_metrics_set(self->config.metrics, SERVE_GAUGE_BYTES, (double)self->bytes);
}

static void on_news(serve_request *request) { /* called by the request inside verbatim_poll */
  serve_ticket *t = request->owner;
  t->is_new_to_show = true;
}

/* The caller holds the mutex. */
static enum serve_admission judge(const serve_queue *self, uint32_t count, uint64_t bytes) {
  const serve_queue_config *c = &self->config;
  if (self->stage != SERVING || self->failure.code != OK) return SERVE_CLOSING;
  if (bytes > c->bytes_max || count > (uint64_t)c->active_max + c->waiting_max) return SERVE_TOO_LARGE;
  if ((uint64_t)self->requests + count > (uint64_t)c->active_max + c->waiting_max) return SERVE_FULL;
  return bytes > c->bytes_max - min_u64(self->bytes, c->bytes_max) ? SERVE_NO_MEMORY : SERVE_ADMITTED;
}

static void admit(serve_queue *self, serve_ticket *t, serve_place *places, uint64_t bytes) {
  t->queue = self;
  t->places = places;
  t->bytes = bytes;
  t->unfinished = t->request->choice_count;
  t->arrived_at = clock_seconds();
  t->request->owner = t;
  t->request->on_progress = on_news;
  append(&self->arrived, t);
  self->tickets++;
  self->requests += t->request->choice_count;
  self->bytes += bytes;
  show_load(self);
  pthread_cond_signal(&self->news);
}

enum serve_admission serve_queue_add(serve_queue *self, serve_ticket *ticket) {
  uint32_t count = ticket->request->choice_count;
  uint64_t bytes = ticket->request->bytes + count * sizeof(serve_place);
  ASSERT(count > 0);
  serve_place *places = calloc(count, sizeof *places);
  if (!places) return SERVE_NO_MEMORY;
  pthread_mutex_lock(&self->mutex);
  enum serve_admission judged = judge(self, count, bytes);
  if (judged == SERVE_ADMITTED) admit(self, ticket, places, bytes);
  pthread_mutex_unlock(&self->mutex);
  if (judged != SERVE_ADMITTED) free(places);
  if (judged == SERVE_FULL) serve_metrics_add(self->config.metrics, SERVE_COUNT_REFUSED_FULL, 1);
  if (judged == SERVE_NO_MEMORY) serve_metrics_add(self->config.metrics, SERVE_COUNT_REFUSED_MEMORY, 1);
  return judged;
}

void serve_queue_cancel(serve_queue *self, serve_ticket *ticket) {
  pthread_mutex_lock(&self->mutex);
  ticket->is_cancelled = self->has_cancelled = true;
  pthread_cond_signal(&self->news);
  pthread_mutex_unlock(&self->mutex);
}

void serve_queue_reset_cache(serve_queue *self) {
  pthread_mutex_lock(&self->mutex);
  self->resets_cache = true;
  pthread_cond_signal(&self->news);
  pthread_mutex_unlock(&self->mutex);
}

bool serve_queue_take_bytes(serve_queue *self, uint64_t bytes) {
  pthread_mutex_lock(&self->mutex);
  bool fits = bytes <= self->config.bytes_max - min_u64(self->bytes, self->config.bytes_max);
  if (fits) self->bytes += bytes;
  show_load(self);
  pthread_mutex_unlock(&self->mutex);
  return fits;
}

void serve_queue_give_bytes(serve_queue *self, uint64_t bytes) {
  pthread_mutex_lock(&self->mutex);
  ASSERT(bytes <= self->bytes);
  self->bytes -= bytes;
  show_load(self);
  pthread_mutex_unlock(&self->mutex);
}

/* === The thread: the end of requests ======================================================================================== */

/* Frees the places of its requests before its client gets the reply. The queue counts as idle only after the callback has returned. */
static void end_ask(serve_queue *self, serve_ticket *t) {
  take_out(&self->inside, t);
  free(t->places);
  pthread_mutex_lock(&self->mutex);
  self->requests -= t->request->choice_count;
  show_load(self);
  pthread_mutex_unlock(&self->mutex);
  t->on_left(t);
  pthread_mutex_lock(&self->mutex);
  self->tickets--;
  pthread_mutex_unlock(&self->mutex);
}

/* Records the request for its receipt. False: that failed, and so has the HTTP request. */
static bool record(serve_queue *self, serve_ticket *t, const serve_choice *choice) {
  char name[SERVE_REQUEST_NAME_BYTES];
  serve_fault fault = {.http_status = 500, .type = "server_error", .code = "receipt_not_written"};
  fail_clear();
  if (self->config.on_finished(self->config.context, serve_request_name(choice, name), &choice->engine_request) == OK) return true;
  snprintf(fault.message, sizeof fault.message, "the answer was computed, but its receipt could not be written: %.400s", fail_text());
  fail_clear();
  serve_request_fail(t->request, &fault);
  return false;
}

/* The times and sizes of a request that has ended. One that never ran was in the queue all the time. */
static void measure(serve_queue *self, const serve_ticket *t, const serve_place *place, const verbatim_request *r, double now) {
  serve_metrics *m = self->config.metrics;
  const bool has_run = r->waited_seconds >= 0;
  const double started_at = has_run ? place->submitted_at + r->waited_seconds : now;
  serve_metrics_measure(m, SERVE_TIME_REQUEST, now - t->arrived_at);
  serve_metrics_measure(m, SERVE_TIME_QUEUE, started_at - t->arrived_at);
  if (r->token_count > 1) serve_metrics_measure(m, SERVE_TIME_PER_TOKEN, (now - place->first_at) / (r->token_count - 1));
  if (r->token_count > 0) serve_metrics_measure(m, SERVE_TIME_PREFILL, place->first_at - started_at);
  if (r->token_count > 0) serve_metrics_measure(m, SERVE_TIME_DECODE, place->last_at - place->first_at);
  if (has_run) serve_metrics_measure(m, SERVE_TIME_INFERENCE, now - started_at);
  serve_metrics_size(m, SERVE_SIZE_PROMPT, r->prompt_count);
  serve_metrics_size(m, SERVE_SIZE_GENERATED, r->token_count);
  serve_metrics_size(m, SERVE_SIZE_MAX_TOKENS, r->max_tokens);
}

/* Records the request and its times, and marks it finished in the request. False: its line of the receipt could not be written. */
static bool end_request(serve_queue *self, serve_ticket *t, uint32_t index, double now) {
  serve_choice *choice = &t->request->choices[index];
  const verbatim_request *engine_request = &choice->engine_request;
  serve_place *place = &t->places[index];
  bool recorded = true;
  place->is_over = true;
  t->unfinished--;
  if (place->is_submitted) {
    serve_metrics_finish(self->config.metrics, engine_request->finish);
    serve_metrics_add(self->config.metrics, SERVE_COUNT_PROMPT_TOKENS, engine_request->prompt_count);
    measure(self, t, place, engine_request, now);
    recorded = record(self, t, choice);
  }
  serve_request_finished(choice);
  t->is_new_to_show = true;
  return recorded;
}

static void end_early(serve_queue *self, serve_ticket *t, const serve_fault *fault);

static void examine(serve_queue *self, serve_ticket *t, double now) {
  for (uint32_t i = 0; i < t->request->choice_count && t->unfinished; i++) {
    const verbatim_request *engine_request = &t->request->choices[i].engine_request;
    serve_place *place = &t->places[i];
    if (place->is_over || !place->is_submitted) continue;
    if (place->tokens == 0 && engine_request->token_count) {
      place->first_at = now;
      serve_metrics_measure(self->config.metrics, SERVE_TIME_FIRST_TOKEN, now - t->arrived_at);
    }
    if (engine_request->token_count > place->tokens) {
      if (place->tokens) serve_metrics_measure(self->config.metrics, SERVE_TIME_BETWEEN_TOKENS, now - place->last_at);
      serve_metrics_add(self->config.metrics, SERVE_COUNT_GENERATED_TOKENS, engine_request->token_count - place->tokens);
      place->last_at = now;
    }
    place->tokens = engine_request->token_count;
    if (engine_request->finish != VERBATIM_RUNNING && !end_request(self, t, i, now)) end_early(self, t, NULL);
  }
}

static void examine_all(serve_queue *self) {
  double now = clock_seconds();
  for (serve_ticket *t = self->inside.first, *next; t; t = next) {
    next = t->next;
    examine(self, t, now);
    if (t->is_new_to_show && t->request->stream) t->on_progress(t);
    t->is_new_to_show = false;
    if (t->unfinished == 0) end_ask(self, t);
  }
}

/* Ends the unfinished requests of a request. fault: the error for its client; null: it has one, or the client has left. */
static void end_early(serve_queue *self, serve_ticket *t, const serve_fault *fault) {
  double now = clock_seconds();
  serve_request *request = t->request;
  if (fault) serve_request_fail(request, fault);
  for (uint32_t i = 0; i < request->choice_count; i++) {
    if (t->places[i].is_over) continue;
    if (t->places[i].is_submitted) (void)verbatim_cancel(self->config.engine, &request->choices[i].engine_request);
    (void)end_request(self, t, i, now);
  }
}

/* Bodies were checked before; the engine rejects only what depends on its plan. Once the engine has accepted it, a stream may begin. */
static void submit(serve_queue *self, serve_ticket *t) {
  append(&self->inside, t);
  t->is_new_to_show = true;
  for (uint32_t i = 0; i < t->request->choice_count; i++) {
    if (verbatim_submit(self->config.engine, &t->request->choices[i].engine_request) == 0) {
      t->places[i].is_submitted = true;
      t->places[i].submitted_at = clock_seconds();
      continue;
    }
    serve_fault fault = {.http_status = 400, .type = "invalid_request_error", .code = "refused_by_engine"};
    snprintf(fault.message, sizeof fault.message, "%.500s", verbatim_error());
    end_early(self, t, &fault);
    return;
  }
}

/* === The thread ============================================================================================================= */

static void end_cancelled(serve_queue *self, bool all) {
  static const serve_fault leaving = {.http_status = 503, .type = "server_error", .code = "shutting_down",
                                      .message = "the server is shutting down; the request was cancelled"};
  for (serve_ticket *t = self->inside.first; t; t = t->next) {
    pthread_mutex_lock(&self->mutex);
    bool cancelled = t->is_cancelled;
    pthread_mutex_unlock(&self->mutex);
    if (cancelled || all) end_early(self, t, cancelled ? NULL : &leaving);
  }
}

static void note_failure(serve_queue *self) {
  fail_cause cause;
  fail_take(&cause);
  pthread_mutex_lock(&self->mutex);
  self->failure = cause;
  self->stage = STOPPING;
  pthread_mutex_unlock(&self->mutex);
}

/* The caller holds the mutex. */
static bool has_work(const serve_queue *self) {
  return self->arrived.first || self->has_cancelled || self->resets_cache || (self->stage == STOPPING && self->tickets) || self->is_closed;
}

static void *work(void *argument) {
  serve_queue *self = argument;
  for (bool busy = false;;) {
    pthread_mutex_lock(&self->mutex);
    while (!busy && !has_work(self)) pthread_cond_wait(&self->news, &self->mutex);
    ticket_list arrived = self->arrived;
    bool some = self->has_cancelled, all = self->stage == STOPPING, closed = self->is_closed, resets = self->resets_cache;
    self->arrived = (ticket_list){0};
    self->has_cancelled = self->resets_cache = false;
    pthread_mutex_unlock(&self->mutex);
    if (closed) return NULL;
    if (resets) verbatim_reset_prefix_cache(self->config.engine);
    for (serve_ticket *t = arrived.first, *next; t; t = next) {
      next = t->next;
      submit(self, t);
    }
    if (some || all) end_cancelled(self, all);
    if (verbatim_poll(self->config.engine, &busy) != 0) {
      note_failure(self);
      busy = false;
    }
    const verbatim_counters counters = verbatim_count(self->config.engine);
    serve_metrics_engine(self->config.metrics, &counters);
    examine_all(self);
  }
}

/* === Start and end ========================================================================================================== */

status serve_queue_open(serve_queue **out, const serve_queue_config *config) {
  serve_queue *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "server: no memory for its queue");
  self->config = *config;
  ASSERT(pthread_mutex_init(&self->mutex, NULL) == 0 && pthread_cond_init(&self->news, NULL) == 0);
  serve_metrics_set(config->metrics, SERVE_GAUGE_BYTES_MAX, (double)config->bytes_max);
  if (thread_begin(&self->thread, work, self) == 0) {
    *out = self;
    return OK;
  }
  pthread_cond_destroy(&self->news);
  pthread_mutex_destroy(&self->mutex);
  free(self);
  return FAIL(ERR_LIMIT, "server: cannot start a thread");
}

static void set_stage(serve_queue *self, enum stage stage) {
  pthread_mutex_lock(&self->mutex);
  if (self->stage < stage) self->stage = stage;
  pthread_cond_signal(&self->news);
  pthread_mutex_unlock(&self->mutex);
}

void serve_queue_drain(serve_queue *self) { set_stage(self, DRAINING); }

void serve_queue_stop(serve_queue *self) { set_stage(self, STOPPING); }

bool serve_queue_idle(serve_queue *self) {
  pthread_mutex_lock(&self->mutex);
  bool idle = self->tickets == 0;
  pthread_mutex_unlock(&self->mutex);
  return idle;
}

status serve_queue_failure(serve_queue *self) {
  pthread_mutex_lock(&self->mutex);
  const fail_cause failure = self->failure;
  pthread_mutex_unlock(&self->mutex);
  return failure.code == OK ? OK : fail_give(&failure);
}

void serve_queue_close(serve_queue *self) {
  if (!self) return;
  ASSERT(serve_queue_idle(self));
  pthread_mutex_lock(&self->mutex);
  self->is_closed = true;
  pthread_cond_signal(&self->news);
  pthread_mutex_unlock(&self->mutex);
  pthread_join(self->thread, NULL);
  pthread_cond_destroy(&self->news);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}
