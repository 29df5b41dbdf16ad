/* bench/model.c - whole steps as the scheduler runs them: each is built and submitted while the previous one computes. */
#include "bench/state.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_GPU 48u
#define STEPS_CPU 2u
#define PREFILL_RUNS_GPU 3u

/* === Decode ================================================================================================================= */

/* Of `batch` sequences, each with `drafts` tokens behind its newest; the last of these is token number context - 1. */
static void fill_decode(bench *self, uint32_t side, const bench_decode *d, bool known) {
  bench_span spans[SEQS_MAX];
  const uint32_t rows = 1 + d->drafts;
  for (uint32_t i = 0; i < d->batch; i++) spans[i] = (bench_span){.slot = i, .position = d->context - rows, .count = rows, .logits = rows};
  bench_step_fill(self, side, spans, d->batch, known);
}

/* Seconds for `count` steps, each submitted before the wait for the previous one; with drafts after it, since these follow from it. */
static double run_steps(bench *self, uint32_t count, const bench_decode *d) {
  double from = clock_seconds();
  for (uint32_t i = 0; i < count; i++) {
    fill_decode(self, i % 2, d, d->drafts > 0);
    bench_step_submit(self, i % 2, true);
    if (d->drafts) exec_wait(self->machine, i % 2);
    else if (i) exec_wait(self->machine, (i - 1) % 2);
  }
  if (d->drafts == 0) exec_wait(self->machine, (count - 1) % 2);
  return clock_seconds() - from;
}

/* Tokens that a sequence gets from a step: its next one, and each draft up to the first wrong one. */
static double tokens_of_step(const bench *self, uint32_t drafts) {
  double tokens = 1, right = 1;
  for (uint32_t i = 0; i < drafts; i++) tokens += right *= self->options.acceptance[min_u32(i, self->options.acceptance_count - 1)];
  return tokens;
}

/* Sum of the times of the step's ops, each timed alone, or only of those that send to other ranks; 0: some were not timed. */
static double sum_of_ops(const bench *self, uint32_t batch, uint32_t context, bool only_sending) {
  double sum = 0;
  bool has_attention = false;
  for (uint32_t i = 0; i < self->report.op_count; i++) {
    const bench_op *op = &self->report.ops[i];
    if (op->rows != batch || (op->context && op->context != context)) continue;
    if (!only_sending || op->cost.sent_bytes) sum += op->us * op->instances;
    has_attention |= op->context == context;
  }
  return has_attention && !self->options.op ? sum : 0;
}

static void measure_decode(bench *self, uint32_t batch, uint32_t context, uint32_t drafts) {
  const bench_report *r = &self->report;
  bench_decode d = {.batch = batch, .context = context, .drafts = drafts, .steps = self->devices.count ? STEPS_GPU : STEPS_CPU};
  char what[96];
  snprintf(what, sizeof what, "steps of %u sequences, context %u, %u drafts", batch, context, drafts);
  bench_say(self, what);
  bench_step_deal(self, batch, context);
  fill_decode(self, 0, &d, true);
  d.cost = bench_step_watch(self, NULL, NULL);
  run_steps(self, self->devices.count ? 4 : 1, &d);
  exec_gaps before = exec_count(self->machine).gaps;
  const double seconds = run_steps(self, d.steps, &d);
  exec_gaps after = exec_count(self->machine).gaps;
  uint64_t gaps = after.count - before.count;
  d.step_us = 1e6 * seconds / d.steps;
  d.gap_us = gaps ? (after.sum_us - before.sum_us) / (double)gaps : 0;
  d.tokens_per_s = tokens_of_step(self, drafts) * batch * d.steps / seconds;
  d.ops_us = drafts ? 0 : sum_of_ops(self, batch, context, false);
  d.exchanges_us = drafts ? 0 : sum_of_ops(self, batch, context, true);
  d.floor_us = bench_cost_floor_us(d.cost.weight_bytes + d.cost.kv_bytes, &d.cost, &r->rates);
  ASSERT(self->report.decode_count < self->decodes_max);
  self->report.decodes[self->report.decode_count++] = d;
}

/* Without drafts, then with as many as the plan's speculation may make. */
static void measure_drafts(bench *self, uint32_t batch, uint32_t context) {
  const plan_limits *l = &self->plan->header->limits;
  for (uint32_t drafts = 0; drafts <= l->draft_tokens; drafts++)
    if (drafts < context && (drafts == 0 || batch * (1 + drafts) <= min_u32(l->max_logit_rows, l->max_batch_tokens)))
      measure_decode(self, batch, context, drafts);
}

static void measure_decodes(bench *self) {
  const bench_list *contexts = &self->step_contexts;
  uint32_t most = self->plan->header->limits.max_seqs;
  for (uint32_t c = 0; c < contexts->count; c++)
    for (uint32_t batch = 1, last = 0; batch != last; batch = min_u32(4 * batch, most)) {
      if (bench_step_fits(self, batch, contexts->values[c])) measure_drafts(self, batch, contexts->values[c]);
      last = batch;
      if (batch == most) break;
    }
}

/* === Prefill ================================================================================================================ */

typedef struct prompts {
  uint32_t count, tokens;  /* of each */
  uint32_t at_prompt, at_token; /* next */
  uint32_t steps;
} prompts;

/* The next step, with as many tokens as fit. Returns false when all prompts are done. */
static bool fill_prompts(bench *self, prompts *p, uint32_t side) {
  uint32_t room = self->plan->header->limits.max_batch_tokens, logits = self->plan->header->limits.max_logit_rows, count = 0;
  bench_span spans[SEQS_MAX];
  while (room && logits && p->at_prompt < p->count) {
    uint32_t tokens = min_u32(room, p->tokens - p->at_token);
    bool ends = p->at_token + tokens == p->tokens;
    spans[count++] = (bench_span){.slot = p->at_prompt, .position = p->at_token, .count = tokens, .logits = ends};
    room -= tokens;
    logits -= ends;
    p->at_prompt += ends;
    p->at_token = ends ? 0 : p->at_token + tokens;
  }
  if (!count) return false;
  bench_step_fill(self, side, spans, count, true);
  p->steps++;
  return true;
}

static double run_prompts(bench *self, prompts *p) {
  double from = clock_seconds();
  uint32_t side = 0;
  for (; fill_prompts(self, p, side); side ^= 1) {
    bench_step_submit(self, side, false);
    if (p->steps > 1) exec_wait(self->machine, side ^ 1);
  }
  exec_wait(self->machine, side ^ 1);
  return clock_seconds() - from;
}

static bench_cost cost_of_prompts(bench *self, prompts p) {
  bench_cost sum = {0};
  while (fill_prompts(self, &p, 0)) {
    const bench_cost step = bench_step_watch(self, NULL, NULL);
    bench_cost_add(&sum, &step);
  }
  return sum;
}

static void measure_prefill(bench *self, uint32_t count, uint32_t tokens) {
  const bench_report *r = &self->report;
  const prompts all = {.count = count, .tokens = tokens};
  double best = 0;
  prompts done = all;
  char what[96];
  snprintf(what, sizeof what, "%u prompts of %u tokens", count, tokens);
  bench_say(self, what);
  bench_step_deal(self, count, tokens);
  bench_cost cost = cost_of_prompts(self, all);
  for (uint32_t i = 0; i < (self->devices.count ? PREFILL_RUNS_GPU : 1u); i++) {
    done = all;
    double seconds = run_prompts(self, &done);
    if (i == 0 || seconds < best) best = seconds;
  }
  self->report.prefills[self->report.prefill_count++] =
      (bench_prefill){.prompts = count, .tokens = tokens, .steps = done.steps, .us = 1e6 * best, .cost = cost,
                      .tokens_per_s = (double)count * tokens / best,
                      .floor_us = bench_cost_floor_us(cost.weight_bytes + cost.kv_bytes, &cost, &r->rates)};
}

status bench_model_measure(bench *self) {
  static const struct { uint32_t count, tokens; } sizes[] = {{1, 512}, {1, 8192}, {16, 512}};
  const bench_list *lengths = &self->options.prompts;
  measure_decodes(self);
  for (uint32_t i = 0; i < lengths->count; i++)
    if (bench_step_fits(self, 1, lengths->values[i])) measure_prefill(self, 1, lengths->values[i]);
  for (size_t i = 0; i < ARRAY_LEN(sizes) && lengths->count == 0; i++)
    if (bench_step_fits(self, sizes[i].count, sizes[i].tokens)) measure_prefill(self, sizes[i].count, sizes[i].tokens);
  return OK;
}
