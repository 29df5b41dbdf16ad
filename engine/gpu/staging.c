/* staging.c - see staging.h. There is one lock; it is taken twice per 2 MiB, so there is no contention. */
#define _DEFAULT_SOURCE /* sysconf names */
#include "gpu/staging.h"
#include <unistd.h>

#define WHAT "upload through the staging slots"

uint32_t staging_fillers(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (cores < 3) return 2; /* a filler may wait for a disk */
  return min_u32((uint32_t)cores - 1, STAGING_SLOTS_MAX / 2);
}

void staging_open(staging *self, const staging_room *room) {
  ASSERT(room->slot_count >= 1 && room->slot_count <= STAGING_SLOTS_MAX && room->slot_bytes > 0);
  *self = (staging){.room = *room, .free_count = room->slot_count};
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->freed, NULL);
  pthread_cond_init(&self->filled, NULL);
  for (uint32_t i = 0; i < room->slot_count; i++) self->free_slots[i] = room->slot_count - 1 - i;
}

void staging_close(staging *self) {
  ASSERT(self->fillers == 0 && self->free_count == self->room.slot_count);
  pthread_mutex_destroy(&self->lock);
  pthread_cond_destroy(&self->freed);
  pthread_cond_destroy(&self->filled);
}

void staging_enter(staging *self) {
  pthread_mutex_lock(&self->lock);
  self->fillers++;
  pthread_mutex_unlock(&self->lock);
}

void staging_leave(staging *self) {
  pthread_mutex_lock(&self->lock);
  ASSERT(self->fillers > 0);
  self->fillers--;
  pthread_cond_signal(&self->filled);
  pthread_mutex_unlock(&self->lock);
}

uint8_t *staging_take(staging *self) {
  pthread_mutex_lock(&self->lock);
  while (self->free_count == 0) pthread_cond_wait(&self->freed, &self->lock);
  uint32_t slot = self->free_slots[--self->free_count];
  pthread_mutex_unlock(&self->lock);
  return self->room.memory + slot * self->room.slot_bytes;
}

void staging_put(staging *self, const uint8_t *slot, uint32_t rank, uint64_t address, uint64_t bytes) {
  uint64_t index = (uint64_t)(slot - self->room.memory) / self->room.slot_bytes;
  ASSERT(index < self->room.slot_count && bytes <= self->room.slot_bytes);
  pthread_mutex_lock(&self->lock);
  ASSERT(self->full_count < self->room.slot_count);
  self->full[(self->full_first + self->full_count++) % self->room.slot_count] =
      (staging_load){.address = address, .bytes = bytes, .slot = (uint32_t)index, .rank = rank};
  pthread_cond_signal(&self->filled);
  pthread_mutex_unlock(&self->lock);
}

static void give_back(staging *self, uint32_t slot) {
  pthread_mutex_lock(&self->lock);
  self->free_slots[self->free_count++] = slot;
  pthread_cond_signal(&self->freed);
  pthread_mutex_unlock(&self->lock);
}

enum next { NEXT_LOAD, NEXT_NOTHING, NEXT_END };

/* The next full slot. wait: blocks until there is one or the fillers have left; otherwise returns NEXT_NOTHING if there is none. */
static enum next next_load(staging *self, bool wait, staging_load *load) {
  pthread_mutex_lock(&self->lock);
  while (wait && self->full_count == 0 && self->fillers > 0) pthread_cond_wait(&self->filled, &self->lock);
  enum next result = self->full_count ? NEXT_LOAD : self->fillers ? NEXT_NOTHING : NEXT_END;
  if (result == NEXT_LOAD) {
    *load = self->full[self->full_first];
    self->full_first = (self->full_first + 1) % self->room.slot_count;
    self->full_count--;
  }
  pthread_mutex_unlock(&self->lock);
  return result;
}

static gpu_event *event_of(const staging_room *room, const staging_load *load) { return room->device[load->rank].events[load->slot]; }

/* The device reads slots in the order of their uploads, so the oldest becomes free first. While there is nothing to upload, waiting for the
 * oldest delays no copy: later uploads keep the bus busy. */
void staging_upload(staging *self, staging_progress *progress, void *context) {
  const staging_room *room = &self->room;
  const bool is_shared = room->device[1].device != NULL;
  staging_load busy[STAGING_SLOTS_MAX];
  uint32_t first = 0, count = 0;
  staging_load load;
  for (enum next next; (next = next_load(self, count == 0, &load)) != NEXT_END || count > 0;) {
    if (next == NEXT_LOAD) {
      const staging_device *to = &room->device[load.rank];
      if (is_shared) gpu_select(to->device);
      gpu_upload(to->device, to->stream, load.address, room->memory + load.slot * room->slot_bytes, (size_t)load.bytes);
      gpu_record(to->device, to->stream, to->events[load.slot]);
      busy[(first + count++) % room->slot_count] = load;
      if (progress) progress(context, load.bytes);
    } else gpu_event_sync(room->device[busy[first].rank].device, event_of(room, &busy[first]), WHAT);
    for (; count > 0 && gpu_event_done(room->device[busy[first].rank].device, event_of(room, &busy[first]), WHAT); count--) {
      give_back(self, busy[first].slot);
      first = (first + 1) % room->slot_count;
    }
  }
}
