/* masks.c - see masks.h. A table of chains; when it is full the oldest entry gives its place. Runs in the step loop. */
#include "constrain/masks.h"
#include <string.h>

#define MASKS_NONE UINT32_MAX

status masks_open(masks *self, const tokenizer *t, uint32_t vocab, uint32_t words, arena *host) {
  const uint32_t fitting = MASKS_BYTES / (words * (uint32_t)sizeof *self->bits), room = min_u32(max_u32(fitting, MASKS_LEAST), MASKS_MOST);
  void *entries, *chains, *bits;
  *self = (masks){.words = words, .room = room};
  TRY(vocabulary_open(&self->vocabulary, t, vocab, host));
  TRY(arena_take(host, sizeof *self->entries * room, &entries));
  TRY(arena_take(host, sizeof *self->chains * room, &chains));
  TRY(arena_map(host, sizeof *self->bits * (uint64_t)room * words, &bits));
  self->entries = entries;
  self->chains = chains;
  self->bits = bits;
  for (uint32_t i = 0; i < room; i++) self->chains[i] = MASKS_NONE;
  return OK;
}

static uint32_t chain_of(const masks *self, const digest *constraint, uint32_t state) {
  uint64_t hash;
  memcpy(&hash, constraint->bytes, sizeof hash);
  return (uint32_t)((hash + state * 0x9e3779b97f4a7c15ull) % self->room);
}

static uint32_t find(const masks *self, const digest *constraint, uint32_t state) {
  for (uint32_t at = self->chains[chain_of(self, constraint, state)]; at != MASKS_NONE; at = self->entries[at].next) {
    const masks_entry *e = &self->entries[at];
    if (e->state == state && memcmp(e->constraint.bytes, constraint->bytes, DIGEST_BYTES) == 0) return at;
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
  uint32_t *way = &self->chains[chain_of(self, &self->entries[at].constraint, self->entries[at].state)];
  while (*way != at) way = &self->entries[*way].next;
  *way = self->entries[at].next;
}

static uint32_t add(masks *self, const verbatim_constraint *c, uint32_t state) {
  uint32_t at = self->count;
  if (at < self->room) self->count++;
  else unlink_entry(self, at = oldest(self));
  uint32_t *chain = &self->chains[chain_of(self, &c->identity, state)];
  self->entries[at] = (masks_entry){.constraint = c->identity, .state = state, .next = *chain};
  *chain = at;
  vocabulary_mask(&self->vocabulary, &c->automaton, state, self->bits + (uint64_t)at * self->words, self->words);
  return at;
}

void masks_write(masks *self, const verbatim_constraint *c, uint32_t state, const int32_t *stop_ids, uint32_t stop_count, uint32_t *out) {
  uint32_t at = find(self, &c->identity, state);
  ASSERT(state != AUTOMATON_DEAD && state < c->automaton.state_count);
  if (at == MASKS_NONE) at = add(self, c, state), self->misses++;
  else self->hits++;
  self->entries[at].used_at = ++self->clock;
  memcpy(out, self->bits + (uint64_t)at * self->words, self->words * sizeof *out);
  for (uint32_t i = 0; i < stop_count; i++) {
    const uint32_t id = (uint32_t)stop_ids[i], bit = 1u << id % 32;
    if (c->automaton.is_accepting[state]) out[id / 32] |= bit;
    else out[id / 32] &= ~bit;
  }
}
