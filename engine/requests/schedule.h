/* schedule.h - continuous batching: which tokens of which requests go into the next step.
 *
 * Requests are admitted in the order of arrival, when a slot and enough KV pages for the known tokens are free. A step takes one row of
 * every sequence that decodes, then prompt chunks: up to a page's worth of every sequence that has prompt tokens left, the rest in the
 * order of admission, so a long prompt does not starve the others. Pages are taken as a sequence grows. When there is none for a sequence
 * that decodes, the sequence admitted last is preempted: it gives its pages back, goes to the front of the queue, and is computed again
 * later. The oldest sequence is never preempted, and a request that could never fit is rejected, so every admitted request terminates. The
 * token chosen in one step is fed to the next on the device (token -1 - slot), so the host may build a step before it has seen the results
 * of the previous one. If a sequence turns out to have finished, its extra row is dropped; if it was cancelled or preempted, all its
 * in-flight rows are. When a sequence guesses its next tokens (drafts.h), the step in flight is settled first; the rows behind a wrong
 * guess are dropped, and those of the next step take their places.
 * No decision here changes a bit of a request (NUMERICS.md). Allocates at open only. Read next: step_build.h, schedule_pages.h. */
#ifndef VERBATIM_SCHEDULE_H
#define VERBATIM_SCHEDULE_H
#include "base/base.h"
#include "exec/exec.h"
#include "exec/watch.h"
#include "requests/drafts.h"
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
  bool no_drafts;
  bool trace;             /* every step is watched: requests may ask for its rows; no prefix cache, no drafts */
} schedule_options;

typedef struct schedule {
  const request_model *model;
  exec *machine;
  block_table *table;           /* exec's                            */
  watch *watch;
  schedule_options options;
  pages pages;
  schedule_pages kv;            /* which of them each sequence has   */
  drafts drafts;
  sequence *sequences;          /* [max_seqs]                        */
  uint32_t *order;              /* [max_seqs] slots in use, in order of admission */
  sequence **decoding;          /* [max_seqs] those with a row of their newest token in the step being built */
  uint32_t active_count;
  step_row *rows[2];            /* [max_logit_rows] by side        */
  uint32_t row_count[2];
  step_drafted *drafted[2];     /* [max_seqs] by side              */
  uint32_t drafted_count[2];
  watch_row *watched;           /* [max_batch_tokens]                */
  uint64_t submitted, settled;  /* steps, which are settled in order */
  bool has_drafts;              /* the step in flight has drafts      */
  uint32_t decode_rows[2];      /* by side: rows of a step that decodes only, else 0 */
  double submit_us[2];          /* by side: the time that submitting took            */
  uint64_t timed;               /* requests with a deadline, queued or active */
  verbatim_request *queue_first, *queue_last;
  verbatim_counters counters;
} schedule;

/* [start-up] */
status schedule_open(schedule *self, const request_model *model, exec *machine, watch *watcher, const schedule_options *options,
                     arena *host);

/* The request has been checked and started. */
void schedule_submit(schedule *self, verbatim_request *request);

/* Ends a request that is queued or active, and forgets it. Its pages are free at once, its slot when the device has read the slot's row.
 * Returns false when it is neither. */
/* The request was submitted here and is not finished. Quick for one whose engine_state is zero, as it is before and after. */
bool schedule_has(const schedule *self, const verbatim_request *request);

bool schedule_cancel(schedule *self, verbatim_request *request);

/* Ends requests whose deadline has passed. */
void schedule_expire(schedule *self);

/* Builds and submits a step of this side, whose last step has been settled. Returns false when there is nothing to run. */
bool schedule_step(schedule *self, uint32_t side);

/* Waits for the side's step and hands its results to the requests. */
void schedule_settle(schedule *self, uint32_t side);

/* No request is queued or active. */
bool schedule_idle(const schedule *self);

#endif
