/* links.c - see links.h. Copies by the driver, not by kernels: they need no compiler, and use the same links. */
#include "gpu/links.h"
#include <stdio.h>
#include <string.h>

#define LARGE_BYTES (UINT64_C(64) << 20) /* more than the L2 cache */
#define LARGE_COPIES 8u
#define SMALL_BYTES 8u
#define SMALL_COPIES 64u
#define PATTERN_BYTES (1u << 20)
#define PATTERN(rank, i) ((uint8_t)((rank) * 0x61u + (i) * 0x9du + (i) / 251u))

typedef struct link_end { /* a GPU: its memory is what it sends, then what it receives, LARGE_BYTES each */
  gpu *device;
  gpu_stream *stream;
  gpu_event *first, *last;
  uint64_t memory;
} link_end;

typedef struct links {
  link_end ends[RANKS_MAX];
  uint32_t count;
  uint8_t *sent, *received; /* pinned, [PATTERN_BYTES] */
} links;

static status open_end(links *self, uint32_t index, const dynlib_search *search, links_report *out) {
  link_end *e = &self->ends[self->count];
  uint64_t free_bytes = 0, total_bytes = 0;
  TRY(gpu_open(index, search, &e->device));
  if (self->count++ > 0) gpu_unbind(e->device); /* the thread stays bound to the first */
  gpu_select(e->device);
  TRY(gpu_memory(e->device, &free_bytes, &total_bytes));
  if (self->count == 1 || free_bytes < out->free_bytes) {
    out->free_bytes = free_bytes;
    out->total_bytes = total_bytes;
  }
  TRY(gpu_reserve(e->device, 2 * LARGE_BYTES, &e->memory));
  TRY(gpu_stream_open(e->device, &e->stream));
  TRY(gpu_event_open(e->device, true, &e->first));
  return gpu_event_open(e->device, true, &e->last);
}

static status connect(const links *self) {
  for (uint32_t i = 0; i < self->count; i++) {
    gpu_select(self->ends[i].device);
    for (uint32_t j = 0; j < self->count; j++)
      if (i != j) TRY(gpu_peer(self->ends[i].device, self->ends[j].device));
  }
  return OK;
}

/* Sends known bytes, and reads what arrived on the other GPU, where there were others. */
static status try_link(const links *self, const link_end *from, const link_end *to, uint32_t rank, const char *what) {
  for (uint32_t i = 0; i < PATTERN_BYTES; i++) self->sent[i] = PATTERN(rank, i);
  gpu_select(to->device);
  gpu_fill32(to->device, to->stream, to->memory + LARGE_BYTES, 0, PATTERN_BYTES / 4);
  gpu_sync(to->device, to->stream, what);
  gpu_select(from->device);
  gpu_upload(from->device, from->stream, from->memory, self->sent, PATTERN_BYTES);
  gpu_copy(from->device, from->stream, to->memory + LARGE_BYTES, from->memory, PATTERN_BYTES);
  gpu_sync(from->device, from->stream, what);
  gpu_select(to->device);
  gpu_download(to->device, to->stream, self->received, to->memory + LARGE_BYTES, PATTERN_BYTES);
  gpu_sync(to->device, to->stream, what);
  for (uint32_t i = 0; i < PATTERN_BYTES; i++)
    if (self->received[i] != self->sent[i])
      return FAIL(ERR_MISMATCH, "%s: byte %u: expected %02x, found %02x; hint: the link between the two GPUs, or one of them, is broken",
                  what, i, self->sent[i], self->received[i]);
  return OK;
}

/* Microseconds of a copy. */
static double time_copies(const link_end *from, const link_end *to, uint64_t bytes, uint32_t copies, const char *what) {
  gpu_select(from->device);
  gpu_copy(from->device, from->stream, to->memory + LARGE_BYTES, from->memory, bytes); /* the first one maps memory */
  gpu_record(from->device, from->stream, from->first);
  for (uint32_t i = 0; i < copies; i++) gpu_copy(from->device, from->stream, to->memory + LARGE_BYTES, from->memory, bytes);
  gpu_record(from->device, from->stream, from->last);
  gpu_sync(from->device, from->stream, what);
  return gpu_elapsed_us(from->device, from->first, from->last) / copies;
}

static status measure(links *self, links_report *out) {
  void *pinned = NULL;
  TRY(gpu_pin(self->ends[0].device, 2 * PATTERN_BYTES, &pinned));
  self->sent = pinned;
  self->received = self->sent + PATTERN_BYTES;
  TRY(connect(self));
  for (uint32_t i = 0; i < self->count; i++)
    for (uint32_t j = 0; j < self->count; j++) {
      const link_end *from = &self->ends[i], *to = &self->ends[j];
      char what[64];
      if (i == j) continue;
      snprintf(what, sizeof what, "a copy from GPU %u to GPU %u", gpu_describe(from->device)->index, gpu_describe(to->device)->index);
      TRY(try_link(self, from, to, i, what));
      const double large_us = time_copies(from, to, LARGE_BYTES, LARGE_COPIES, what);
      out->speed[i][j].gb_per_s = large_us > 0 ? 1e-3 * (double)LARGE_BYTES / large_us : 0;
      out->speed[i][j].latency_us = time_copies(from, to, SMALL_BYTES, SMALL_COPIES, what);
    }
  return OK;
}

static void close_ends(links *self) {
  for (uint32_t i = self->count; i > 0; i--) {
    gpu_select(self->ends[0].device);
    if (i > 1) gpu_bind(self->ends[i - 1].device);
    gpu_close(self->ends[i - 1].device);
  }
}

status links_measure(uint32_t first, uint32_t count, const dynlib_search *search, links_report *out) {
  links self = {0};
  links_report report = {0};
  status result = OK;
  ASSERT(count >= 2 && count <= RANKS_MAX);
  for (uint32_t i = 0; i < count && result == OK; i++) result = open_end(&self, first + i, search, &report);
  if (result == OK) {
    gpu_select(self.ends[0].device);
    result = measure(&self, &report);
  }
  close_ends(&self);
  if (result == OK) *out = report;
  return result;
}
