/* arena.h - all host memory of the engine: allocated at start-up, frozen when the engine is ready, freed as a whole.
 *
 * States: INIT (arena_take works) -> FROZEN (arena_take is a programmer error) -> closed. Blocks are never returned individually. Device
 * memory is elsewhere: gpu.h makes one reservation, and on the CPU backend arena_map takes its place. */
#ifndef VERBATIM_ARENA_H
#define VERBATIM_ARENA_H
#include "base/base.h"

enum arena_state { ARENA_INIT = 0, ARENA_FROZEN = 1 };

typedef struct arena {
  struct arena_block *blocks; /* newest first */
  uint64_t taken_bytes;
  enum arena_state state;
} arena;

/* *piece = zeroed memory, 64-byte aligned, valid until arena_close. A zeroed arena is a valid empty one. ERR_LIMIT: no memory. */
status arena_take(arena *self, uint64_t bytes, void *piece);

/* Like arena_take, for large spaces that may stay mostly untouched: the system provides pages on first write. */
status arena_map(arena *self, uint64_t bytes, void *piece);

void arena_freeze(arena *self);
void arena_close(arena *self);

#endif
