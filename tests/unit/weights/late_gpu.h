/* late_gpu.h - a stand-in for the GPU during the loading of weights, for tests that link it in place of gpu.c's calls (configure.py).
 *
 * It reads a staging slot as late as it may: when an event after the upload is waited for. A slot that is refilled too early shows as wrong
 * bytes. One test includes it. */
#ifndef VERBATIM_LATE_GPU_H
#define VERBATIM_LATE_GPU_H
#include <string.h>
#include "tests/unit/unit.h"
#include "engine/gpu/staging.h"

#define UPLOADS_MAX 65536u

typedef struct upload {
  uint64_t target, bytes;
  const void *source;
} upload;

static struct {
  upload queue[UPLOADS_MAX];
  uint32_t done, count;                 /* queue[done .. count) are not read yet          */
  uint32_t behind[STAGING_SLOTS_MAX];   /* by event: how many uploads preceded it     */
  uint32_t asked, most_waiting;
} device;

void __wrap_gpu_upload(gpu *self, gpu_stream *stream, uint64_t target, const void *source, size_t bytes);
void __wrap_gpu_record(gpu *self, gpu_stream *stream, gpu_event *event);
void __wrap_gpu_event_sync(gpu *self, gpu_event *event, const char *op);
bool __wrap_gpu_event_done(gpu *self, gpu_event *event, const char *op);

static uint32_t index_of(gpu_event *event) { return (uint32_t)((uintptr_t)event - 1); }

void __wrap_gpu_upload(gpu *self, gpu_stream *stream, uint64_t target, const void *source, size_t bytes) {
  (void)self, (void)stream;
  assert_true(device.count < UPLOADS_MAX);
  device.queue[device.count++] = (upload){.target = target, .bytes = bytes, .source = source};
  if (device.count - device.done > device.most_waiting) device.most_waiting = device.count - device.done;
}

void __wrap_gpu_record(gpu *self, gpu_stream *stream, gpu_event *event) {
  (void)self, (void)stream;
  device.behind[index_of(event)] = device.count;
}

void __wrap_gpu_event_sync(gpu *self, gpu_event *event, const char *op) {
  (void)self, (void)op;
  for (; device.done < device.behind[index_of(event)]; device.done++) {
    const upload *u = &device.queue[device.done];
    memcpy((void *)(uintptr_t)u->target, u->source, u->bytes);
  }
}

/* Every third time the device has happened to read that far already. */
bool __wrap_gpu_event_done(gpu *self, gpu_event *event, const char *op) {
  if (++device.asked % 3 == 0) __wrap_gpu_event_sync(self, event, op);
  return device.done >= device.behind[index_of(event)];
}

#endif
