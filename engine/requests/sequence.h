/* sequence.h - the state of one slot: a request that was admitted, how far it has come, and the KV pages it has.
 *
 * schedule.c owns the sequences; schedule_pages.c takes one at a time, step_build.c reads them. Read next: schedule.h. */
#ifndef VERBATIM_SEQUENCE_H
#define VERBATIM_SEQUENCE_H
#include "base/base.h"
#include "base/digest.h"
#include "text/stop_text.h"
#include "verbatim.h"

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
  stop_text text;            /* of the tokens settled                                  */
} sequence;

#endif
