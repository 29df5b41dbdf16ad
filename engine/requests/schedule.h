/* schedule.h - continuous batching: which tokens of which requests go into the next step.
 *
 * Requests are admitted in the order of arrival, when a slot is free and there are pages for what is known of them. A step takes one row
 * of every sequence that decodes, then prompt chunks: a page's worth of every sequence that still has any, the rest in the order of
 * admission. So a step in which one prompt is long holds no other sequence up by more than itself. Pages are taken as a sequence
 * grows. When there is none for one that decodes, the sequence admitted last is preempted: it gives its pages back, waits in front of the
 * queue, and its tokens are fed again later. The oldest sequence is never preempted, and a request that cannot fit alone is never
 * admitted: all end.
 * The token chosen in one step feeds the next on the device (token -1 - slot): the host may build a step before it has seen the results of
 * the one before. A sequence that turns out to be finished then has one row too many, which is dropped; of one that is cancelled or
 * preempted, all rows that are on their way.
 * No order of anything here changes a bit of a request (NUMERICS.md). Allocates at open only. Read next: schedule_pages.h, request.h. */
#ifndef VERBATIM_SCHEDULE_H
#define VERBATIM_SCHEDULE_H
#include "base/base.h"
#include "exec/exec.h"
#include "exec/watch.h"
#include "requests/pages.h"
#include "requests/request.h"
#include "requests/schedule_pages.h"
#include "requests/sequence.h"
#include "requests/step_build.h"

typedef struct schedule_options {
  uint32_t max_active;    /* 0: the plan's max_seqs         */
  uint32_t chunk_tokens;  /* 0: the plan's max_batch_tokens */
  uint32_t slot_offset;
  uint64_t shuffle_pages; /* seed, 0: not */
  bool no_prefix_cache;
  bool trace;             /* every step is watched: requests may ask for its rows; no prefix cache */
} schedule_options;

typedef struct schedule {
  const request_model *model;
  exec *machine;
  block_table *table;           /* the machine's                     */
  watch *watch;
  schedule_options options;
  pages pages;
  schedule_pages kv;            /* which of them each sequence has   */
  sequence *sequences;          /* [max_seqs]                        */
  uint32_t *order;              /* [max_seqs] slots in use, in order of admission */
  uint32_t active_count;
  step_row *rows[2];            /* [max_logit_rows] by side        */
  uint32_t row_count[2];
  watch_row *watched;           /* [max_batch_tokens]                */
  uint64_t submitted, settled;  /* steps, which are settled in order */
  uint64_t timed;               /* requests with a deadline, queued or active */
  verbatim_request *queue_first, *queue_last;
  verbatim_counters counters;
} schedule;

/* [start-up] */
status schedule_open(schedule *self, const request_model *model, exec *machine, watch *watcher, const schedule_options *options,
                     arena *host);

/* The request has been checked and started. */
void schedule_submit(schedule *self, verbatim_request *request);

/* Ends a request that is queued or active, and forgets it; what it holds is free at once, or when the device has read it. Returns false
 * when it is neither. */
bool schedule_cancel(schedule *self, verbatim_request *request);

/* Ends requests whose time is over. */
void schedule_expire(schedule *self);

/* Builds and submits a step of this side, whose last step has been settled. Returns false when there is nothing to run. */
bool schedule_step(schedule *self, uint32_t side);

/* Waits for the side's step and hands its results to the requests. */
void schedule_settle(schedule *self, uint32_t side);

/* No request is queued or active. */
bool schedule_idle(const schedule *self);

#endif
