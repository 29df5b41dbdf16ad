/* arena.c - see arena.h. A list of mappings and blocks; small requests share blocks of 64 KiB. */
#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS, MAP_NORESERVE */
#include "base/arena.h"
#include "base/system.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE_ALIGN 64u
#define BLOCK_BYTES 65536u

struct arena_block {
  struct arena_block *next;
  uint64_t bytes, used; /* of the memory after the header, or of the mapping */
  void *mapping;        /* NULL: the memory follows the header                */
};
#define HEADER_BYTES ((uint64_t)PIECE_ALIGN)
_Static_assert(sizeof(struct arena_block) <= PIECE_ALIGN, "the header takes one aligned unit");

static status add_block(arena *self, uint64_t bytes) {
  void *memory = NULL;
  if (bytes > SIZE_MAX - HEADER_BYTES || posix_memalign(&memory, PIECE_ALIGN, HEADER_BYTES + bytes) != 0)
    return FAIL(ERR_LIMIT, "host memory: %llu bytes cannot be had", (unsigned long long)bytes);
  memset(memory, 0, HEADER_BYTES + bytes);
  struct arena_block *block = memory;
  block->next = self->blocks;
  block->bytes = bytes;
  self->blocks = block;
  return OK;
}

status arena_take(arena *self, uint64_t bytes, void *piece) {
  ASSERT(self->state == ARENA_INIT);
  ASSERT(bytes <= UINT64_MAX / 2);
  bytes = align_up(bytes ? bytes : 1, PIECE_ALIGN);
  struct arena_block *top = self->blocks;
  if (!top || top->mapping || top->bytes - top->used < bytes) {
    TRY(add_block(self, bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES));
    top = self->blocks;
  }
  void *memory = (uint8_t *)top + HEADER_BYTES + top->used;
  top->used += bytes;
  self->taken_bytes += bytes;
  memcpy(piece, &memory, sizeof memory);
  return OK;
}

status arena_map(arena *self, uint64_t bytes, void *piece) {
  ASSERT(self->state == ARENA_INIT);
  ASSERT(bytes > 0);
  TRY(add_block(self, 0));
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return FAIL(ERR_LIMIT, "host memory: %llu bytes cannot be mapped", (unsigned long long)bytes);
  system_want_huge_pages(memory, bytes); /* loads weights two to five times as fast */
  self->blocks->mapping = memory;
  self->blocks->bytes = bytes;
  self->taken_bytes += bytes;
  memcpy(piece, &memory, sizeof memory);
  return OK;
}

void arena_freeze(arena *self) { self->state = ARENA_FROZEN; }

void arena_close(arena *self) {
  while (self->blocks) {
    struct arena_block *block = self->blocks;
    self->blocks = block->next;
    if (block->mapping) munmap(block->mapping, block->bytes);
    free(block);
  }
  *self = (arena){0};
}
