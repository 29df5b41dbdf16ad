/* drafts.h - guesses of next tokens: who makes them, how often they are right, and how many a step should check.
 *
 * A step computes the rows of a sequence's newest token and of its drafts. Each row chooses its token as it would alone; a draft is
 * accepted if the row before it chose the same token. So a draft can change when a token is made, never which. Sources: the request's
 * on_draft, else the plan's: prompt lookup, the model's prediction layer, or of both the likelier. How many drafts a step takes follows
 * from how often they were right and from the times that steps took: no bit depends on it. Must not know pages, rows or the exec. Allocates
 * at open only. Read next: lookup.h, schedule.h. */
#ifndef VERBATIM_DRAFTS_H
#define VERBATIM_DRAFTS_H
#include "base/arena.h"
#include "base/limits.h"
#include "requests/lookup.h"
#include "requests/request.h"
#include "requests/sequence.h"

typedef struct drafts {
  const plan *plan;
  bool is_off;               /* no drafts at all                      */
  lookup *lookups;           /* [max_seqs]; null without prompt lookup */
  int32_t *given;            /* [max_logit_rows] what on_draft gave for a step */
  uint32_t given_count;
  double step_us[LADDER_MAX + 1]; /* mean time of decode steps by ladder size, the last: of more rows; 0: none yet */
  verbatim_counters *counters;
} drafts;

/* [start-up] is_off: every token is made by a step of its own. counters: kept. */
status drafts_open(drafts *self, const plan *p, bool is_off, verbatim_counters *counters, arena *host);

/* A sequence was admitted; its request's tokens so far are known. */
void drafts_begin(drafts *self, sequence *s);

/* A token was added to the request. */
void drafts_see(drafts *self, sequence *s);

/* A guess of the model's prediction layer: of the token `place` positions behind the sequence's next one. False: it is none. */
bool drafts_offer(sequence *s, uint32_t place, const sample_result *guess);

/* A decode step of this many token rows took this long. */
void drafts_time(drafts *self, uint32_t rows, double us);

/* Chooses s->draft for each of the sequences that decode: what they will guess from the tokens that are known. rows_most: of the step, at
 * least one for each. is_settled: no token is still in flight, so on_draft may be asked; otherwise tells only whether anyone would guess.
 * Returns whether any sequence guesses. */
bool drafts_choose(drafts *self, sequence *const *list, uint32_t count, uint32_t rows_most, bool is_settled);

/* Whether a draft is the request's token at this position, which is known. */
bool drafts_is_right(const verbatim_request *request, uint32_t position, int32_t draft);

/* Counts: a step takes the drafts that were chosen; draft number `place` of the sequence was right; the next one was wrong. */
void drafts_take(drafts *self, sequence *s);
void drafts_accept(drafts *self, sequence *s, uint32_t place);
void drafts_reject(sequence *s);

#endif
