/* pages.h - the allocator of KV pages, and the prefix cache: how many use each page, and which unused ones hold rows worth keeping.
 *
 * A page holds 64 tokens in every layer. A KV row is a function of the tokens up to its own (NUMERICS.md), so a full page is identified by
 * its key, a digest of all token ids up to its end, and any sequence with the same tokens may read it, at the same time or later.
 * States: FREE (holds nothing) -> in use (users > 0; may get a key) -> KEPT (no user, but a key) -> in use again, or, when no page is free,
 * evicted, the least recently used one first. Must not know requests. Read next: schedule_pages.h. */
#ifndef VERBATIM_PAGES_H
#define VERBATIM_PAGES_H
#include "base/arena.h"
#include "base/base.h"
#include "base/digest.h"

#define PAGES_NONE UINT32_MAX

typedef struct kv_page {
  digest key;             /* of a page with has_key               */
  uint32_t next_in_bucket;
  uint32_t older, newer;  /* KEPT: in the order of last use       */
  uint32_t users;
  bool has_key;
} kv_page;

typedef struct pages {
  kv_page *list;            /* [total]                              */
  uint32_t *buckets;      /* [bucket_count] first page of each    */
  uint32_t bucket_count;  /* a power of two                       */
  uint32_t *free;         /* a stack; the top is taken next       */
  uint32_t free_count, kept_count, total;
  uint32_t oldest, newest; /* KEPT pages, PAGES_NONE: there are none */
} pages;

/* seed 0: free pages are taken in ascending order at first; else in an order made from the seed. [start-up] */
status pages_open(pages *self, uint32_t total, uint64_t seed, arena *host);

/* How many can be taken: free and kept ones. */
uint32_t pages_available(const pages *self);

/* Takes a page, which has one user and no key. One must be available. *evicted: it was kept, and what it held is lost. */
uint32_t pages_take(pages *self, bool *evicted);

/* The page of that key, or PAGES_NONE; pages_find adds a user. */
uint32_t pages_peek(const pages *self, const digest *key);
uint32_t pages_find(pages *self, const digest *key);

/* Gives a page in use its key, unless another page has that key already: then it stays without. */
void pages_name(pages *self, uint32_t number, const digest *key);

/* Takes a user away. Returns true when the page is free now. */
bool pages_give(pages *self, uint32_t number);

/* Takes all keys away: no page is found any more. Those that were kept are free now, the last ones of the stack. Returns their number. */
uint32_t pages_forget(pages *self);

#endif
