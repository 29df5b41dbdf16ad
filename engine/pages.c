/* pages.c - see pages.h. */
#include "pages.h"

static uint64_t scramble(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

status pages_open(pages *self, uint32_t total, uint64_t seed, arena *host) {
  void *memory;
  TRY(arena_take(host, sizeof(uint32_t) * (uint64_t)total, &memory));
  *self = (pages){.free = memory, .free_count = total, .total = total};
  for (uint32_t i = 0; i < total; i++) self->free[i] = total - 1 - i;
  for (uint32_t i = total; seed && i > 1; i--) {
    uint32_t other = (uint32_t)(scramble(seed + i) % i), page = self->free[i - 1];
    self->free[i - 1] = self->free[other];
    self->free[other] = page;
  }
  return OK;
}

void pages_take(pages *self, uint32_t *numbers, uint32_t count) {
  ASSERT(count <= self->free_count);
  for (uint32_t i = 0; i < count; i++) numbers[i] = self->free[--self->free_count];
}

void pages_give(pages *self, const uint32_t *numbers, uint32_t count) {
  ASSERT(count <= self->total - self->free_count);
  for (uint32_t i = count; i > 0; i--) {
    ASSERT(numbers[i - 1] < self->total);
    self->free[self->free_count++] = numbers[i - 1];
  }
}
