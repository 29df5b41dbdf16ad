/* sequence.h - the state of one slot: a request that was admitted, how far it has come, and the KV pages it has.
 *
 * schedule.c owns the sequences; schedule_pages.c takes one at a time, step_build.c reads them. Read next: schedule.h. */
#ifndef VERBATIM_SEQUENCE_H
#define VERBATIM_SEQUENCE_H
#include "base/base.h"
#include "base/digest.h"
#include "base/limits.h"
#include "text/stop_text.h"
#include "verbatim.h"

enum draft_source { DRAFT_FOUND = 0, DRAFT_OFFERED = 1, DRAFT_SOURCES = 2 };

typedef struct draft_state { /* guesses of a sequence's next tokens */
  int32_t found[DRAFT_TOKENS_MAX]; /* by prompt lookup */
  int32_t offered[DRAFT_TOKENS_MAX]; /* [offered_count] by the model's prediction layer */
  uint32_t offered_count;
  const int32_t *ids;        /* [count]: one of these, or those of on_draft */
  uint32_t count, taken;     /* a step takes the first `taken`     */
  uint32_t accepted;         /* of these, while the step is settled */
  uint32_t source;           /* of ids: enum draft_source          */
  double acceptance[DRAFT_SOURCES]; /* share of a source's guesses that were right, of late                        */
  int32_t shadow;            /* a guess of the next token that no step checks, or -1: shows whether checking pays again */
  bool was_taken;            /* the last step had drafts: the newest token is not in the slot on the device        */
  bool is_alone;             /* the next step must not have drafts: in one with drafts the logits were not finite  */
} draft_state;

typedef struct sequence {
  verbatim_request *request; /* null: free, or cancelled, preempted or finished and waiting for the device */
  uint32_t slot;             /* its number                                             */
  bool taken;                /* has a place in the order                               */
  bool is_broken;            /* its logits at `broken` were not finite                 */
  uint32_t generation;       /* how often the slot was given; rows of older generations are dropped */
  uint32_t known;            /* tokens that were known at admission: of the prompt, and generated before a preemption */
  uint32_t computed;         /* positions 0 .. computed - 1 are in submitted steps, or from the prefix cache */
  uint32_t sampled;          /* tokens generated, or asked for in submitted steps        */
  uint32_t page_count;       /* at the start of the slot's block table row             */
  uint32_t named;            /* full pages of these that have their key                */
  uint32_t broken;           /* a position                                             */
  digest key;                /* of the pages up to `named`                             */
  uint32_t constrained;      /* state of the request's constraint after the tokens settled */
  stop_text text;            /* of the tokens settled                                  */
  draft_state draft;
} sequence;

#endif
