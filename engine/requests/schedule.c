/* schedule.c - see schedule.h. Admission, ends, the building of a step, and the settling of its results, in this order below. */
#include "requests/schedule.h"
#include "base/clock.h"
#include "plan/format_widen.h"
#include "requests/schedule_pages.h"
#include <string.h>

status schedule_open(schedule *self, const request_model *model, exec *machine, watch *watcher, const schedule_options *options,
                     arena *host) {
  const plan_limits *limits = &model->plan->header->limits;
  void *sequences, *order, *watched, *rows[2];
  *self = (schedule){.model = model, .machine = machine, .table = exec_block_table(machine), .watch = watcher,
                     .options = *options};
  TRY(schedule_pages_open(self));
  if (options->max_active == 0 || options->max_active > limits->max_seqs) self->options.max_active = limits->max_seqs;
  if (options->chunk_tokens == 0 || options->chunk_tokens > limits->max_batch_tokens)
    self->options.chunk_tokens = limits->max_batch_tokens;
  self->options.no_prefix_cache |= options->trace;
  TRY(pages_open(&self->pages, limits->kv_pages, options->shuffle_pages, host));
  TRY(arena_take(host, sizeof(sequence) * (uint64_t)limits->max_seqs, &sequences));
  TRY(arena_take(host, sizeof(uint32_t) * (uint64_t)limits->max_seqs, &order));
  TRY(arena_take(host, sizeof(watch_row) * (uint64_t)limits->max_batch_tokens, &watched));
  for (int i = 0; i < 2; i++) TRY(arena_take(host, sizeof(step_row) * (uint64_t)limits->max_logit_rows, &rows[i]));
  self->sequences = sequences;
  self->order = order;
  self->watched = watched;
  for (int i = 0; i < 2; i++) self->rows[i] = rows[i];
  return OK;
}

static const plan_limits *limits_of(const schedule *self) { return &self->model->plan->header->limits; }

bool schedule_idle(const schedule *self) { return !self->queue_first && self->active_count == 0; }

/* === The queue ============================================================================================================== */

void schedule_submit(schedule *self, verbatim_request *request) {
  request->next = NULL;
  if (self->queue_last) self->queue_last->next = request;
  else self->queue_first = request;
  self->queue_last = request;
  if (request->deadline_seconds > 0) {
    request->submitted_at = clock_seconds();
    self->timed++;
  }
}

static void queue_again(schedule *self, verbatim_request *request) {
  request->next = self->queue_first;
  self->queue_first = request;
  if (!self->queue_last) self->queue_last = request;
}

static bool unqueue(schedule *self, verbatim_request *request) {
  verbatim_request *before = NULL, *at = self->queue_first;
  for (; at && at != request; at = at->next) before = at;
  if (!at) return false;
  if (before) before->next = at->next;
  else self->queue_first = at->next;
  if (self->queue_last == at) self->queue_last = before;
  return true;
}

/* === Slots ================================================================================================================== */

/* One is free: fewer than max_seqs are taken. */
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
  *s = (sequence){.request = request, .taken = true, .generation = s->generation + 1, .key = self->root,
                  .known = request_fed(request) + request->token_count, .sampled = request->token_count};
  block_table_change(self->table, slot, request_list(request, block_table_list(self->table, slot)));
  self->order[self->active_count++] = slot;
  schedule_pages_adopt(self, slot);
  request_repeat_text(self->model, request, &s->text);
  self->counters.admissions++;
}

static void give_slot(schedule *self, uint32_t slot) {
  uint32_t at = 0;
  self->sequences[slot].taken = false;
  while (self->order[at] != slot) at++;
  self->active_count--;
  memmove(self->order + at, self->order + at + 1, (self->active_count - at) * sizeof *self->order);
}

/* The request leaves the slot. A step in flight may still hold rows of it, which write to its pages and to the slot's token; it was
 * submitted before any step of their next owners, and the device runs steps in that order. The slot itself is not dealt again before the
 * device has read the row of the block table by which those rows find their pages. */
static void vacate(schedule *self, uint32_t slot) {
  schedule_pages_release(self, slot);
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

/* There are pages for what is known of it, and one for every sequence that grows beside it: else admission would lead to preemption
 * at once. Alone every request fits. What it shares is looked up only where it decides. */
static bool fits(const schedule *self, const verbatim_request *request) {
  uint64_t wanted = schedule_pages_wanted(request, request_fed(request) + request->token_count);
  uint64_t needed = schedule_pages_promised(self) + wanted + self->active_count, available = pages_available(&self->pages);
  return self->active_count == 0 || needed <= available || needed - schedule_pages_shared(self, request) <= available;
}

/* First come, first served: a request that does not fit yet keeps later ones waiting. */
static void admit(schedule *self) {
  while (self->queue_first && self->active_count < self->options.max_active && fits(self, self->queue_first)) {
    verbatim_request *request = self->queue_first;
    self->queue_first = request->next;
    if (!self->queue_first) self->queue_last = NULL;
    take_slot(self, request);
  }
}

/* The one admitted last gives its pages back, and waits to be the next that is admitted. Returns its slot. */
static uint32_t preempt_youngest(schedule *self) {
  uint32_t at = self->active_count - 1;
  while (!self->sequences[self->order[at]].request) ASSERT(at-- > 0);
  uint32_t slot = self->order[at];
  sequence *s = &self->sequences[slot];
  s->request->row_most = max_u32(s->request->row_most, s->fed);
  queue_again(self, s->request);
  vacate(self, slot);
  self->counters.preemptions++;
  return slot;
}

/* Ends a request wherever it is. */
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
  self->timed -= request->deadline_seconds > 0;
  return true;
}

bool schedule_cancel(schedule *self, verbatim_request *request) {
  bool found = end_early(self, request, VERBATIM_CANCELLED);
  self->counters.cancellations += found;
  return found;
}

static bool is_over(const verbatim_request *request, double now) {
  return request->deadline_seconds > 0 && now - request->submitted_at >= request->deadline_seconds;
}

void schedule_expire(schedule *self) {
  if (self->timed == 0) return;
  double now = clock_seconds();
  for (verbatim_request *at = self->queue_first, *next; at; at = next) {
    next = at->next;
    if (is_over(at, now)) self->counters.deadlines += end_early(self, at, VERBATIM_DEADLINE);
  }
  for (uint32_t i = self->active_count; i > 0; i--) {
    verbatim_request *request = self->sequences[self->order[i - 1]].request;
    if (request && is_over(request, now)) self->counters.deadlines += end_early(self, request, VERBATIM_DEADLINE);
  }
}

/* === Building a step ======================================================================================================== */

typedef struct builder {
  schedule *self;
  exec_input in;
  step_row *rows;
  uint32_t tokens, logits, tiles, seqs;
  uint32_t made;                   /* rows that are not of the step's prompts, as ROWS_PROMPT says */
  uint32_t prompt_tiles, contexts; /* of these */
  uint32_t widened_pages;          /* of these contexts, where KV rows are widened */
  bool is_prompt;                  /* the rows that are added now */
  bool is_short_of_pages; /* a prompt could not go on */
} builder;

static builder begin(schedule *self, uint32_t side) {
  return (builder){.self = self, .in = exec_fill(self->machine, side), .rows = self->rows[side]};
}

static void add_token(builder *b, uint32_t slot, int32_t token, uint32_t position) {
  b->in.token[b->tokens] = token;
  b->in.position[b->tokens] = position;
  b->in.seq[b->tokens] = slot;
  b->self->watched[b->tokens] =
      (watch_row){.request = b->self->sequences[slot].request, .position = position, .slot = slot, .logit = UINT32_MAX,
                  .is_prompt = b->is_prompt};
  b->tokens++;
}

/* A logits row for the token row added last. */
static void add_logits(builder *b, uint32_t slot, uint32_t position) {
  const sequence *s = &b->self->sequences[slot];
  b->in.logit_row[b->logits] = b->tokens - 1;
  b->in.sample[b->logits] = request_sample(s->request, position + 1, slot);
  b->rows[b->logits] = (step_row){.slot = slot, .generation = s->generation, .position = position};
  b->self->watched[b->tokens - 1].logit = b->logits;
  b->logits++;
}

/* A tile ends where a page does. Within it a NaN in the KV row of one token may reach those before it, and what these have in a page of
 * healthy tokens may be another request's too. */
static void add_tiles(builder *b, uint32_t slot, uint32_t count, uint32_t position, uint32_t most) {
  attn_tile all = {.row = b->tokens, .count = count, .seq = slot, .position = position};
  b->tiles += exec_cut_tiles(b->in.tiles + b->tiles, all, most, PAGE_TOKENS);
  b->made += count;
}

static bool is_fast(const schedule *self) { return limits_of(self)->parity == PARITY_FAST_PREFILL; }

/* Whether the token at `position` attends as one of a prompt. */
static bool is_prompt(const schedule *self, const verbatim_request *request, uint32_t position) {
  return is_fast(self) && position < request->prompt_count;
}

/* The context that these prompt tokens see, and tiles that end where a pair of pages does: of each page's tokens one operand is made. */
static void add_prompt_tiles(builder *b, uint32_t slot, uint32_t count, uint32_t position, uint32_t most) {
  attn_tile all = {.row = b->tokens, .count = count, .seq = b->contexts, .position = position};
  b->prompt_tiles += exec_cut_tiles(b->in.prompt_tiles + b->prompt_tiles, all, most, PROMPT_TILE_TOKENS);
  exec_add_context(&b->in, b->contexts++, slot, position + count);
}

/* Whether these rows read KV rows that the step widens: it costs less, and there is room for them. No bit depends on it. */
static bool widens(const builder *b, uint32_t count, uint32_t position) {
  return plan_widens_rows(b->self->model->plan->header, b->widened_pages, count, position);
}

/* The context whose rows are widened, and tiles that name its first page there. */
static void add_widened_tiles(builder *b, uint32_t slot, uint32_t count, uint32_t position) {
  attn_tile all = {.row = b->tokens, .count = count, .seq = b->widened_pages, .position = position};
  exec_add_context(&b->in, b->contexts++, slot, position + count);
  b->widened_pages += (uint32_t)div_up(position + count, PAGE_TOKENS);
  b->prompt_tiles += exec_cut_tiles(b->in.prompt_tiles + b->prompt_tiles, all, limits_of(b->self)->attn_tile_tokens, PAGE_TOKENS);
}

/* Rows of known tokens, under fast-prefill all of the prompt or none of it; alone: each in a tile of its own. Those from row_next on have
 * logits rows. */
static void add_known(builder *b, uint32_t slot, uint32_t position, uint32_t count, bool alone) {
  const verbatim_request *request = b->self->sequences[slot].request;
  const bool is_widened = !alone && widens(b, count, position);
  b->is_prompt = is_widened || is_prompt(b->self, request, position);
  if (is_widened) add_widened_tiles(b, slot, count, position);
  else if (b->is_prompt) add_prompt_tiles(b, slot, count, position, alone ? 1 : PROMPT_TILE_TOKENS);
  else add_tiles(b, slot, count, position, alone ? 1 : limits_of(b->self)->attn_tile_tokens);
  for (uint32_t i = 0; i < count; i++) {
    add_token(b, slot, request_token(request, position + i), position + i);
    if (position + i >= request->row_next) add_logits(b, slot, position + i);
  }
  b->seqs++;
}

/* How many of these rows fit, by token rows and by logits rows. */
static uint32_t room_for(const builder *b, const verbatim_request *request, uint32_t position, uint32_t count) {
  const plan_limits *limits = limits_of(b->self);
  if (is_prompt(b->self, request, position)) count = min_u32(count, request->prompt_count - position);
  uint32_t bare = max_u32(request->row_next, position) - position; /* rows without logits come first */
  return min_u32(min_u32(count, limits->max_batch_tokens - b->tokens), bare + (limits->max_logit_rows - b->logits));
}

/* A page for the next row, from the youngest if need be. Returns false when that is the sequence itself. */
static bool make_room(schedule *self, uint32_t slot) {
  while (schedule_pages_grow(self, slot, 1) == 0)
    if (preempt_youngest(self) == slot) return false;
  return true;
}

/* One row for a sequence whose last token is on the device. */
static void add_decode(builder *b, uint32_t slot) {
  const plan_limits *limits = limits_of(b->self);
  sequence *s = &b->self->sequences[slot];
  if (!s->request || s->fed < s->known || s->sampled == s->request->max_tokens) return;
  if (b->tokens == limits->max_batch_tokens || b->logits == limits->max_logit_rows || !make_room(b->self, slot)) return;
  add_tiles(b, slot, 1, s->fed, 1);
  add_token(b, slot, -1 - (int32_t)slot, s->fed);
  add_logits(b, slot, s->fed);
  s->fed++;
  s->sampled++;
  b->seqs++;
}

/* Known tokens that a step may take of it. */
static uint32_t prompt_left(const builder *b, uint32_t slot) {
  const sequence *s = &b->self->sequences[slot];
  return s->request ? min_u32(s->known - min_u32(s->known, s->fed), b->self->options.chunk_tokens) : 0;
}

static void add_prompt(builder *b, uint32_t slot, uint32_t most) {
  schedule *self = b->self;
  sequence *s = &self->sequences[slot];
  schedule_pages_adopt(self, slot);
  if (is_fast(self) && b->contexts && !is_prompt(self, s->request, s->fed)) return; /* rows of made tokens stand before those of prompts */
  uint32_t wanted = room_for(b, s->request, s->fed, min_u32(prompt_left(b, slot), most));
  uint32_t count = schedule_pages_grow(self, slot, wanted);
  b->is_short_of_pages |= count < wanted;
  if (count == 0) return;
  add_known(b, slot, s->fed, count, false);
  self->counters.recomputed_tokens += min_u32(s->fed + count, max_u32(s->request->row_most, s->fed)) - s->fed;
  s->fed += count;
  s->sampled += s->fed == s->known && s->request->max_tokens > 0;
  schedule_pages_name(self, slot);
}

/* Every prompt gets its share of the step, or a page's worth if that is less; the first ones all that is left. So a short prompt does not
 * wait for a long one, and the first is not held up by those behind it. Under fast-prefill those whose next token was made come first. */
static void add_prompts(builder *b) {
  schedule *self = b->self;
  uint32_t most = limits_of(self)->max_batch_tokens, prompts = 0, kept = 0;
  for (uint32_t i = 0; i < self->active_count && is_fast(self); i++)
    if (prompt_left(b, self->order[i])) schedule_pages_adopt(self, self->order[i]);
  for (uint32_t i = 0; i < self->active_count; i++) prompts += prompt_left(b, self->order[i]) > 0;
  if (prompts == 0) return;
  uint32_t share = min_u32(max_u32((most - b->tokens) / prompts, 1), PAGE_TOKENS);
  for (uint32_t i = 0; i < self->active_count; i++) kept += min_u32(prompt_left(b, self->order[i]), share);
  for (uint32_t i = 0; i < 2 * self->active_count; i++) {
    uint32_t slot = self->order[i % self->active_count], left = prompt_left(b, slot), own = min_u32(left, share);
    bool is_late = left && is_prompt(self, self->sequences[slot].request, self->sequences[slot].fed);
    if (!left || is_late != (i >= self->active_count)) continue;
    kept -= own;
    add_prompt(b, slot, max_u32(own, most - min_u32(most, b->tokens + kept)));
  }
}

/* Nothing could be added for want of pages, and no step under way will free any. */
static bool is_stuck(const builder *b) {
  return b->tokens == 0 && b->is_short_of_pages && b->self->submitted == b->self->settled;
}

static void write_head(const builder *b) {
  step_in made = {.token_count = b->made, .tile_count = b->tiles, .seq_count = b->seqs - b->contexts};
  step_in prompt = {.token_count = b->tokens - b->made, .tile_count = b->prompt_tiles, .seq_count = b->contexts};
  exec_set_counts(&b->in, b->logits, made, prompt);
}

static void submit_step(builder *b, uint32_t side, uint32_t decoding) {
  schedule *self = b->self;
  verbatim_counters *c = &self->counters;
  write_head(b);
  if (self->options.trace) watch_step(self->watch, side, self->watched, b->tokens, NULL);
  else exec_submit(self->machine, side, decoding == b->tokens);
  self->submitted++;
  c->steps++;
  c->decode_steps += decoding == b->tokens;
  c->mixed_steps += decoding > 0 && decoding < b->tokens;
  c->token_rows += b->tokens;
  c->most_sequences = max_u32(c->most_sequences, b->seqs);
}

bool schedule_step(schedule *self, uint32_t side) {
  admit(self);
  builder b = begin(self, side);
  for (uint32_t i = 0; i < self->active_count; i++) add_decode(&b, self->order[i]);
  uint32_t decoding = b.tokens; /* rows of sequences that had their whole prompt before this step */
  add_prompts(&b);
  while (is_stuck(&b)) {
    preempt_youngest(self);
    b = begin(self, side);
    add_prompts(&b);
  }
  if (b.tokens == 0) return false;
  self->row_count[side] = b.logits;
  submit_step(&b, side, decoding);
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
    self->timed -= request->deadline_seconds > 0;
    vacate(self, slot);
  }
  request_show(self->model, request, &s->text, made);
  if (made && request->on_token && request_is_at(request, finish, count)) request->on_token(request, count - 1);
}

/* A row of a sequence that is still there. */
static void settle_row(schedule *self, const step_row *row, const exec_results *results, uint32_t index) {
  sequence *s = &self->sequences[row->slot];
  verbatim_request *request = s->request;
  request->row_next = row->position + 1;
  if (request->on_logits && row->position < request->prompt_count)
    request->on_logits(request, row->position, results->logits + (uint64_t)index * self->model->plan->header->model.vocab);
  if (s->request != request) return; /* cancelled by the callback */
  if (row->position + 1 < request->prompt_count && !request_scores(request, row->position + 1)) return;
  if (results->result[index].nonfinite) {
    s->is_broken = true;
    s->broken = row->position;
    return;
  }
  uint32_t before = request->token_count;
  request_push(self->model, request, &s->text, &results->result[index], results->top + (uint64_t)index * TOP_LOGPROBS_MAX,
               results->digest[index]);
  schedule_pages_name(self, row->slot);
  show(self, row->slot, request->token_count > before);
}

/* Scores that are there although the steps did not show it: see locate. */
static void settle_scores(schedule *self, const exec_results *results, uint32_t slot, uint32_t side, uint32_t count) {
  sequence *s = &self->sequences[slot];
  for (uint32_t i = 0; i < count; i++) {
    uint32_t position = self->rows[side][i].position;
    if (!request_scores(s->request, position + 1) || results->result[i].nonfinite) continue;
    if (position + 1 != s->request->score_from + s->request->score_count) continue; /* there already, or behind one that is broken */
    request_push(self->model, s->request, &s->text, &results->result[i], results->top + (uint64_t)i * TOP_LOGPROBS_MAX,
                 results->digest[i]);
  }
}

/* Where NaN or Inf begins: the tokens are fed again, alone and watched, into the pages they are in. In a tile a broken token may break
 * those before it, and which it does depends on the steps: so every tile is of one token here, and what is found and scored is a function
 * of the tokens up to the end of the page. */
static watch_fault locate(schedule *self, uint32_t slot, uint32_t side) {
  const sequence *s = &self->sequences[slot];
  uint32_t end = min_u32((s->broken / PAGE_TOKENS + 1) * PAGE_TOKENS, request_fed(s->request) + s->request->token_count);
  watch_fault fault = {UINT32_MAX, UINT32_MAX};
  s->request->row_next = request_logits_from(s->request);
  for (uint32_t position = 0; position < end;) {
    builder b = begin(self, side);
    uint32_t count = room_for(&b, s->request, position, end - position);
    add_known(&b, slot, position, count, true);
    for (uint32_t i = 0; i < count; i++) self->watched[i].request = NULL;
    write_head(&b);
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

void schedule_settle(schedule *self, uint32_t side) {
  exec_results results = exec_wait(self->machine, side);
  self->settled++;
  give_vacated_slots(self);
  for (uint32_t i = 0; i < self->row_count[side]; i++) {
    const step_row *row = &self->rows[side][i];
    const sequence *s = &self->sequences[row->slot];
    if (s->request && s->generation == row->generation && !s->is_broken) settle_row(self, row, &results, i); /* else it ended a step ago */
  }
  self->row_count[side] = 0;
  for (uint32_t slot = 0; slot < limits_of(self)->max_seqs; slot++)
    if (self->sequences[slot].request && self->sequences[slot].is_broken) settle_broken(self, slot, side);
}
