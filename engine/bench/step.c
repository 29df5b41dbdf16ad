/* bench/step.c - steps as a scheduler would build them, of random tokens on random pages.
 *
 * Must not know which measurement uses them. Read next: schedule.c, which builds the real ones. */
#include "bench/state.h"
#include "ops/kernels.h"
#include "plan/format_widen.h"
#include <string.h>

static uint32_t pages_for(uint32_t tokens) { return (uint32_t)div_up(tokens, PAGE_TOKENS); }

/* Pages of a sequence, with those of the positions that its drafts are computed at. */
static uint32_t pages_of(const plan_limits *limits, uint32_t tokens) {
  return pages_for(min_u32(tokens + (plan_has_mtp(limits) ? limits->draft_tokens - 1 : 0), limits->max_len));
}

bool bench_step_fits(const bench *self, uint32_t seqs, uint32_t tokens) {
  const plan_limits *limits = &self->plan->header->limits;
  return seqs <= limits->max_seqs && tokens <= limits->max_len && (uint64_t)seqs * pages_of(limits, tokens) <= limits->kv_pages;
}

void bench_step_deal(bench *self, uint32_t seqs, uint32_t tokens) {
  uint32_t each = pages_of(&self->plan->header->limits, tokens);
  block_table *table = exec_block_table(self->machine);
  ASSERT(bench_step_fits(self, seqs, tokens));
  for (uint32_t i = self->plan->header->limits.kv_pages; i > 1; i--) {
    uint32_t other = (uint32_t)(random_next(&self->random) % i), page = self->pages[i - 1];
    self->pages[i - 1] = self->pages[other];
    self->pages[other] = page;
  }
  for (uint32_t slot = 0; slot < seqs; slot++) {
    memcpy(block_table_row(table, slot), self->pages + (uint64_t)slot * each, each * sizeof *self->pages);
    block_table_change(table, slot, 0);
  }
}

typedef struct filler {
  exec_input in;
  uint32_t tokens, logits, tiles, contexts; /* contexts: for a step of prompts, whose tiles these then are */
  uint32_t drafts;
} filler;

/* Builds the same tiles as the scheduler. */
static void add_tiles(const bench *self, filler *f, const bench_span *span, bool is_prompt) {
  const plan_limits *l = &self->plan->header->limits;
  attn_tile all = {.row = f->tokens, .count = span->count, .seq = span->slot, .position = span->position};
  if (!is_prompt) {
    f->tiles += exec_cut_tiles(f->in.tiles + f->tiles, all, l->attn_tile_tokens, plan_tile_edge(l));
    return;
  }
  exec_add_context(&f->in, f->contexts, span->slot, span->position + span->count);
  all.seq = plan_has_widening(l) ? f->in.contexts[f->contexts].first : f->contexts;
  f->contexts++;
  if (plan_has_widening(l)) f->tiles += exec_cut_tiles(f->in.prompt_tiles + f->tiles, all, l->attn_tile_tokens, PAGE_TOKENS);
  else f->tiles += exec_cut_tiles(f->in.prompt_tiles + f->tiles, all, PROMPT_TILE_TOKENS, PROMPT_TILE_TOKENS);
}

/* Whether a step's prompts form a part of their own. */
static bool are_prompts(const bench *self, const bench_span *spans, uint32_t count) {
  const plan_header *h = self->plan->header;
  const plan_limits *l = &h->limits;
  uint64_t pages = 0;
  if (!plan_has_widening(l)) return l->parity == PARITY_FAST_PREFILL && spans[0].count > 1;
  for (uint32_t i = 0; i < count; i++) {
    if (!plan_widens_rows(h, pages, spans[i].count, spans[i].position)) return false;
    pages += pages_for(spans[i].position + spans[i].count);
  }
  return true;
}

static void add_span(bench *self, filler *f, const bench_span *span, bool known, bool is_prompt) {
  const plan_header *header = self->plan->header;
  const uint32_t first = f->logits;
  add_tiles(self, f, span, is_prompt);
  for (uint32_t i = 0; i < span->count; i++, f->tokens++) {
    const bool has_logits = i + span->logits >= span->count;
    f->in.token[f->tokens] = known ? (int32_t)(random_next(&self->random) % header->model.vocab) : -1 - (int32_t)span->slot;
    f->in.position[f->tokens] = self->position[f->tokens] = span->position + i;
    f->in.seq[f->tokens] = span->slot;
    if (f->in.next) f->in.next[f->tokens] = has_logits ? -1 : (int32_t)(random_next(&self->random) % header->model.vocab);
    if (!has_logits) continue;
    f->in.logit_row[f->logits] = f->tokens;
    f->in.sample[f->logits++] = (sample_param){.top_p_fixed = 1ull << 32, .repetition = 1, .position = span->position + i + 1,
                                               .slot = span->slot, .prompt_count = span->position + i + 1, .target = -1};
  }
  self->kv_rows += span->position + span->count;
  if (f->in.drafts && f->logits > first && span->position + span->count - 1 + header->limits.draft_tokens <= header->limits.max_len)
    f->in.drafts[f->drafts++] = (step_draft){.first = first, .count = f->logits - first, .slot = span->slot};
}

void bench_step_fill(bench *self, uint32_t side, const bench_span *spans, uint32_t count, bool known) {
  filler f = {.in = exec_fill(self->machine, side)};
  const bool is_prompt = are_prompts(self, spans, count);
  self->kv_rows = 0;
  for (uint32_t i = 0; i < count; i++) add_span(self, &f, &spans[i], known, is_prompt);
  const step_in all = {.token_count = f.tokens, .tile_count = f.tiles, .seq_count = count}, none = {0};
  exec_set_counts(&f.in, f.logits, is_prompt ? none : all, is_prompt ? all : none);
  if (f.in.drafts) exec_set_drafts(&f.in, f.drafts);
}

void bench_step_submit(bench *self, uint32_t side, bool decode) {
  exec_submit(self->machine, side, decode);
}

/* === Op by op =============================================================================================================== */

typedef struct watch_state {
  bench *self;
  bench_step_see *see;
  void *context;
  bench_cost_step step;
  bench_cost sum;
} watch_state;

/* Number of experts that have rows, by the op's `expert_first`; 0 for an op without experts' weights. */
static uint32_t experts_used(bench *self, const plan_op *op) {
  uint32_t first[EXPERTS_MAX + 1] = {0}, used = 0;
  const operand *list = NULL;
  bool has_experts = false;
  op_operands o;
  op_describe(kernels_row(op->kernel)->op, self->plan->args + op->args_offset, plan_present(self->plan, op), &o);
  for (uint32_t i = 0; i < o.count; i++) {
    has_experts = has_experts || o.list[i].rows == OP_EXPERTS;
    if (strcmp(o.list[i].name, "expert_first") == 0) list = &o.list[i];
  }
  if (!has_experts || !list) return 0;
  ASSERT(list->columns <= ARRAY_LEN(first));
  for (uint32_t i = 0; i < op->fixup_count; i++) {
    const plan_fixup *fixup = &self->plan->fixups[op->first_fixup + i];
    if (fixup->args_offset == list->field) exec_read(self->machine, fixup->region, fixup->offset, first, list->columns * sizeof *first);
  }
  for (uint64_t e = 1; e < list->columns; e++) used += first[e] != first[e - 1];
  return used;
}

static void see_op(void *context, uint32_t index) {
  watch_state *w = context;
  const plan_op *op = &w->self->plan->ops[index];
  w->step.experts_used = experts_used(w->self, op);
  bench_cost cost = bench_cost_of(w->self->plan, op, &w->step);
  bench_cost_add(&w->sum, &cost);
  if (w->see) w->see(w->self, w->context, index, &cost, w->step.experts_used);
}

bench_cost bench_step_watch(bench *self, bench_step_see *see, void *context) {
  const step_in *head = exec_fill(self->machine, 0).head; /* its contents survive: no memory is poisoned here */
  watch_state w = {.self = self, .see = see, .context = context};
  w.step = (bench_cost_step){.token_count = head->token_count, .logit_count = head->logit_count, .position = self->position,
                             .kv_rows = self->kv_rows};
  exec_submit_watched(self->machine, 0, see_op, &w);
  exec_wait(self->machine, 0);
  return w.sum;
}
