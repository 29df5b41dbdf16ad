/* pages.c - see pages.h. */
#include "requests/pages.h"
#include <string.h>

static uint64_t scramble(uint64_t z) { return random_next(&z); }

status pages_open(pages *self, uint32_t total, uint64_t seed, arena *host) {
  void *list, *buckets, *numbers;
  uint32_t bucket_count = 1;
  while (bucket_count < total) bucket_count *= 2;
  TRY(arena_take(host, sizeof(kv_page) * (uint64_t)total, &list));
  TRY(arena_take(host, sizeof(uint32_t) * (uint64_t)bucket_count, &buckets));
  TRY(arena_take(host, sizeof(uint32_t) * (uint64_t)total, &numbers));
  *self = (pages){.list = list, .buckets = buckets, .bucket_count = bucket_count, .free = numbers, .free_count = total, .total = total,
                  .oldest = PAGES_NONE, .newest = PAGES_NONE};
  for (uint32_t i = 0; i < bucket_count; i++) self->buckets[i] = PAGES_NONE;
  for (uint32_t i = 0; i < total; i++) self->free[i] = total - 1 - i;
  for (uint32_t i = total; seed && i > 1; i--) {
    uint32_t other = (uint32_t)(scramble(seed + i) % i), number = self->free[i - 1];
    self->free[i - 1] = self->free[other];
    self->free[other] = number;
  }
  return OK;
}

uint32_t pages_available(const pages *self) { return self->free_count + self->kept_count; }

/* === Kept pages, by last use ================================================================================================ */

static void keep(pages *self, uint32_t number) {
  kv_page *p = &self->list[number];
  p->older = self->newest;
  p->newer = PAGES_NONE;
  if (self->newest == PAGES_NONE) self->oldest = number;
  else self->list[self->newest].newer = number;
  self->newest = number;
  self->kept_count++;
}

static void unkeep(pages *self, uint32_t number) {
  const kv_page *p = &self->list[number];
  if (p->older == PAGES_NONE) self->oldest = p->newer;
  else self->list[p->older].newer = p->newer;
  if (p->newer == PAGES_NONE) self->newest = p->older;
  else self->list[p->newer].older = p->older;
  self->kept_count--;
}

/* === Keys =================================================================================================================== */

static uint32_t *bucket_of(const pages *self, const digest *key) {
  uint32_t word;
  memcpy(&word, key->bytes, sizeof word);
  return &self->buckets[word & (self->bucket_count - 1)];
}

uint32_t pages_peek(const pages *self, const digest *key) {
  uint32_t number = *bucket_of(self, key);
  while (number != PAGES_NONE && memcmp(self->list[number].key.bytes, key->bytes, DIGEST_BYTES) != 0)
    number = self->list[number].next_in_bucket;
  return number;
}

static void forget_key(pages *self, uint32_t number) {
  kv_page *p = &self->list[number];
  uint32_t *at = bucket_of(self, &p->key);
  while (*at != number) at = &self->list[*at].next_in_bucket;
  *at = p->next_in_bucket;
  p->has_key = false;
}

/* === Use ==================================================================================================================== */

uint32_t pages_take(pages *self, bool *evicted) {
  ASSERT(pages_available(self) > 0);
  *evicted = self->free_count == 0;
  uint32_t number = *evicted ? self->oldest : self->free[self->free_count - 1];
  if (*evicted) {
    unkeep(self, number);
    forget_key(self, number);
  } else {
    self->free_count--;
  }
  self->list[number].users = 1;
  return number;
}

uint32_t pages_find(pages *self, const digest *key) {
  uint32_t number = pages_peek(self, key);
  if (number == PAGES_NONE) return number;
  if (self->list[number].users++ == 0) unkeep(self, number);
  return number;
}

void pages_name(pages *self, uint32_t number, const digest *key) {
  ASSERT(number < self->total && self->list[number].users > 0);
  kv_page *p = &self->list[number];
  if (p->has_key || pages_peek(self, key) != PAGES_NONE) return;
  uint32_t *bucket = bucket_of(self, key);
  p->key = *key;
  p->has_key = true;
  p->next_in_bucket = *bucket;
  *bucket = number;
}

bool pages_give(pages *self, uint32_t number) {
  ASSERT(number < self->total && self->list[number].users > 0);
  kv_page *p = &self->list[number];
  if (--p->users) return false;
  if (p->has_key) keep(self, number);
  else self->free[self->free_count++] = number;
  return !p->has_key;
}

uint32_t pages_forget(pages *self) {
  uint32_t count = self->kept_count;
  while (self->kept_count > 0) {
    uint32_t number = self->oldest;
    unkeep(self, number);
    forget_key(self, number);
    self->free[self->free_count++] = number;
  }
  for (uint32_t i = 0; i < self->total; i++)
    if (self->list[i].has_key) forget_key(self, i);
  return count;
}
