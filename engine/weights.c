/* weights.c - see weights.h. One thread fills and uploads, the others digest the same mapped bytes meanwhile. */
#define _DEFAULT_SOURCE /* sysconf names */
#include "weights.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIGEST_THREADS_MAX 16
#define TRANSPOSE_TILE 32u

static const char *dtype_name(uint32_t dtype) { return dtype == DTYPE_F32 ? "F32" : "BF16"; }

/* === Matching =============================================================================================================== */

static void shape_text(const safetensor *source, char *text, size_t text_bytes) {
  size_t at = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < source->rank && at < text_bytes; i++)
    at += (size_t)snprintf(text + at, text_bytes - at, "[%llu]", (unsigned long long)source->shape[i]);
}

static status match(const plan *p, const plan_tensor *tensor, const safetensor *source) {
  bool same = source->rank == 2 ? source->shape[0] == tensor->rows && source->shape[1] == tensor->cols
                                : source->rank == 1 && tensor->rows == 1 && source->shape[0] == tensor->cols;
  if (same && strcmp(source->dtype, dtype_name(tensor->dtype)) == 0) return OK;
  char found[SAFETENSORS_RANK_MAX * 24];
  shape_text(source, found, sizeof found);
  return FAIL(ERR_FORMAT, "tensor %s: expected %s [%u][%u], found %s %s, hint: was the plan made from this model's config.json?",
              plan_string(p, tensor->name), dtype_name(tensor->dtype), tensor->rows, tensor->cols, source->dtype, found);
}

/* The sources by plan tensor; every missing name goes into one message as far as it fits. */
static status match_all(const plan *p, const safetensors *set, const safetensor **sources) {
  char missing[640] = "";
  size_t at = 0;
  uint32_t missing_count = 0;
  for (uint32_t i = 0; i < p->tensor_count; i++) {
    const char *name = plan_string(p, p->tensors[i].name);
    sources[i] = safetensors_find(set, name);
    if (sources[i]) {
      TRY(match(p, &p->tensors[i], sources[i]));
      continue;
    }
    missing_count++;
    if (at + strlen(name) + 3 < sizeof missing) at += (size_t)snprintf(missing + at, sizeof missing - at, " %s", name);
  }
  if (missing_count) return FAIL(ERR_FORMAT, "the model's files lack %u tensors of the plan:%s", missing_count, missing);
  return OK;
}

/* === Digest ================================================================================================================= */

typedef struct digest_work {
  const safetensor **sources; /* unique, in plan order */
  digest *digests;
  uint32_t count;
  atomic_uint next;
} digest_work;

static void *digest_worker(void *argument) {
  digest_work *work = argument;
  for (;;) {
    uint32_t i = atomic_fetch_add(&work->next, 1);
    if (i >= work->count) return NULL;
    work->digests[i] = digest_of(work->sources[i]->data, (size_t)work->sources[i]->bytes);
  }
}

static digest combine(const digest_work *work) {
  digest_state state;
  digest_start(&state);
  for (uint32_t i = 0; i < work->count; i++) {
    const safetensor *s = work->sources[i];
    digest_add(&state, s->name, strlen(s->name) + 1);
    digest_add(&state, s->dtype, strlen(s->dtype) + 1);
    digest_add(&state, &s->rank, sizeof s->rank);
    digest_add(&state, s->shape, s->rank * sizeof s->shape[0]);
    digest_add(&state, work->digests[i].bytes, DIGEST_BYTES);
  }
  return digest_end(&state);
}

/* === Filling ================================================================================================================ */

/* Destination rows of one batch, and the bytes of each. */
static uint64_t rows_of_batch(const plan_tensor *t) { return t->transform == TRANSFORM_COPY ? t->row_count : t->cols; }
static uint64_t bytes_of_row(const plan_tensor *t) {
  return (uint64_t)(t->transform == TRANSFORM_COPY ? t->cols : t->row_count) * plan_dtype_bytes(t->dtype);
}

/* dest[col][row] = source[row][col] for destination rows col0 .. col0 + count of one batch. */
static void transpose(const plan_tensor *t, const uint8_t *source, uint64_t col0, uint64_t count, uint8_t *dest) {
  uint64_t item = plan_dtype_bytes(t->dtype);
  for (uint64_t c = 0; c < count; c += TRANSPOSE_TILE)
    for (uint64_t r = 0; r < t->row_count; r += TRANSPOSE_TILE)
      for (uint64_t i = c; i < count && i < c + TRANSPOSE_TILE; i++)
        for (uint64_t j = r; j < t->row_count && j < r + TRANSPOSE_TILE; j++)
          memcpy(dest + (i * t->row_count + j) * item, source + (j * t->cols + col0 + i) * item, item);
}

/* Writes `count` destination rows of one batch from row `first` on. */
static void fill_rows(const plan_tensor *t, const uint8_t *data, uint64_t batch, uint64_t first, uint64_t count, uint8_t *dest) {
  uint64_t source_row_bytes = (uint64_t)t->cols * plan_dtype_bytes(t->dtype);
  const uint8_t *source = data + (t->row0 + batch * t->row_step) * source_row_bytes;
  if (t->transform == TRANSFORM_COPY) memcpy(dest, source + first * source_row_bytes, count * source_row_bytes);
  else transpose(t, source, first, count, dest);
}

typedef struct loader {
  const weights_target *target;
  uint64_t used;     /* bytes of the current half */
  uint32_t half;
  uint64_t done_bytes, total_bytes;
  weights_progress *progress;
  void *context;
} loader;

/* Room of `bytes` in the staging block: moves on to the other half when this one is full, after its uploads are done. */
static uint8_t *stage(loader *self, uint64_t bytes) {
  const weights_target *t = self->target;
  if (self->used + bytes > t->staging_half_bytes) {
    gpu_record(t->device, t->stream, t->event[self->half]);
    self->half ^= 1;
    self->used = 0;
    gpu_event_sync(t->device, t->event[self->half], "weights upload");
  }
  uint8_t *room = t->staging + self->half * t->staging_half_bytes + self->used;
  self->used += align_up(bytes, 256);
  return room;
}

static status load_tensor(loader *self, const plan_tensor *t, const safetensor *source) {
  const weights_target *target = self->target;
  uint64_t rows = rows_of_batch(t), row_bytes = bytes_of_row(t), address = target->address + t->offset;
  uint64_t rows_at_once = rows;
  if (target->device) {
    rows_at_once = target->staging_half_bytes / row_bytes;
    if (rows_at_once == 0) return FAIL(ERR_LIMIT, "tensor %s: a row exceeds the staging block", source->name);
    if (rows_at_once > rows) rows_at_once = rows;
  }
  for (uint64_t batch = 0; batch < t->batches; batch++)
    for (uint64_t first = 0; first < rows; first += rows_at_once) {
      uint64_t count = rows - first < rows_at_once ? rows - first : rows_at_once, bytes = count * row_bytes;
      uint8_t *dest = target->device ? stage(self, bytes) : (uint8_t *)(uintptr_t)address;
      fill_rows(t, source->data, batch, first, count, dest);
      if (target->device) gpu_upload(target->device, target->stream, address, dest, (size_t)bytes);
      address += bytes;
      self->done_bytes += bytes;
    }
  if (self->progress) self->progress(self->context, self->done_bytes, self->total_bytes);
  return OK;
}

static status load_all(const plan *p, const safetensor **sources, const weights_target *target, weights_progress *progress,
                       void *context) {
  loader self = {.target = target, .progress = progress, .context = context};
  for (uint32_t i = 0; i < p->tensor_count; i++) self.total_bytes += plan_tensor_bytes(&p->tensors[i]);
  if (target->device) { /* so that the first wait for either half returns */
    gpu_record(target->device, target->stream, target->event[0]);
    gpu_record(target->device, target->stream, target->event[1]);
  }
  for (uint32_t i = 0; i < p->tensor_count; i++) TRY(load_tensor(&self, &p->tensors[i], sources[i]));
  if (target->device) gpu_sync(target->device, target->stream, "weights upload");
  return OK;
}

/* === All of it ============================================================================================================== */

static void report_unused(const safetensors *set, const digest_work *work, const uint8_t *used, weights_report *report) {
  report->source_count = work->count;
  for (uint32_t i = 0; i < work->count; i++) report->source_bytes += work->sources[i]->bytes;
  for (uint32_t i = 0; i < safetensors_count(set); i++) {
    if (used[i]) continue;
    if (report->unused_count++ == 0) snprintf(report->unused_first, sizeof report->unused_first, "%s", safetensors_at(set, i)->name);
  }
}

static status load_and_digest(const plan *p, const safetensor **sources, const weights_target *target, weights_progress *progress,
                              void *context, digest_work *work) {
  pthread_t threads[DIGEST_THREADS_MAX];
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int thread_count = 0;
  while (thread_count < DIGEST_THREADS_MAX && thread_count < cores - 1 &&
         pthread_create(&threads[thread_count], NULL, digest_worker, work) == 0)
    thread_count++;
  status result = load_all(p, sources, target, progress, context);
  digest_worker(work);
  for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
  return result;
}

status weights_load(const plan *p, const safetensors *set, const weights_target *target, weights_progress *progress, void *context,
                    weights_report *report) {
  uint32_t count = p->tensor_count ? p->tensor_count : 1, file_tensors = safetensors_count(set) ? safetensors_count(set) : 1;
  digest_work work = {.sources = calloc(count, sizeof *work.sources), .digests = calloc(count, sizeof *work.digests)};
  const safetensor **sources = calloc(count, sizeof *sources);
  uint8_t *used = calloc(file_tensors, 1);
  status result = work.sources && work.digests && sources && used ? OK : FAIL(ERR_LIMIT, "weights: no memory");
  if (result == OK) result = match_all(p, set, sources);
  if (result == OK) {
    for (uint32_t i = 0; i < p->tensor_count; i++) {
      uint8_t *mark = &used[sources[i] - safetensors_at(set, 0)];
      if (!*mark) work.sources[work.count++] = sources[i];
      *mark = 1;
    }
    result = load_and_digest(p, sources, target, progress, context, &work);
  }
  if (result == OK) {
    *report = (weights_report){.digest = combine(&work)};
    report_unused(set, &work, used, report);
  }
  free(work.sources);
  free(work.digests);
  free(sources);
  free(used);
  return result;
}
