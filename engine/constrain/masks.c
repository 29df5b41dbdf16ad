/* masks.c - see masks.h. A table of chains; when it is full the oldest entry gives its place. Runs in the step loop. */
#include "constrain/masks.h"
#include <string.h>

#define MASKS_NONE UINT32_MAX

status masks_open(masks *self, const tokenizer *t, uint32_t vocab, uint32_t words, uint32_t room, arena *host) {
  void *entries, *chains;
  *self = (masks){.words = words, .room = room};
  TRY(vocabulary_open(&self->vocabulary, t, vocab, host));
  TRY(arena_take(host, sizeof *self->entries * room, &entries));
  TRY(arena_take(host, sizeof *self->chains * room, &chains));
  self->entries = entries;
  self->chains = chains;
  for (uint32_t i = 0; i < room; i++) self->chains[i] = MASKS_NONE;
  return OK;
}

static digest key_of(const verbatim_constraint *c, const int32_t *stop_ids, uint32_t stop_count) {
  digest_state state;
  digest_start(&state);
  digest_add(&state, c->identity.bytes, DIGEST_BYTES);
  digest_add(&state, stop_ids, sizeof *stop_ids * stop_count);
  return digest_end(&state);
}

static uint32_t chain_of(const masks *self, const digest *key, uint32_t state) {
  uint64_t hash;
  memcpy(&hash, key->bytes, sizeof hash);
  return (uint32_t)((hash + state * 0x9e3779b97f4a7c15ull) % self->room);
}

static uint32_t find(const masks *self, const digest *key, uint32_t state) {
  for (uint32_t at = self->chains[chain_of(self, key, state)]; at != MASKS_NONE; at = self->entries[at].next) {
    const masks_entry *e = &self->entries[at];
    if (e->state == state && memcmp(e->key.bytes, key->bytes, DIGEST_BYTES) == 0) return at;
  }
  return MASKS_NONE;
}

static uint32_t oldest(const masks *self) {
  uint32_t found = 0;
  for (uint32_t i = 1; i < self->count; i++)
    if (self->entries[i].used_at < self->entries[found].used_at) found = i;
  return found;
}

static void unlink_entry(masks *self, uint32_t at) {
  uint32_t *way = &self->chains[chain_of(self, &self->entries[at].key, self->entries[at].state)];
  while (*way != at) way = &self->entries[*way].next;
  *way = self->entries[at].next;
}

static uint32_t add(masks *self, const digest *key, uint32_t state) {
  uint32_t at = self->count;
  if (at < self->room) self->count++;
  else unlink_entry(self, at = oldest(self));
  uint32_t *chain = &self->chains[chain_of(self, key, state)];
  self->entries[at] = (masks_entry){.key = *key, .state = state, .next = *chain, .made = ++self->misses};
  *chain = at;
  return at;
}

static void compute(const masks *self, uint32_t at, const verbatim_constraint *c, const int32_t *stop_ids, uint32_t stop_count) {
  const uint32_t state = self->entries[at].state;
  uint32_t *out = self->bits + (uint64_t)at * self->words;
  vocabulary_mask(&self->vocabulary, &c->automaton, state, out, self->words);
  for (uint32_t i = 0; i < stop_count; i++) {
    const uint32_t id = (uint32_t)stop_ids[i], bit = 1u << id % 32;
    if (c->automaton.is_accepting[state]) out[id / 32] |= bit;
    else out[id / 32] &= ~bit;
  }
}

masks_row masks_find(masks *self, const verbatim_constraint *c, uint32_t state, const int32_t *stop_ids, uint32_t stop_count) {
  const digest key = key_of(c, stop_ids, stop_count);
  uint32_t at = find(self, &key, state);
  ASSERT(self->bits && state != AUTOMATON_DEAD && state < c->automaton.state_count);
  if (at == MASKS_NONE) compute(self, at = add(self, &key, state), c, stop_ids, stop_count);
  else self->hits++;
  self->entries[at].used_at = ++self->clock;
  return (masks_row){.row = at, .made = self->entries[at].made};
}
