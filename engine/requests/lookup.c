/* lookup.c - see lookup.h. */
#include "requests/lookup.h"
#include "requests/request.h"
#include <string.h>

#define LOOKUP_BUCKETS 8192u
#define TRIES_MAX 16u /* runs of the same hash that are compared */

status lookup_open(const plan_limits *limits, arena *host, lookup **out) {
  void *memory;
  TRY(arena_take(host, sizeof(lookup) * (uint64_t)limits->max_seqs, &memory));
  lookup *all = memory;
  for (uint32_t slot = 0; slot < limits->max_seqs; slot++) {
    TRY(arena_take(host, sizeof(uint32_t) * LOOKUP_BUCKETS, &memory));
    all[slot].head = memory;
    TRY(arena_take(host, sizeof(uint32_t) * (uint64_t)limits->max_len, &memory));
    all[slot].previous = memory;
    lookup_clear(&all[slot]);
  }
  *out = all;
  return OK;
}

void lookup_clear(lookup *self) {
  memset(self->head, 0, sizeof(uint32_t) * LOOKUP_BUCKETS);
  self->count = 0;
}

/* Of the run of match_min tokens that ends at `last`. */
static uint32_t bucket_of(const plan_limits *limits, const verbatim_request *request, uint32_t last) {
  uint32_t hash = 2166136261u;
  for (uint32_t i = 0; i < limits->match_min; i++) hash = (hash ^ (uint32_t)request_token(request, last - i)) * 16777619u;
  return (hash ^ hash >> 15) % LOOKUP_BUCKETS;
}

void lookup_add(lookup *self, const plan_limits *limits, const verbatim_request *request, uint32_t count) {
  for (uint32_t at = self->count; at < count; at++) {
    if (at + 1 < limits->match_min) continue;
    uint32_t *head = &self->head[bucket_of(limits, request, at)];
    self->previous[at] = *head;
    *head = at + 1;
  }
  self->count = max_u32(self->count, count);
}

/* Equal tokens that end at these two positions, a before b. */
static uint32_t run_length(const plan_limits *limits, const verbatim_request *request, uint32_t a, uint32_t b) {
  uint32_t length = 0;
  while (length < limits->match_max && length <= a && request_token(request, a - length) == request_token(request, b - length)) length++;
  return length;
}

uint32_t lookup_guess(const lookup *self, const plan_limits *limits, const verbatim_request *request, uint32_t most, int32_t *ids) {
  if (self->count <= limits->match_min) return 0;
  const uint32_t newest = self->count - 1;
  uint32_t longest = limits->match_min - 1, from = 0, tries = 0;
  for (uint32_t at = self->previous[newest]; at && tries < TRIES_MAX; at = self->previous[at - 1], tries++) {
    const uint32_t length = run_length(limits, request, at - 1, newest);
    if (length > longest) longest = length, from = at;
  }
  if (from == 0) return 0;
  for (uint32_t i = 0; i < most; i++) ids[i] = from + i <= newest ? request_token(request, from + i) : ids[from + i - newest - 1];
  return most;
}
