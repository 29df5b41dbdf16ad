/* masks.h - the token masks of an engine: computed once for each state of a constraint, kept in memory that is fixed at start-up.
 *
 * A mask is a function of the constraint's automaton, the state and the vocabulary, so whether it was kept or is computed again changes
 * nothing. The least recently used one makes room. Requests with equal constraints share masks (up to collisions of 128-bit
 * digests). Allocates at open only. Read next: vocabulary.h, requests/step_build.h. */
#ifndef VERBATIM_CONSTRAIN_MASKS_H
#define VERBATIM_CONSTRAIN_MASKS_H
#include "base/arena.h"
#include "constrain/constraint.h"
#include "constrain/vocabulary.h"

#define MASKS_BYTES (32u << 20) /* of the masks that are kept */
#define MASKS_LEAST 64u
#define MASKS_MOST 4096u

typedef struct masks_entry {
  digest constraint;
  uint32_t state;
  uint32_t next;    /* in the chain of its hash, MASKS_NONE: the last */
  uint64_t used_at;
} masks_entry;

typedef struct masks {
  vocabulary vocabulary;
  uint32_t words;        /* of a mask */
  uint32_t room, count;  /* masks */
  masks_entry *entries;  /* [room] */
  uint32_t *chains;      /* [room] first entry by hash */
  uint32_t *bits;        /* [room][words] */
  uint64_t clock;
  uint64_t hits, misses; /* look-ups that found a mask, and those that computed one */
} masks;

/* [start-up] */
status masks_open(masks *self, const tokenizer *t, uint32_t vocab, uint32_t words, arena *host);

/* Writes the mask of the tokens that may follow: those that the automaton takes, and if it accepts also the stop ids, which are in no mask
 * otherwise. out: [words] */
void masks_write(masks *self, const verbatim_constraint *c, uint32_t state, const int32_t *stop_ids, uint32_t stop_count, uint32_t *out);

/* The mask allows the token. */
static inline bool masks_allows(const uint32_t *mask, int32_t token) { return (mask[token / 32] >> token % 32 & 1) != 0; }

#endif
