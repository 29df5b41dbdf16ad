/* watch.h - steps that are looked into, op by op: digests and values of every point for those who asked, and where NaN or Inf begins.
 *
 * Slow, and exact: after each op the rows of its points are read to the host. What a watched step computes has the bits of any other.
 * Read next: points.h, exec.h, schedule.c. */
#ifndef VERBATIM_WATCH_H
#define VERBATIM_WATCH_H
#include "base/arena.h"
#include "base/base.h"
#include "exec/exec.h"
#include "plan/points.h"
#include "verbatim.h"

typedef struct watch watch;

typedef struct watch_row { /* a token row of a step, in the step's order */
  verbatim_request *request; /* its callbacks are called; null: nobody asks          */
  uint32_t position, slot;
  uint32_t logit;            /* its logits row in the step, UINT32_MAX: none          */
  bool is_prompt;            /* of the step's prompts, as ROWS_PROMPT says            */
} watch_row;

typedef struct watch_fault { /* of the rows looked at: first by op, then by position */
  uint32_t op;               /* in the plan; UINT32_MAX: all is finite               */
  uint32_t position;
} watch_fault;

/* [start-up] Takes memory for steps of max_batch_tokens rows. trace: for requests that ask; else only watch_locate will be called. */
status watch_open(watch **out, const plan *p, exec *machine, bool trace, arena *host);

const points *watch_points(const watch *self);

/* In place of exec_submit, for a filled image: runs the step, calls on_values of its rows' requests after the op that made the row, and
 * on_trace of all rows, in order, after the last op; neither may submit or cancel. rows: all token rows of the step, whose requests stay
 * valid until it returns. When it returns the step has run; exec_wait gives its results as ever. fault: improved when a row of the
 * step has an earlier one; start from {UINT32_MAX, UINT32_MAX}; null: not looked for. Its op is the first of its name, so that the same
 * is named however the step was cut. NaN and Inf in points where they belong (logits after `adjust`) are none. */
void watch_step(watch *self, uint32_t side, const watch_row *rows, uint32_t row_count, watch_fault *fault);

#endif
