/* masks.h - the token masks of an engine: computed once for each state of a constraint, kept in memory that is fixed at start-up.
 *
 * A mask is a function of the constraint's automaton, the state, the stop ids and the vocabulary, so whether it was kept or is computed
 * again changes nothing. The least recently used one makes room. Requests with equal constraints and stop ids share masks (up to
 * collisions of 128-bit digests). Allocates at open only. Read next: vocabulary.h, requests/step_build.h. */
#ifndef VERBATIM_CONSTRAIN_MASKS_H
#define VERBATIM_CONSTRAIN_MASKS_H
#include "base/arena.h"
#include "constrain/constraint.h"
#include "constrain/vocabulary.h"

typedef struct masks_entry {
  digest key;       /* of the constraint and the stop ids */
  uint32_t state;
  uint32_t next;    /* in the chain of its hash, MASKS_NONE: the last */
  uint64_t used_at;
  uint64_t made;    /* number of this computation */
} masks_entry;

/* A mask's row in masks.bits, and the number of its computation: another number says that the row holds another mask. */
typedef struct masks_row {
  uint32_t row;
  uint64_t made; /* from 1 */
} masks_row;

typedef struct masks {
  vocabulary vocabulary;
  uint32_t words;        /* of a mask */
  uint32_t room, count;  /* masks */
  masks_entry *entries;  /* [room] */
  uint32_t *chains;      /* [room] first entry by hash */
  uint32_t *bits;        /* [room][words], the caller's */
  uint64_t clock;
  uint64_t hits, misses; /* look-ups that found a mask, and those that computed one */
} masks;

/* [start-up] room: masks that are kept, at least 1. The caller sets `bits` before the first mask is asked for. */
status masks_open(masks *self, const tokenizer *t, uint32_t vocab, uint32_t words, uint32_t room, arena *host);

/* The mask of the tokens that may follow: those that the automaton takes, and if it accepts also the stop ids, which are in no mask
 * otherwise. It stays in its row until `room` others have been asked for. */
masks_row masks_find(masks *self, const verbatim_constraint *c, uint32_t state, const int32_t *stop_ids, uint32_t stop_count);

/* The mask allows the token. */
static inline bool masks_allows(const uint32_t *mask, int32_t token) { return (mask[token / 32] >> token % 32 & 1) != 0; }

#endif
