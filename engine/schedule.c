/* schedule.c - see schedule.h. Admission, the building of a step, and the settling of its results, in this order below. */
#include "schedule.h"
#include <string.h>

status schedule_open(schedule *self, const request_model *model, exec *machine, const schedule_options *options, arena *host) {
  const plan_limits *limits = &model->plan->header->limits;
  void *sequences, *order, *changed, *rows[2];
  *self = (schedule){.model = model, .machine = machine, .options = *options};
  if (options->max_active == 0 || options->max_active > limits->max_seqs) self->options.max_active = limits->max_seqs;
  if (options->chunk_tokens == 0 || options->chunk_tokens > limits->max_batch_tokens)
    self->options.chunk_tokens = limits->max_batch_tokens;
  TRY(pages_open(&self->pages, limits->kv_pages, options->shuffle_pages, host));
  TRY(arena_take(host, sizeof(sequence) * (uint64_t)limits->max_seqs, &sequences));
  TRY(arena_take(host, sizeof(uint32_t) * (uint64_t)limits->max_seqs, &order));
  TRY(arena_take(host, sizeof(exec_slot) * (uint64_t)limits->max_seqs, &changed));
  for (int i = 0; i < 2; i++) TRY(arena_take(host, sizeof(step_row) * (uint64_t)limits->max_logit_rows, &rows[i]));
  self->sequences = sequences;
  self->order = order;
  self->changed = changed;
  for (int i = 0; i < 2; i++) self->rows[i] = rows[i];
  return OK;
}

static const plan_limits *limits_of(const schedule *self) { return &self->model->plan->header->limits; }

void schedule_submit(schedule *self, verbatim_request *request) {
  request->next = NULL;
  if (self->queue_last) self->queue_last->next = request;
  else self->queue_first = request;
  self->queue_last = request;
}

bool schedule_idle(const schedule *self) { return !self->queue_first && self->active_count == 0; }

/* === Admission and release ================================================================================================== */

/* One is free: fewer than max_seqs are taken. */
static uint32_t free_slot(const schedule *self) {
  uint32_t slots = limits_of(self)->max_seqs, tried = 0, slot = self->options.slot_offset % slots;
  while (self->sequences[slot].taken) {
    slot = (slot + 1) % slots;
    ASSERT(++tried < slots);
  }
  return slot;
}

/* First come, first served: a request that does not fit yet keeps later ones waiting. */
static void admit(schedule *self) {
  while (self->queue_first && self->active_count < self->options.max_active) {
    verbatim_request *request = self->queue_first;
    uint32_t page_count = request_pages(request);
    if (page_count > self->pages.free_count) return;
    self->queue_first = request->next;
    if (!self->queue_first) self->queue_last = NULL;
    uint32_t slot = free_slot(self);
    sequence *s = &self->sequences[slot];
    *s = (sequence){.request = request, .taken = true, .generation = s->generation + 1, .page_count = page_count, .sent = UINT64_MAX};
    pages_take(&self->pages, exec_block_row(self->machine, slot), page_count);
    self->changed[self->changed_count++] =
        (exec_slot){.slot = slot, .list_count = request_list(request, exec_list(self->machine, slot))};
    self->order[self->active_count++] = slot;
  }
}

/* Slot and pages may be dealt again at once. A step in flight may still hold rows of this owner, which write to its pages and to the
 * slot's token; it was submitted before any step of the next owner, and the device runs steps in that order. */
static void release(schedule *self, uint32_t slot) {
  sequence *s = &self->sequences[slot];
  exec_drop_pages(self->machine, exec_block_row(self->machine, slot), s->page_count);
  pages_give(&self->pages, exec_block_row(self->machine, slot), s->page_count);
  s->request = NULL;
  s->taken = false;
  uint32_t at = 0;
  while (self->order[at] != slot) at++;
  self->active_count--;
  memmove(self->order + at, self->order + at + 1, (self->active_count - at) * sizeof *self->order);
}

/* The device has read the slot's row and list, and they may be changed: always so when a result of its owner is there. */
static bool was_read(const schedule *self, uint32_t slot) { return self->sequences[slot].sent < self->settled; }

/* Not in flight any more: what cancelled requests held. */
static void release_cancelled(schedule *self) {
  for (uint32_t i = self->active_count; i > 0; i--) {
    uint32_t slot = self->order[i - 1];
    if (!self->sequences[slot].request && was_read(self, slot)) release(self, slot);
  }
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

bool schedule_cancel(schedule *self, verbatim_request *request) {
  bool found = unqueue(self, request);
  for (uint32_t i = 0; i < self->active_count && !found; i++) {
    uint32_t slot = self->order[i];
    if (self->sequences[slot].request != request) continue;
    self->sequences[slot].request = NULL;
    if (was_read(self, slot)) release(self, slot);
    found = true;
  }
  if (found) request->finish = VERBATIM_CANCELLED;
  return found;
}

/* === Building a step ======================================================================================================== */

typedef struct builder {
  schedule *self;
  exec_input in;
  step_row *rows;
  uint32_t tokens, logits, tiles, seqs;
} builder;

static void add_token(builder *b, uint32_t slot, int32_t token, uint32_t position) {
  b->in.token[b->tokens] = token;
  b->in.position[b->tokens] = position;
  b->in.seq[b->tokens] = slot;
  b->tokens++;
}

/* A logits row for the token row added last. */
static void add_logits(builder *b, uint32_t slot, uint32_t position) {
  const sequence *s = &b->self->sequences[slot];
  b->in.logit_row[b->logits] = b->tokens - 1;
  b->in.sample[b->logits] = request_sample(s->request, position + 1, slot);
  b->rows[b->logits] = (step_row){.slot = slot, .generation = s->generation, .position = position};
  b->logits++;
}

static void add_tiles(builder *b, uint32_t slot, uint32_t row, uint32_t count, uint32_t position) {
  uint32_t most = limits_of(b->self)->attn_tile_tokens;
  for (uint32_t done = 0; done < count; done += most)
    b->in.tiles[b->tiles++] =
        (attn_tile){.row = row + done, .count = min_u32(most, count - done), .seq = slot, .position = position + done};
}

/* One row for a sequence whose last token is on the device. */
static void add_decode(builder *b, uint32_t slot) {
  const plan_limits *limits = limits_of(b->self);
  sequence *s = &b->self->sequences[slot];
  if (!s->request || s->sampled == 0 || s->sampled == s->request->max_tokens) return;
  if (b->tokens == limits->max_batch_tokens || b->logits == limits->max_logit_rows) return;
  uint32_t position = s->request->prompt_count + s->sampled - 1;
  add_token(b, slot, -1 - (int32_t)slot, position);
  add_tiles(b, slot, b->tokens - 1, 1, position);
  add_logits(b, slot, position);
  s->sampled++;
  b->seqs++;
}

/* How many prompt tokens of the sequence go into this step. Those before the first with a logits row need none of the step's. */
static uint32_t chunk_of(const builder *b, const sequence *s) {
  const plan_limits *limits = limits_of(b->self);
  uint32_t from = max_u32(request_logits_from(s->request), s->fed), left = request_fed(s->request) - s->fed;
  uint32_t count = min_u32(min_u32(left, b->self->options.chunk_tokens), limits->max_batch_tokens - b->tokens);
  return min_u32(count, from - s->fed + (limits->max_logit_rows - b->logits));
}

static void add_prompt(builder *b, uint32_t slot) {
  sequence *s = &b->self->sequences[slot];
  const verbatim_request *request = s->request;
  if (!request || s->fed == request_fed(request)) return;
  uint32_t count = chunk_of(b, s), first_row = b->tokens;
  if (count == 0) return;
  add_tiles(b, slot, first_row, count, s->fed);
  for (uint32_t i = 0; i < count; i++, s->fed++) {
    add_token(b, slot, request->prompt[s->fed], s->fed);
    if (s->fed >= request_logits_from(request)) add_logits(b, slot, s->fed);
    s->sampled += s->fed + 1 == request->prompt_count;
  }
  b->seqs++;
}

bool schedule_step(schedule *self, uint32_t parity) {
  admit(self);
  builder b = {.self = self, .in = exec_fill(self->machine, parity), .rows = self->rows[parity]};
  uint32_t decoding = 0; /* rows of sequences that had their whole prompt before this step */
  for (uint32_t i = 0; i < self->active_count; i++) add_decode(&b, self->order[i]);
  decoding = b.tokens;
  for (uint32_t i = 0; i < self->active_count; i++) add_prompt(&b, self->order[i]);
  if (b.tokens == 0) return false;
  *b.in.head = (step_in){.token_count = b.tokens, .logit_count = b.logits, .tile_count = b.tiles, .seq_count = b.seqs};
  self->row_count[parity] = b.logits;
  exec_submit(self->machine, parity, decoding == b.tokens, self->changed, self->changed_count);
  for (uint32_t i = 0; i < self->changed_count; i++) self->sequences[self->changed[i].slot].sent = self->submitted;
  self->changed_count = 0;
  self->submitted++;
  return true;
}

/* === Settling =============================================================================================================== */

/* A row of a sequence that is still there. The slot is free again before the callbacks, after which the request may be gone. */
static void settle_row(schedule *self, const step_row *row, const exec_results *results, uint32_t index) {
  sequence *s = &self->sequences[row->slot];
  verbatim_request *request = s->request;
  if (request->on_logits && row->position < request->prompt_count)
    request->on_logits(request, row->position, results->logits + (uint64_t)index * self->model->plan->header->model.vocab);
  if (s->request != request) return; /* cancelled by the callback */
  if (row->position + 1 < request->prompt_count && !request_scores(request, row->position + 1)) return;
  uint32_t before = request->token_count;
  request_push(self->model, request, &s->text, &results->result[index], results->top + (uint64_t)index * TOP_LOGPROBS_MAX,
               results->digest[index]);
  enum verbatim_finish finish = request->finish;
  bool made = request->token_count > before;
  if (finish != VERBATIM_RUNNING) release(self, row->slot);
  request_show(self->model, request, &s->text, made);
  if (made && request->on_token && request_is_at(request, finish, before + 1)) request->on_token(request, before);
}

void schedule_settle(schedule *self, uint32_t parity) {
  exec_results results = exec_wait(self->machine, parity);
  self->settled++;
  release_cancelled(self);
  for (uint32_t i = 0; i < self->row_count[parity]; i++) {
    const step_row *row = &self->rows[parity][i];
    const sequence *s = &self->sequences[row->slot];
    if (s->request && s->generation == row->generation) settle_row(self, row, &results, i); /* else it finished a step ago */
  }
  self->row_count[parity] = 0;
}
