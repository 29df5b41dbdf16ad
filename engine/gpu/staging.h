/* staging.h - slots of pinned memory through which files reach the GPU: many threads fill them, and one thread uploads them.
 *
 * A filler takes a free slot, writes into it and queues it with its target device address. The one thread that uses the GPU is in
 * staging_upload and frees slots once the device has read them, so that reading and uploading overlap. Slots are uploaded in the order in
 * which they were queued. Start-up only.
 * Must not know files or tensors. Read next: weights/read.c. */
#ifndef VERBATIM_STAGING_H
#define VERBATIM_STAGING_H
#include "base/base.h"
#include "gpu/gpu.h"
#include "kernels_src/abi_ranks.h"
#include <pthread.h>

/* The bus copies 2 MiB in 40 us, ten times the time to start a copy; 32 slots are two for each of 16 fillers. */
#define STAGING_SLOTS_MAX 32u
#define STAGING_SLOT_BYTES (2ull << 20)

typedef struct staging_device { /* a target */
  gpu *device;
  gpu_stream *stream;
  gpu_event *events[STAGING_SLOTS_MAX]; /* [slot_count], untimed                                */
} staging_device;

typedef struct staging_room { /* resources of the slots, owned by the caller */
  staging_device device[RANKS_MAX];     /* by rank                                              */
  uint8_t *memory;                      /* pinned, slot_count times slot_bytes                  */
  uint64_t slot_bytes;
  uint32_t slot_count;                  /* 1 .. STAGING_SLOTS_MAX                               */
} staging_room;

typedef struct staging_load { /* a full slot and its target address */
  uint64_t address, bytes;
  uint32_t slot, rank;
} staging_load;

typedef struct staging {
  staging_room room;
  pthread_mutex_t lock;
  pthread_cond_t freed, filled;
  uint32_t fillers;                       /* fillers that have entered and not left */
  uint32_t free_count, full_first, full_count;
  uint32_t free_slots[STAGING_SLOTS_MAX]; /* a stack                  */
  staging_load full[STAGING_SLOTS_MAX];   /* a queue                  */
} staging;

/* Called by staging_upload when `bytes` more have been handed to the device. */
typedef void staging_progress(void *context, uint64_t bytes);

/* A good number of fillers for this computer: one per core except the core of the uploading thread, which may spin; at least 2, at most
 * half the slots. */
uint32_t staging_fillers(void);

void staging_open(staging *self, const staging_room *room);
void staging_close(staging *self); /* after staging_upload has returned */

/* Count the fillers: enter before a filler's thread starts, leave when it takes no more slots. */
void staging_enter(staging *self);
void staging_leave(staging *self);

/* For fillers. take: waits for a free slot of slot_bytes. put: queues 0 .. slot_bytes bytes of a slot; 0 returns it unused. */
uint8_t *staging_take(staging *self);
void staging_put(staging *self, const uint8_t *slot, uint32_t rank, uint64_t address, uint64_t bytes);

/* Uploads queued slots until every filler has left; on return the device has all of their contents. progress may be null. */
void staging_upload(staging *self, staging_progress *progress, void *context);

#endif
