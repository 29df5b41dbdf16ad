/* bench/state.h - state and functions shared by the files of this folder. Private to bench*.c. */
#ifndef VERBATIM_BENCH_STATE_H
#define VERBATIM_BENCH_STATE_H
#include "base/arena.h"
#include "bench/bench.h"
#include "exec/exec.h"
#include "exec/bench.h"
#include "exec/devices.h"

#define BENCH_BATCHES_MAX 7u /* of decode steps: 1, 4, 16, ... and max_seqs */
_Static_assert(SEQS_MAX <= 1u << 2 * (BENCH_BATCHES_MAX - 2), "powers of four, and the last");

struct bench {
  bench_options options;
  const plan *plan;
  arena host;
  devices devices; /* none on the CPU */
  cpu_pool *pool;
  exec *machine;
  exec_bench timer;
  bench_report report;
  bench_list rows, op_contexts, step_contexts;
  uint32_t *pages;      /* [kv_pages] in random order */
  uint32_t *position;   /* [max_batch_tokens] of the most recently filled step */
  uint64_t kv_rows;     /* that it attends to         */
  uint64_t random;      /* state of the random generator */
  uint32_t ops_max, decodes_max;
};

typedef struct bench_span { /* tokens of one sequence in a step */
  uint32_t slot, position, count;
  uint32_t logits; /* of the last ones */
} bench_span;

/* bench/fill.c: random weights, before the tables; random KV rows, after the graphs. */
status bench_fill_weights(bench *self);
status bench_fill_kv(bench *self);

/* bench/step.c. deal: gives each of `seqs` slots its own pages for this many tokens; false: there are too few pages. No step may be
 * running. fill: the inputs of a step. known false: the tokens are those that the previous step generated. */
bool bench_step_fits(const bench *self, uint32_t seqs, uint32_t tokens);
void bench_step_deal(bench *self, uint32_t seqs, uint32_t tokens);
void bench_step_fill(bench *self, uint32_t side, const bench_span *spans, uint32_t count, bool known);
void bench_step_submit(bench *self, uint32_t side, bool decode);

/* Runs one step op by op on side 0, and returns the costs of its ops, for the experts that its tokens use, and their sum. `see` is called
 * after every op and may be null. experts_used: 0 for an op without experts. */
typedef void bench_step_see(bench *self, void *context, uint32_t op, const bench_cost *cost, uint32_t experts_used);
bench_cost bench_step_watch(bench *self, bench_step_see *see, void *context);

/* bench/ops.c, bench/model.c: measure and add to the report. check, called before the start: every requested name is an op's. */
status bench_ops_check(const bench *self);
status bench_ops_measure(bench *self);
status bench_model_measure(bench *self);

/* Launch rows of an op in a step that attends by heads; 0 if it does not run at this row count. */
static inline uint32_t bench_rows(const plan *p, const plan_op *op, uint32_t token_rows, uint32_t logit_rows) {
  if (op->rows_kind == ROWS_BY_REQUESTS) return 0;
  uint32_t rows = op->rows_kind == ROWS_LOGITS ? logit_rows
                  : op->rows_kind == ROWS_OWN  ? plan_own_rows(&p->header->limits, token_rows)
                                               : token_rows;
  return rows >= op->rows_min && rows <= op->rows_max ? rows : 0;
}

static inline void bench_say(const bench *self, const char *what) {
  if (self->options.on_progress) self->options.on_progress(self->options.context, what);
}

#endif
