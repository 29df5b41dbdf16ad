/* place.c - first fit by decreasing size, as described in place.h.
 *
 * Placed buffers are kept in a list sorted by offset; one walk over it finds a gap. Quadratic in the number of buffers, which is a few
 * thousand in the largest models. Must not know what a buffer is for. Read next: check.c. */
#include "place.h"
#include <stdlib.h>
#include <string.h>

typedef struct item {
  plan_buffer *buffer;
  uint32_t index;
} item;

static int compare_items(const void *left, const void *right) {
  const item *a = left, *b = right;
  if (a->buffer->bytes != b->buffer->bytes) return a->buffer->bytes > b->buffer->bytes ? -1 : 1;
  if (a->buffer->first_op != b->buffer->first_op) return a->buffer->first_op < b->buffer->first_op ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

static bool is_alive_with(const plan_buffer *a, const plan_buffer *b) { return a->first_op <= b->last_op && b->first_op <= a->last_op; }

/* The lowest gap for `wanted` among placed buffers, which are sorted by offset. */
static uint64_t find_gap(plan_buffer *const *placed, uint32_t count, const plan_buffer *wanted) {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < count; i++) {
    const plan_buffer *other = placed[i];
    if (!is_alive_with(other, wanted)) continue;
    if (other->offset >= offset + wanted->bytes) break;
    uint64_t end = align_up(other->offset + other->bytes, PLACE_ALIGNMENT);
    if (end > offset) offset = end;
  }
  return offset;
}

static void insert(plan_buffer **placed, uint32_t count, plan_buffer *added) {
  uint32_t at = count;
  while (at > 0 && placed[at - 1]->offset > added->offset) at--;
  memmove(placed + at + 1, placed + at, (count - at) * sizeof *placed);
  placed[at] = added;
}

uint64_t place_lifetimes(plan_buffer *const *buffers, uint32_t count) {
  uint64_t end = 0;
  item *items = malloc((count + 1) * sizeof *items);
  plan_buffer **placed = malloc((count + 1) * sizeof *placed);
  ASSERT(items != NULL);
  ASSERT(placed != NULL);
  for (uint32_t i = 0; i < count; i++) {
    ASSERT(buffers[i]->first_op <= buffers[i]->last_op);
    items[i] = (item){buffers[i], i};
  }
  qsort(items, count, sizeof *items, compare_items);
  for (uint32_t i = 0; i < count; i++) {
    plan_buffer *buffer = items[i].buffer;
    buffer->offset = find_gap(placed, i, buffer);
    insert(placed, i, buffer);
    if (buffer->offset + buffer->bytes > end) end = buffer->offset + buffer->bytes;
  }
  free(placed);
  free(items);
  return end;
}

/* Places buffers of a region one after the other; weights stay where the graph put them. Returns the region's bytes. */
static uint64_t place_in_order(draft *plan, uint32_t region) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < plan->buffers.count; i++) {
    plan_buffer *buffer = draft_buffer_at(plan, i);
    if (buffer->region != region) continue;
    if (region != REGION_WEIGHTS) buffer->offset = align_up(end, PLACE_ALIGNMENT);
    ASSERT(buffer->offset >= end);
    end = buffer->offset + buffer->bytes;
  }
  return end;
}

static uint64_t place_work(draft *plan) {
  plan_buffer **work = malloc((plan->buffers.count + 1) * sizeof *work);
  uint32_t count = 0;
  ASSERT(work != NULL);
  for (uint32_t i = 0; i < plan->buffers.count; i++)
    if (draft_buffer_at(plan, i)->region == REGION_WORK) work[count++] = draft_buffer_at(plan, i);
  uint64_t bytes = place_lifetimes(work, count);
  free(work);
  return bytes;
}

static uint64_t region_bytes(draft *plan, uint32_t region) {
  switch (region) {
    case REGION_WORK: return place_work(plan);
    case REGION_STEP_ODD: return plan->regions[REGION_STEP].bytes;
    case REGION_RESULT_ODD: return plan->regions[REGION_RESULT].bytes;
    default: return place_in_order(plan, region);
  }
}

void place_plan(draft *plan) {
  uint64_t offset = 0;
  for (uint32_t id = 0; id < REGION_COUNT; id++) {
    bool is_large = id == REGION_WEIGHTS || id == REGION_KV || id == REGION_WORK;
    offset = align_up(offset, is_large ? PLACE_REGION_ALIGNMENT : PLACE_ALIGNMENT);
    plan->regions[id] = (plan_region){.id = id, .offset = offset, .bytes = align_up(region_bytes(plan, id), PLACE_ALIGNMENT)};
    offset += plan->regions[id].bytes;
  }
  plan->device_bytes = align_up(offset, PLACE_REGION_ALIGNMENT);
}
