/* schedule.c - see schedule.h. In this order below: the queue, slots, admission and ends, the choice of a step's rows, settling. */
#include "requests/schedule.h"
#include "base/clock.h"
#include "plan/format_masks.h"
#include <string.h>

status schedule_open(schedule *self, const request_model *model, exec *machine, watch *watcher, const schedule_options *options,
                     arena *host) {
  const plan_limits *limits = &model->plan->header->limits;
  void *sequences, *order, *decoding, *watched, *rows[2], *drafted[2];
  *self = (schedule){.model = model, .machine = machine, .table = exec_block_table(machine), .watch = watcher,
                     .options = *options};
  if (options->max_active == 0 || options->max_active > limits->max_seqs) self->options.max_active = limits->max_seqs;
  if (options->chunk_tokens == 0 || options->chunk_tokens > limits->max_batch_tokens)
    self->options.chunk_tokens = limits->max_batch_tokens;
  self->options.no_prefix_cache |= options->trace;
  self->kv = (schedule_pages){.pool = &self->pages, .machine = machine, .table = self->table, .counters = &self->counters,
                                        .no_prefix_cache = self->options.no_prefix_cache};
  TRY(schedule_pages_open(&self->kv, model));
  TRY(pages_open(&self->pages, limits->kv_pages, options->shuffle_pages, host));
  TRY(arena_take(host, sizeof(sequence) * (uint64_t)limits->max_seqs, &sequences));
  TRY(drafts_open(&self->drafts, model->plan, options->no_drafts || options->trace, &self->counters, host));
  TRY(arena_take(host, sizeof(uint32_t) * (uint64_t)limits->max_seqs, &order));
  TRY(arena_take(host, sizeof(sequence *) * (uint64_t)limits->max_seqs, &decoding));
  TRY(arena_take(host, sizeof(watch_row) * (uint64_t)limits->max_batch_tokens, &watched));
  for (int i = 0; i < 2; i++) TRY(arena_take(host, sizeof(step_row) * (uint64_t)limits->max_logit_rows, &rows[i]));
  for (int i = 0; i < 2; i++) TRY(arena_take(host, sizeof(step_drafted) * (uint64_t)limits->max_seqs, &drafted[i]));
  self->sequences = sequences;
  for (uint32_t slot = 0; slot < limits->max_seqs; slot++) self->sequences[slot].slot = slot;
  self->order = order;
  self->decoding = decoding;
  self->watched = watched;
  for (int i = 0; i < 2; i++) self->rows[i] = rows[i], self->drafted[i] = drafted[i];
  return OK;
}

static const plan_limits *limits_of(const schedule *self) { return &self->model->plan->header->limits; }
static bool is_fast(const schedule *self) { return limits_of(self)->parity == PARITY_FAST_PREFILL; }

bool schedule_idle(const schedule *self) { return !self->queue_first && self->active_count == 0; }

/* === The queue ============================================================================================================== */

void schedule_submit(schedule *self, verbatim_request *request) {
  request_state_of(request)->next = NULL;
  if (self->queue_last) request_state_of(self->queue_last)->next = request;
  else self->queue_first = request;
  self->queue_last = request;
  request_state_of(request)->submitted_at = clock_seconds();
  self->timed += request->deadline_seconds > 0;
}

bool schedule_has(const schedule *self, const verbatim_request *request) {
  if (request_state_of(request)->submitted_at == 0) return false;
  const verbatim_request *at = self->queue_first;
  while (at && at != request) at = request_state_of(at)->next;
  bool found = at != NULL;
  for (uint32_t i = 0; i < self->active_count && !found; i++) found = self->sequences[self->order[i]].request == request;
  return found;
}

static void queue_again(schedule *self, verbatim_request *request) {
  request_state_of(request)->next = self->queue_first;
  self->queue_first = request;
  if (!self->queue_last) self->queue_last = request;
}

static bool unqueue(schedule *self, verbatim_request *request) {
  verbatim_request *before = NULL, *at = self->queue_first;
  for (; at && at != request; at = request_state_of(at)->next) before = at;
  if (!at) return false;
  if (before) request_state_of(before)->next = request_state_of(at)->next;
  else self->queue_first = request_state_of(at)->next;
  if (self->queue_last == at) self->queue_last = before;
  return true;
}

/* === Slots ================================================================================================================== */

/* There is one: fewer than max_seqs are taken. */
static uint32_t free_slot(const schedule *self) {
  uint32_t slots = limits_of(self)->max_seqs, tried = 0, slot = self->options.slot_offset % slots;
  while (self->sequences[slot].taken) {
    slot = (slot + 1) % slots;
    ASSERT(++tried < slots);
  }
  return slot;
}

static void take_slot(schedule *self, verbatim_request *request) {
  uint32_t slot = free_slot(self);
  sequence *s = &self->sequences[slot];
  *s = (sequence){.request = request, .slot = slot, .taken = true, .generation = s->generation + 1, .key = self->kv.root,
                  .known = request_computed(request) + request->token_count, .sampled = request->token_count};
  if (request->constraint) s->constrained = request_constrained(self->model, request);
  block_table_change(self->table, slot, request_list(request, block_table_list(self->table, slot)));
  self->order[self->active_count++] = slot;
  schedule_pages_adopt(&self->kv, s);
  request_repeat_text(self->model, request, &s->text);
  drafts_begin(&self->drafts, s);
  self->counters.admissions++;
  if (!self->kv.no_prefix_cache) self->counters.queried_tokens += s->known;
  if (request->waited_seconds < 0) request->waited_seconds = clock_seconds() - request_state_of(request)->submitted_at;
}

static void give_slot(schedule *self, uint32_t slot) {
  uint32_t at = 0;
  self->sequences[slot].taken = false;
  while (self->order[at] != slot) at++;
  self->active_count--;
  memmove(self->order + at, self->order + at + 1, (self->active_count - at) * sizeof *self->order);
}

/* The request leaves the slot. A step in flight may still have rows of it, which write to its pages and to the slot's token. That is
 * harmless: it was submitted before any step of their next owners, and the device runs steps in that order. The slot itself is not given
 * again before the device has read the block table row by which those rows find their pages. */
static void vacate(schedule *self, uint32_t slot) {
  schedule_pages_release(&self->kv, &self->sequences[slot]);
  block_table_withdraw(self->table, slot);
  self->sequences[slot].request = NULL;
  if (block_table_was_read(self->table, slot)) give_slot(self, slot);
}

static void give_vacated_slots(schedule *self) {
  for (uint32_t i = self->active_count; i > 0; i--) {
    uint32_t slot = self->order[i - 1];
    if (!self->sequences[slot].request && block_table_was_read(self->table, slot)) give_slot(self, slot);
  }
}

/* === Admission and ends ===================================================================================================== */

/* What admitted sequences want and do not have yet. */
static uint64_t promised_pages(const schedule *self) {
  uint64_t promised = 0;
  for (uint32_t i = 0; i < self->active_count; i++) {
    const sequence *s = &self->sequences[self->order[i]];
    uint32_t wanted = s->request ? schedule_pages_wanted(s->request, s->known) : 0;
    if (wanted > s->page_count) promised += wanted - s->page_count;
  }
  return promised;
}

/* There are pages for its known tokens, and one for every active sequence to grow; otherwise admission would lead to preemption at once. A
 * request alone always fits. Shared pages are looked up only where they decide. */
static bool fits(const schedule *self, const verbatim_request *request) {
  uint64_t wanted = schedule_pages_wanted(request, request_computed(request) + request->token_count);
  uint64_t needed = promised_pages(self) + wanted + self->active_count, available = pages_available(&self->pages);
  return self->active_count == 0 || needed <= available || needed - schedule_pages_shared(&self->kv, request) <= available;
}

/* First come, first served: a request that does not fit yet makes later ones wait. */
static void admit(schedule *self) {
  while (self->queue_first && self->active_count < self->options.max_active && fits(self, self->queue_first)) {
    verbatim_request *request = self->queue_first;
    self->queue_first = request_state_of(request)->next;
    if (!self->queue_first) self->queue_last = NULL;
    take_slot(self, request);
  }
}

/* Preempts the most recently admitted sequence and requeues it at the front. Returns its slot. */
static uint32_t preempt_youngest(schedule *self) {
  uint32_t at = self->active_count - 1;
  while (!self->sequences[self->order[at]].request) ASSERT(at-- > 0);
  uint32_t slot = self->order[at];
  sequence *s = &self->sequences[slot];
  request_state_of(s->request)->row_most = max_u32(request_state_of(s->request)->row_most, s->computed);
  queue_again(self, s->request);
  vacate(self, slot);
  self->counters.preemptions++;
  return slot;
}

/* The engine no longer holds it. */
static void let_go(schedule *self, verbatim_request *request) {
  self->timed -= request->deadline_seconds > 0;
  request_state_of(request)->submitted_at = 0;
}

/* Ends a request, queued or active. */
static bool end_early(schedule *self, verbatim_request *request, enum verbatim_finish finish) {
  bool found = unqueue(self, request);
  for (uint32_t i = 0; i < self->active_count && !found; i++) {
    uint32_t slot = self->order[i];
    if (self->sequences[slot].request != request) continue;
    vacate(self, slot);
    found = true;
  }
  if (!found) return false;
  request->finish = finish;
  let_go(self, request);
  return true;
}

bool schedule_cancel(schedule *self, verbatim_request *request) {
  bool found = end_early(self, request, VERBATIM_CANCELLED);
  self->counters.cancellations += found;
  return found;
}

static bool is_over(const verbatim_request *request, double now) {
  return request->deadline_seconds > 0 && now - request_state_of(request)->submitted_at >= request->deadline_seconds;
}

void schedule_expire(schedule *self) {
  if (self->timed == 0) return;
  double now = clock_seconds();
  for (verbatim_request *at = self->queue_first, *next; at; at = next) {
    next = request_state_of(at)->next;
    if (is_over(at, now)) self->counters.deadlines += end_early(self, at, VERBATIM_DEADLINE);
  }
  for (uint32_t i = self->active_count; i > 0; i--) {
    verbatim_request *request = self->sequences[self->order[i - 1]].request;
    if (request && is_over(request, now)) self->counters.deadlines += end_early(self, request, VERBATIM_DEADLINE);
  }
}

/* === Building a step ======================================================================================================== */

static step_build begin(schedule *self, uint32_t side) {
  return step_build_begin(self->model, exec_fill(self->machine, side), self->rows[side], self->drafted[side], self->watched);
}

/* Gets a page for the next row, from the youngest sequence if need be. Returns false when that is the sequence itself. */
static bool make_room(schedule *self, sequence *s) {
  while (schedule_pages_grow(&self->kv, s, 1) == 0)
    if (preempt_youngest(self) == s->slot) return false;
  return true;
}

static bool decodes(const sequence *s) { return s->request && s->computed >= s->known && s->sampled < s->request->max_tokens; }

/* The sequences that get a row of their newest token in the next step. has_room: each with a page for it. Returns how many. */
static uint32_t list_decoding(schedule *self, bool has_room) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < self->active_count; i++) {
    sequence *s = &self->sequences[self->order[i]];
    if (decodes(s) && (!has_room || make_room(self, s))) self->decoding[count++] = s;
  }
  return count;
}

/* Token rows for these and their drafts: every other sequence may get one, to end its prompt. */
static uint32_t rows_for(const schedule *self, uint32_t decoding) {
  return min_u32(limits_of(self)->max_batch_tokens, limits_of(self)->max_logit_rows) - (self->active_count - decoding);
}

/* The step in flight has drafts, or a sequence would guess tokens behind those that the host has seen, or the newest token of a sequence
 * with a constraint decides what may follow it. */
static bool waits_for_verdict(schedule *self) {
  if (self->submitted == self->settled) return false;
  if (self->has_drafts) return true;
  const uint32_t count = list_decoding(self, false);
  for (uint32_t i = 0; i < count; i++)
    if (self->decoding[i]->request->constraint && self->decoding[i]->sampled > self->decoding[i]->request->token_count) return true;
  return drafts_choose(&self->drafts, self->decoding, count, rows_for(self, count), false);
}

/* Pages for the rows that a step's own drafts have behind the sequence's next `rows`, unless others may need them soon. */
static void grow_for_drafts(schedule *self, sequence *s, uint32_t rows) {
  const plan_limits *l = limits_of(self);
  const uint32_t most = l->pages_per_seq * PAGE_TOKENS - s->computed, wanted = rows + l->draft_tokens;
  if (plan_has_mtp(l) && wanted <= most && pages_available(&self->pages) > self->active_count) schedule_pages_grow(&self->kv, s, wanted);
}

/* Of its drafts those that the request's constraint allows, for which the step has masks: a later one could not be right. */
static uint32_t count_allowed(const schedule *self, const step_build *b, const sequence *s) {
  const vocabulary *v = &self->model->masks->vocabulary;
  const uint32_t used = b->masks + self->active_count - b->seqs, most = plan_mask_rows(limits_of(self));
  uint32_t state = s->constrained, count = 0;
  for (; count < s->draft.taken && used + count < most; count++) {
    state = vocabulary_advance(v, &s->request->constraint->automaton, state, s->draft.ids[count]);
    if (state == AUTOMATON_DEAD) break;
  }
  return count;
}

/* Adds the row of a sequence's newest token and those of its drafts, which take no page that another sequence may need soon. */
static void add_decode(schedule *self, step_build *b, sequence *s) {
  const uint32_t held = s->page_count * PAGE_TOKENS - s->computed - 1;
  const bool is_short = pages_available(&self->pages) <= self->active_count;
  uint32_t *taken = &s->draft.taken;
  if (s->request->constraint) *taken = count_allowed(self, b, s);
  *taken = is_short ? min_u32(*taken, held) : schedule_pages_grow(&self->kv, s, 1 + *taken) - 1;
  grow_for_drafts(self, s, 1 + *taken);
  step_build_decode(b, s);
  s->computed += 1 + *taken;
  s->sampled += 1 + *taken;
  s->draft.was_taken = *taken > 0;
  s->draft.is_alone = false;
  if (*taken == 0) return;
  drafts_take(&self->drafts, s);
  self->has_drafts = true;
}

static void add_decodes(schedule *self, step_build *b) {
  const uint32_t count = list_decoding(self, true);
  if (self->submitted == self->settled) drafts_choose(&self->drafts, self->decoding, count, rows_for(self, count), true);
  for (uint32_t i = 0; i < count; i++) add_decode(self, b, self->decoding[i]);
}

/* How many known tokens a step may take of it. */
static uint32_t prompt_left(const schedule *self, uint32_t slot) {
  const sequence *s = &self->sequences[slot];
  return s->request ? min_u32(s->known - min_u32(s->known, s->computed), self->options.chunk_tokens) : 0;
}

/* Returns true when there were not enough pages for it. */
static bool add_prompt(schedule *self, step_build *b, uint32_t slot, uint32_t most) {
  sequence *s = &self->sequences[slot];
  schedule_pages_adopt(&self->kv, s);
  /* Under fast-prefill rows of generated tokens come before those of prompts. */
  if (is_fast(self) && b->contexts && !step_build_is_prompt(b, s->request, s->computed)) return false;
  uint32_t wanted = step_build_room(b, s->request, s->computed, min_u32(prompt_left(self, slot), most));
  uint32_t count = schedule_pages_grow(&self->kv, s, wanted);
  if (count == 0) return wanted > 0;
  if (s->computed + count == s->known) grow_for_drafts(self, s, count);
  step_build_known(b, s, s->computed, count, false);
  const uint32_t before = max_u32(request_state_of(s->request)->row_most, s->computed);
  self->counters.recomputed_tokens += min_u32(s->computed + count, before) - s->computed;
  s->computed += count;
  s->sampled += s->computed == s->known && s->request->max_tokens > 0;
  schedule_pages_name(&self->kv, s);
  return count < wanted;
}

/* Every prompt gets an equal share of the step, at most a page's worth; what is left goes to the first ones. So a short prompt does not
 * wait for a long one, and the first is not held up by later ones. Under fast-prefill sequences whose next token was generated come first.
 * Returns true when there were not enough pages for one of them. */
static bool add_prompts(schedule *self, step_build *b) {
  uint32_t most = limits_of(self)->max_batch_tokens, prompts = 0, kept = 0;
  bool is_short_of_pages = false;
  for (uint32_t i = 0; i < self->active_count && is_fast(self); i++)
    if (prompt_left(self, self->order[i])) schedule_pages_adopt(&self->kv, &self->sequences[self->order[i]]);
  for (uint32_t i = 0; i < self->active_count; i++) prompts += prompt_left(self, self->order[i]) > 0;
  if (prompts == 0) return false;
  uint32_t share = min_u32(max_u32((most - b->tokens) / prompts, 1), PAGE_TOKENS);
  for (uint32_t i = 0; i < self->active_count; i++) kept += min_u32(prompt_left(self, self->order[i]), share);
  for (uint32_t i = 0; i < 2 * self->active_count; i++) {
    uint32_t slot = self->order[i % self->active_count], left = prompt_left(self, slot), own = min_u32(left, share);
    bool is_late = left && step_build_is_prompt(b, self->sequences[slot].request, self->sequences[slot].computed);
    if (!left || is_late != (i >= self->active_count)) continue;
    kept -= own;
    is_short_of_pages |= add_prompt(self, b, slot, max_u32(own, most - min_u32(most, b->tokens + kept)));
  }
  return is_short_of_pages;
}

static void submit_step(schedule *self, const step_build *b, uint32_t side, uint32_t decoding) {
  verbatim_counters *c = &self->counters;
  const double before = clock_seconds();
  step_build_end(b);
  if (b->masks) exec_set_masks(self->machine, side, b->masks);
  if (self->options.trace) watch_step(self->watch, side, self->watched, b->tokens, NULL);
  else exec_submit(self->machine, side, decoding == b->tokens);
  self->submit_us[side] = 1e6 * (clock_seconds() - before);
  self->decode_rows[side] = decoding == b->tokens ? decoding : 0;
  self->submitted++;
  c->steps++;
  c->decode_steps += decoding == b->tokens;
  c->mixed_steps += decoding > 0 && decoding < b->tokens;
  c->token_rows += b->tokens;
  c->most_sequences = max_u32(c->most_sequences, b->seqs);
}

bool schedule_step(schedule *self, uint32_t side) {
  if (waits_for_verdict(self)) return false;
  admit(self);
  step_build b = begin(self, side);
  add_decodes(self, &b);
  uint32_t decoding = b.tokens; /* rows of sequences that had their whole prompt before this step */
  bool is_short_of_pages = add_prompts(self, &b);
  /* Nothing could be added for want of pages, and no step in flight will free any. */
  while (b.tokens == 0 && is_short_of_pages && self->submitted == self->settled) {
    preempt_youngest(self);
    b = begin(self, side);
    is_short_of_pages = add_prompts(self, &b);
  }
  if (b.tokens == 0) return false;
  self->row_count[side] = b.logits;
  self->drafted_count[side] = b.drafts;
  submit_step(self, &b, side, decoding);
  return true;
}

/* === Settling =============================================================================================================== */

/* The slot is given up before the callbacks, after which the request may be gone. */
static void show(schedule *self, uint32_t slot, bool made) {
  sequence *s = &self->sequences[slot];
  verbatim_request *request = s->request;
  enum verbatim_finish finish = request->finish;
  uint32_t count = request->token_count;
  if (finish != VERBATIM_RUNNING) {
    let_go(self, request);
    vacate(self, slot);
  }
  request_show(self->model, request, &s->text, made);
  if (made && request->on_token && request_is_at(request, finish, count)) request->on_token(request, count - 1);
}

/* Whether a logits row belongs to the request: not if it is that of a wrong guess, or behind one. A right one counts as computed. */
static bool follows(schedule *self, sequence *s, const step_row *row) {
  const verbatim_request *r = s->request;
  if (row->draft < 0) return true;
  if (row->position >= r->prompt_count + r->token_count) return false;
  if (!drafts_is_right(r, row->position, row->draft)) {
    drafts_reject(s);
    return false;
  }
  drafts_accept(&self->drafts, s, s->draft.accepted++);
  s->computed++;
  s->sampled++;
  return true;
}

/* A row that is not finite. In a step with drafts a wrong one may have made it so: then the row is computed again without them. */
static void doubt(sequence *s, uint32_t position) {
  if (s->draft.taken == 0) {
    s->is_broken = true;
    s->broken = position;
    return;
  }
  s->draft.is_alone = true;
  request_state_of(s->request)->row_next = position;
  s->computed--;
  s->sampled--;
}

/* A row of a sequence that is still there. */
static void settle_row(schedule *self, const step_row *row, const exec_results *results, uint32_t index) {
  sequence *s = &self->sequences[row->slot];
  verbatim_request *request = s->request;
  if (!follows(self, s, row)) return;
  request_state_of(request)->row_next = row->position + 1;
  if (request->on_logits && row->position < request->prompt_count)
    request->on_logits(request, row->position, results->logits + (uint64_t)index * self->model->plan->header->model.vocab);
  if (s->request != request) return; /* cancelled by the callback */
  if (row->position + 1 < request->prompt_count && !request_scores(request, row->position + 1)) return;
  if (results->result[index].nonfinite) {
    doubt(s, row->position);
    return;
  }
  uint32_t before = request->token_count;
  request_push(self->model, request, &s->text, &results->result[index], results->top + (uint64_t)index * TOP_LOGPROBS_MAX,
               results->digest[index]);
  schedule_pages_name(&self->kv, s);
  if (request->token_count > before) drafts_see(&self->drafts, s);
  if (request->constraint && request->token_count > before && request->finish == VERBATIM_RUNNING)
    s->constrained = vocabulary_advance(&self->model->masks->vocabulary, &request->constraint->automaton, s->constrained,
                                        request->tokens[before].id);
  show(self, row->slot, request->token_count > before);
}

/* Adds scores that locate found, which the steps themselves did not give. */
static void settle_scores(schedule *self, const exec_results *results, uint32_t slot, uint32_t side, uint32_t count) {
  sequence *s = &self->sequences[slot];
  for (uint32_t i = 0; i < count; i++) {
    uint32_t position = self->rows[side][i].position;
    if (!request_scores(s->request, position + 1) || results->result[i].nonfinite) continue;
    if (position + 1 != s->request->score_from + s->request->score_count) continue; /* there already, or after one that is broken */
    request_push(self->model, s->request, &s->text, &results->result[i], results->top + (uint64_t)i * TOP_LOGPROBS_MAX,
                 results->digest[i]);
  }
}

/* Finds where NaN or Inf begins: the tokens are computed again, alone and watched, into the pages they are in. Within a tile a broken token
 * may break tokens before it, and which ones depends on how steps were built. So every tile here has one token, and what is found and
 * scored is a function of the tokens up to the end of the page. */
static watch_fault locate(schedule *self, uint32_t slot, uint32_t side) {
  const sequence *s = &self->sequences[slot];
  uint32_t end = min_u32((s->broken / PAGE_TOKENS + 1) * PAGE_TOKENS, request_computed(s->request) + s->request->token_count);
  watch_fault fault = {UINT32_MAX, UINT32_MAX};
  request_state_of(s->request)->row_next = request_logits_from(s->request);
  for (uint32_t position = 0; position < end;) {
    step_build b = begin(self, side);
    uint32_t count = step_build_room(&b, s->request, position, end - position);
    step_build_known(&b, s, position, count, true);
    for (uint32_t i = 0; i < count; i++) self->watched[i].request = NULL;
    step_build_end(&b);
    watch_step(self->watch, side, self->watched, b.tokens, &fault);
    exec_results results = exec_wait(self->machine, side);
    settle_scores(self, &results, slot, side, b.logits);
    position += count;
  }
  return fault;
}

static void settle_broken(schedule *self, uint32_t slot, uint32_t side) {
  sequence *s = &self->sequences[slot];
  watch_fault fault = locate(self, slot, side);
  request_break(self->model, s->request, fault.op, fault.position);
  s->is_broken = false;
  show(self, slot, false);
}

/* Of the drafts of a step none counts as computed before its verdict; after all verdicts there are none. */
static void take_drafts_back(schedule *self) {
  for (uint32_t i = 0; i < self->active_count && self->has_drafts; i++) {
    sequence *s = &self->sequences[self->order[i]];
    s->computed -= s->draft.taken;
    s->sampled -= s->draft.taken;
    s->draft.accepted = 0;
  }
}

/* What the step guesses behind the newest token of each sequence. */
static void take_guesses(schedule *self, uint32_t side, const exec_results *results) {
  for (uint32_t i = 0; i < self->drafted_count[side]; i++) {
    const step_drafted *from = &self->drafted[side][i];
    sequence *s = &self->sequences[from->slot];
    if (!s->request || s->generation != from->generation || s->draft.is_alone || s->is_broken) continue;
    for (uint32_t pass = 0; pass < limits_of(self)->draft_tokens; pass++)
      if (!drafts_offer(s, pass, &results->draft[pass * results->draft_stride + i])) break;
  }
}

static void forget_drafts(schedule *self) {
  for (uint32_t slot = 0; slot < limits_of(self)->max_seqs && self->has_drafts; slot++) self->sequences[slot].draft.taken = 0;
  self->has_drafts = false;
}

void schedule_settle(schedule *self, uint32_t side) {
  const double before = clock_seconds();
  exec_results results = exec_wait(self->machine, side);
  if (self->decode_rows[side])
    drafts_time(&self->drafts, self->decode_rows[side], self->submit_us[side] + 1e6 * (clock_seconds() - before));
  self->settled++;
  self->counters.request_steps += results.by_requests;
  give_vacated_slots(self);
  take_drafts_back(self);
  for (uint32_t i = 0; i < self->row_count[side]; i++) {
    const step_row *row = &self->rows[side][i];
    const sequence *s = &self->sequences[row->slot];
    if (s->request && s->generation == row->generation && !s->is_broken) settle_row(self, row, &results, i); /* else it ended a step ago */
  }
  self->row_count[side] = 0;
  take_guesses(self, side, &results);
  forget_drafts(self);
  for (uint32_t slot = 0; slot < limits_of(self)->max_seqs; slot++)
    if (self->sequences[slot].request && self->sequences[slot].is_broken) settle_broken(self, slot, side);
}
