/* watch.h - trace hooks: a step run op by op, with digests and values of every trace point for requests that ask, and the first NaN or Inf.
 *
 * Slow: after each op the rows of its points are read to the host. A watched step computes the same bits as any other.
 * Must not know schedules. Read next: plan/points.h, exec.h, requests/schedule.c. */
#ifndef VERBATIM_WATCH_H
#define VERBATIM_WATCH_H
#include "base/arena.h"
#include "base/base.h"
#include "exec/exec.h"
#include "plan/points.h"
#include "verbatim.h"

typedef struct watch watch;

typedef struct watch_row { /* a token row of a step, in the step's order */
  verbatim_request *request; /* its callbacks are called; null: none                 */
  uint32_t position, slot;
  uint32_t logit;            /* its logits row in the step, UINT32_MAX: none          */
  bool is_prompt;            /* one of ROWS_PROMPT                                   */
} watch_row;

typedef struct watch_fault { /* the earliest in the rows read, first by op, then by position */
  uint32_t op;               /* in the plan; UINT32_MAX: all is finite               */
  uint32_t position;
} watch_fault;

/* [start-up] Takes memory for steps of max_batch_tokens rows. trace: requests may ask for rows; else only faults are looked for. */
status watch_open(watch **out, const plan *p, exec *machine, bool trace, arena *host);

const points *watch_points(const watch *self);

/* Instead of exec_submit, for a filled image: runs the step, and returns when it has run; exec_wait gives its results as usual. Calls
 * on_values of a row's request after the op that made the row, and on_trace of all rows, in order, after the last op; neither may submit or
 * cancel. rows: all token rows of the step, whose requests stay valid until it returns. fault: replaced when a row of the step has an
 * earlier one, starting from {UINT32_MAX, UINT32_MAX}; null: not looked for. Its op is the first of its name, so that the same op is named
 * however the step was split. NaN and Inf are no fault at points where they belong (logits after `adjust`). */
void watch_step(watch *self, uint32_t side, const watch_row *rows, uint32_t row_count, watch_fault *fault);

#endif
