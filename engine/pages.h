/* pages.h - which KV pages are free. A page holds 64 tokens of one sequence in every layer; all pages are alike. */
#ifndef VERBATIM_PAGES_H
#define VERBATIM_PAGES_H
#include "arena.h"
#include "base.h"

typedef struct pages {
  uint32_t *free;      /* a stack; the top is dealt next */
  uint32_t free_count;
  uint32_t total;
} pages;

/* seed 0: pages are dealt in ascending order at first; else in an order made from the seed. [start-up] */
status pages_open(pages *self, uint32_t total, uint64_t seed, arena *host);

/* Moves count pages to numbers[0 .. count); the caller has checked free_count. */
void pages_take(pages *self, uint32_t *numbers, uint32_t count);
void pages_give(pages *self, const uint32_t *numbers, uint32_t count);

#endif
