/* weights.c - see weights.h. Matching (match.h) comes first. Then several threads take sources, the largest first, and read them (read.h);
 * with a GPU the calling thread uploads them. The total digest and the report come last. */
#include "weights/weights.h"
#include "base/thread.h"
#include "weights/match.h"
#include "weights/read.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct loader {
  weights_match match;
  weights_reader reader;
  const weights_target *target;
  uint32_t *order;          /* [order_count]: sources except scales, the largest first */
  uint32_t order_count;
  atomic_uint next;         /* index in order of the first source that no thread has taken */
  atomic_bool failed;       /* set: no thread takes another source */
  atomic_ullong done_bytes; /* bytes without a GPU, of all threads */
  uint64_t sent_bytes, total_bytes;
  staging ring;             /* with a GPU                                           */
  weights_progress *progress;
  weights_visit *visit;     /* null: the sources are loaded; else they are only read and digested */
  void *context;
} loader;

typedef struct worker { /* a reading thread */
  loader *loader;
  uint32_t failed_at; /* index in order, or MATCH_NONE */
  fail_cause cause;
} worker;

/* === Reading ================================================================================================================ */

typedef struct sized { uint64_t bytes; uint32_t index; } sized;

static int compare_sized(const void *a, const void *b) {
  const sized *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

/* Sorts the largest first, so that no thread works alone at the end; equal ones stay in plan order, mostly the files' order. */
static status sort_sources(loader *self) {
  const weights_match *match = &self->match;
  sized *list = calloc(match->source_count + 1ull, sizeof *list);
  if (!list) return FAIL(ERR_LIMIT, "weights: no memory");
  for (uint32_t i = 0; i < match->source_count; i++)
    if (match->sources[i].first_use != MATCH_NONE) list[self->order_count++] = (sized){match->sources[i].tensor->bytes, i};
  qsort(list, self->order_count, sizeof *list, compare_sized);
  for (uint32_t i = 0; i < self->order_count; i++) self->order[i] = list[i].index;
  free(list);
  return OK;
}

static void report_progress(const loader *self, uint64_t done_bytes) {
  if (self->progress && done_bytes < self->total_bytes) self->progress(self->context, done_bytes, self->total_bytes);
}

/* Takes sources until none is left or one has failed. Every taken source is finished, so that the first failure in order is found. */
static void load_sources(worker *me, bool reports) {
  loader *self = me->loader;
  weights_scratch memory = {0};
  while (!atomic_load(&self->failed)) {
    uint32_t i = atomic_fetch_add(&self->next, 1);
    if (i >= self->order_count) break;
    const weights_source *s = &self->match.sources[self->order[i]];
    if (weights_read(&self->reader, self->order[i], &memory) != OK) {
      fail_take(&me->cause);
      me->failed_at = i;
      atomic_store(&self->failed, true);
      break;
    }
    uint64_t bytes = s->tensor->bytes + (s->scales == MATCH_NONE ? 0 : self->match.sources[s->scales].tensor->bytes);
    uint64_t done = atomic_fetch_add(&self->done_bytes, bytes) + bytes;
    if (reports) report_progress(self, done);
  }
  weights_read_end(&memory);
}

/* === Threads ================================================================================================================ */

static void *run_thread(void *argument) {
  worker *me = argument;
  load_sources(me, false);
  if (me->loader->target->room.device[0].device) staging_leave(&me->loader->ring);
  return NULL;
}

static void on_sent(void *context, uint64_t bytes) {
  loader *self = context;
  self->sent_bytes += bytes;
  report_progress(self, self->sent_bytes);
}

static status first_failure(const worker *workers, uint32_t count) {
  const worker *first = &workers[0];
  for (uint32_t i = 1; i < count; i++)
    if (workers[i].failed_at < first->failed_at) first = &workers[i];
  return first->failed_at == MATCH_NONE ? OK : fail_give(&first->cause);
}

/* On the CPU the calling thread reads with the others, as the first worker; for a GPU it uploads what the others read. */
static status load_all(loader *self, uint32_t *threads) {
  worker workers[WEIGHTS_THREADS_MAX];
  pthread_t ids[WEIGHTS_THREADS_MAX];
  bool is_gpu = self->target->room.device[0].device != NULL;
  uint32_t wanted = self->target->threads ? min_u32(self->target->threads, WEIGHTS_THREADS_MAX) : staging_fillers();
  uint32_t first = is_gpu ? 0 : 1, count = first;
  for (uint32_t i = 0; i < wanted; i++) workers[i] = (worker){.loader = self, .failed_at = MATCH_NONE};
  if (is_gpu) staging_open(&self->ring, &self->target->room);
  for (; count < wanted; count++) {
    if (is_gpu) staging_enter(&self->ring);
    if (thread_begin(&ids[count], run_thread, &workers[count]) == 0) continue;
    if (is_gpu) staging_leave(&self->ring);
    break;
  }
  if (is_gpu) staging_upload(&self->ring, on_sent, self);
  else load_sources(&workers[0], true);
  for (uint32_t i = first; i < count; i++) pthread_join(ids[i], NULL);
  if (is_gpu) staging_close(&self->ring);
  if (count == 0) return FAIL(ERR_LIMIT, "weights: no thread can be started");
  TRY(first_failure(workers, count));
  if (self->progress) self->progress(self->context, self->total_bytes, self->total_bytes);
  *threads = count;
  return OK;
}

/* === All of it ============================================================================================================== */

static digest combine(const weights_match *self) {
  digest_state state;
  digest_start(&state);
  for (uint32_t i = 0; i < self->source_count; i++) {
    const weights_source *s = &self->sources[i];
    if (weights_match_is_prediction(self, s)) continue;
    digest_add(&state, s->name, strlen(s->name) + 1);
    digest_add(&state, s->tensor->dtype, strlen(s->tensor->dtype) + 1);
    digest_add(&state, &s->tensor->rank, sizeof s->tensor->rank);
    digest_add(&state, s->tensor->shape, s->tensor->rank * sizeof s->tensor->shape[0]);
    digest_add(&state, s->digest.bytes, DIGEST_BYTES);
  }
  return digest_end(&state);
}

const char *weights_line(const safetensor *tensor, const sha256 *strong, char line[WEIGHTS_LINE_BYTES]) {
  char digits[SHA256_TEXT_BYTES];
  int at = snprintf(line, WEIGHTS_LINE_BYTES, "%s  %s ", sha256_text(strong->bytes, digits), tensor->dtype);
  for (uint32_t i = 0; i < tensor->rank; i++)
    at += snprintf(line + at, WEIGHTS_LINE_BYTES - (size_t)at, "[%llu]%s", (unsigned long long)tensor->shape[i],
                   i + 1 == tensor->rank ? " " : "");
  return line;
}

static int compare_names(const void *a, const void *b) {
  const weights_source *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

/* By name, as LC_ALL=C sort has them, so that nobody needs the plan to compute it. */
static status combine_sha256(const weights_match *self, sha256 *out) {
  const weights_source **sorted = calloc(self->source_count + 1ull, sizeof *sorted);
  char line[WEIGHTS_LINE_BYTES];
  uint32_t count = 0;
  sha256_state state;
  if (!sorted) return FAIL(ERR_LIMIT, "weights: no memory");
  for (uint32_t i = 0; i < self->source_count; i++)
    if (!weights_match_is_prediction(self, &self->sources[i])) sorted[count++] = &self->sources[i];
  qsort(sorted, count, sizeof *sorted, compare_names);
  sha256_start(&state);
  for (uint32_t i = 0; i < count; i++) {
    const weights_source *s = sorted[i];
    weights_line(s->tensor, &s->sha256, line);
    sha256_add(&state, line, strlen(line));
    sha256_add(&state, s->name, strlen(s->name));
    sha256_add(&state, "\n", 1);
  }
  free(sorted);
  *out = sha256_end(&state);
  return OK;
}

static status load(loader *self, weights_report *report) {
  const weights_match *match = &self->match;
  weights_report made = {.source_count = match->source_count};
  TRY(sort_sources(self));
  for (uint32_t i = 0; i < match->source_count; i++) made.source_bytes += match->sources[i].tensor->bytes;
  if (self->visit) self->total_bytes = made.source_bytes;
  const uint64_t ranks = self->target->ranks;
  for (uint32_t i = 0; !self->visit && i < match->plan->tensor_count; i++)
    self->total_bytes += ranks * plan_tensor_bytes(&match->plan->tensors[i]);
  TRY(load_all(self, &made.threads));
  made.digest = combine(match);
  if (self->target->sha256) TRY(combine_sha256(match, &made.sha256));
  weights_match_report(match, &made);
  for (uint32_t i = 0; self->visit && i < match->source_count; i++) {
    const weights_source *s = &match->sources[i];
    if (!weights_match_is_prediction(match, s)) self->visit(self->context, s->name, s->tensor, &s->digest, &s->sha256);
  }
  *report = made;
  return OK;
}

static status run(loader *self, const plan *p, const safetensors *set, weights_report *report) {
  self->reader = (weights_reader){.match = &self->match, .target = self->visit ? NULL : self->target, .ring = &self->ring,
                                  .sha256 = self->target->sha256};
  status result = weights_match_open(&self->match, p, set);
  if (result == OK) {
    self->order = calloc(p->tensor_count + 1ull, sizeof *self->order); /* scales are not counted */
    result = self->order ? load(self, report) : FAIL(ERR_LIMIT, "weights: no memory");
  }
  weights_match_close(&self->match);
  free(self->order);
  return result;
}

status weights_load(const plan *p, const safetensors *set, const weights_target *target, weights_progress *progress, void *context,
                    weights_report *report) {
  loader self = {.target = target, .progress = progress, .context = context};
  return run(&self, p, set, report);
}

status weights_digest(const plan *p, const safetensors *set, uint32_t threads, bool strong, weights_progress *progress,
                      weights_visit *visit, void *context, weights_report *report) {
  const weights_target nowhere = {.ranks = 1, .threads = threads, .sha256 = strong};
  loader self = {.target = &nowhere, .progress = progress, .visit = visit, .context = context};
  return run(&self, p, set, report);
}

void weights_note(const weights_report *report, char *text, size_t text_bytes) {
  const struct { uint32_t count; const char *what; } kinds[] = {
    {report->unused_rotary, "rotary inv_freq"},
    {report->unused_scales, "scales of a KV cache"},
    {report->unused_layers, "of layers behind the last (prediction)"},
    {report->unused_other, report->naming ? "of other parts (vision)" : "others"},
  };
  size_t at = 0;
  text[0] = 0;
#define ADD(...) (at += at < text_bytes ? (size_t)snprintf(text + at, text_bytes - at, __VA_ARGS__) : 0)
  if (report->naming) ADD("tensors are named %s%s", report->naming, report->unused_count ? "; " : "");
  if (report->unused_count) ADD("%u tensors of the model are not used: ", report->unused_count);
  const char *separator = "";
  for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
    if (kinds[i].count == 0) continue;
    ADD("%s%u %s", separator, kinds[i].count, kinds[i].what);
    separator = ", ";
  }
  if (report->unused_count) ADD(", e.g. %s", report->unused_first);
#undef ADD
}
