/* lookup.h - prompt lookup: where the newest tokens of a request occurred before in it.
 *
 * One index for each slot: a hash table of runs of match_min tokens, chained by position, so that a token is added and a run is found in
 * a time that does not depend on the context's length. Says what to guess, never what to emit. Allocates at open only. Read next:
 * drafts.h. */
#ifndef VERBATIM_LOOKUP_H
#define VERBATIM_LOOKUP_H
#include "base/arena.h"
#include "base/base.h"
#include "plan/format.h"
#include "verbatim.h"

typedef struct lookup { /* of one slot */
  uint32_t *head;     /* [LOOKUP_BUCKETS] 1 + the newest position whose run of tokens has this hash; 0: none */
  uint32_t *previous; /* [max_len] by position: the same before it */
  uint32_t count;     /* tokens added: positions 0 .. count - 1 */
} lookup;

/* [start-up] One for each slot: [max_seqs]. The plan has a match_min. */
status lookup_open(const plan_limits *limits, arena *host, lookup **out);

/* Forgets all tokens. */
void lookup_clear(lookup *self);

/* Adds the request's tokens up to position count - 1, which are known. */
void lookup_add(lookup *self, const plan_limits *limits, const verbatim_request *request, uint32_t count);

/* Guesses the tokens that follow those added: what followed the longest equal run, of at least match_min tokens, of several equally long
 * ones the newest. ids: [most]. Returns how many; fewer than `most` only if there is no such run. */
uint32_t lookup_guess(const lookup *self, const plan_limits *limits, const verbatim_request *request, uint32_t most, int32_t *ids);

#endif
