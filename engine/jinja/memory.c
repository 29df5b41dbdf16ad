/* jinja/memory.c - see jinja/memory.h. */
#include "jinja/memory.h"
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)64 << 10)

typedef struct jinja_block {
  struct jinja_block *next;
  size_t used, room;
  _Alignas(16) char bytes[];
} jinja_block;

void jinja_memory_close(jinja_memory *self) {
  for (jinja_block *block = self->blocks, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  *self = (jinja_memory){0};
}

static status add_block(jinja_memory *self, size_t bytes) {
  size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
  if (room > JINJA_MEMORY_BYTES_MAX - self->bytes)
    return FAIL(ERR_LIMIT, "chat template: its values need more than %u bytes", JINJA_MEMORY_BYTES_MAX);
  jinja_block *block = calloc(1, sizeof *block + room);
  if (!block) return FAIL(ERR_LIMIT, "chat template: no memory");
  block->next = self->blocks;
  block->room = room;
  self->blocks = block;
  self->bytes += room;
  return OK;
}

status jinja_memory_take(jinja_memory *self, size_t bytes, void *piece) {
  if (bytes > JINJA_MEMORY_BYTES_MAX)
    return FAIL(ERR_LIMIT, "chat template: its values need more than %u bytes", JINJA_MEMORY_BYTES_MAX);
  bytes = (bytes + 15) & ~(size_t)15;
  if (!self->blocks || bytes > self->blocks->room - self->blocks->used) TRY(add_block(self, bytes));
  void *start = self->blocks->bytes + self->blocks->used;
  self->blocks->used += bytes;
  memcpy(piece, &start, sizeof start);
  return OK;
}

status jinja_memory_step(jinja_memory *self, size_t bytes) {
  size_t steps = 1 + bytes / 64;
  if (steps > JINJA_STEPS_MAX - self->steps) return FAIL(ERR_LIMIT, "chat template: it takes more than %u steps", JINJA_STEPS_MAX);
  self->steps += (uint32_t)steps;
  return OK;
}
