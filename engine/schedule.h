/* schedule.h - continuous batching: which tokens of which requests go into the next step.
 *
 * Requests are admitted in the order of arrival when a slot and all the pages they can ever need are free, so that an admitted
 * request always finishes. A step takes one row of every decoding sequence, then prompt chunks in order of admission. The
 * token chosen in one step feeds the next on the device (token -1 - slot): the host may build a step before it has seen
 * the results of the one before. A sequence that turns out to be finished then has one row too many, which is dropped; of one that is
 * cancelled all rows that are on their way.
 * No order of anything here changes a bit of a request (NUMERICS.md). Allocates at open only. Read next: request.h, exec.h. */
#ifndef VERBATIM_SCHEDULE_H
#define VERBATIM_SCHEDULE_H
#include "base.h"
#include "exec.h"
#include "pages.h"
#include "request.h"

typedef struct schedule_options {
  uint32_t max_active;    /* 0: the plan's max_seqs         */
  uint32_t chunk_tokens;  /* 0: the plan's max_batch_tokens */
  uint32_t slot_offset;
  uint64_t shuffle_pages; /* seed, 0: not */
} schedule_options;

typedef struct sequence { /* one slot */
  verbatim_request *request; /* null: free, or cancelled                               */
  bool taken;                /* not free: it has pages and a place in the order        */
  uint32_t generation;       /* how often the slot was given; rows of older ones are dropped */
  uint32_t fed;              /* prompt tokens in submitted steps                       */
  uint32_t sampled;          /* tokens asked for in submitted steps                    */
  uint32_t page_count;       /* at the start of the slot's block table row             */
  uint64_t sent;             /* number of the step that the row and the token list went up with */
  stop_text text;            /* of the tokens settled                                  */
} sequence;

typedef struct step_row { /* one logits row of a submitted step */
  uint32_t slot, generation;
  uint32_t position; /* of the token row it belongs to */
} step_row;

typedef struct schedule {
  const request_model *model;
  exec *machine;
  schedule_options options;
  pages pages;
  sequence *sequences;          /* [max_seqs]                        */
  uint32_t *order;              /* [max_seqs] slots in use, in order of admission */
  uint32_t active_count;
  step_row *rows[2];            /* [max_logit_rows] by parity        */
  uint32_t row_count[2];
  exec_slot *changed;           /* [max_seqs] to send with the next step */
  uint32_t changed_count;
  uint64_t submitted, settled;  /* steps, which are settled in order */
  verbatim_request *queue_first, *queue_last;
} schedule;

/* [start-up] */
status schedule_open(schedule *self, const request_model *model, exec *machine, const schedule_options *options, arena *host);

/* The request has been checked. */
void schedule_submit(schedule *self, verbatim_request *request);

/* Ends a request that is queued or active, and forgets it; what it holds is free at once, or when the device has read it. Returns false
 * when it is neither. */
bool schedule_cancel(schedule *self, verbatim_request *request);

/* Builds and submits a step of this parity, whose last step has been settled. Returns false when there is nothing to run. */
bool schedule_step(schedule *self, uint32_t parity);

/* Waits for the parity's step and hands its results to the requests. */
void schedule_settle(schedule *self, uint32_t parity);

/* No request is queued or active. */
bool schedule_idle(const schedule *self);

#endif
