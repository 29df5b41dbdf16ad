/* schedule.c - see schedule.h. Admission, the building of a step, and the settling of its results, in this order below. */
#include "schedule.h"
#include <string.h>

status schedule_open(schedule *self, const plan *p, exec *machine, const schedule_options *options, arena *host) {
  const plan_limits *limits = &p->header->limits;
  void *sequences, *order, *changed, *rows[2];
  *self = (schedule){.plan = p, .machine = machine, .options = *options};
  if (options->max_active == 0 || options->max_active > limits->max_seqs) self->options.max_active = limits->max_seqs;
  if (options->chunk_tokens == 0 || options->chunk_tokens > limits->max_batch_tokens)
    self->options.chunk_tokens = limits->max_batch_tokens;
  TRY(pages_open(&self->pages, limits->kv_pages, options->shuffle_pages, host));
  TRY(arena_take(host, sizeof(sequence) * (uint64_t)limits->max_seqs, &sequences));
  TRY(arena_take(host, sizeof(uint32_t) * (uint64_t)limits->max_seqs, &order));
  TRY(arena_take(host, sizeof(uint32_t) * (uint64_t)limits->max_seqs, &changed));
  for (int i = 0; i < 2; i++) TRY(arena_take(host, sizeof(step_row) * (uint64_t)limits->max_logit_rows, &rows[i]));
  self->sequences = sequences;
  self->order = order;
  self->changed_slots = changed;
  for (int i = 0; i < 2; i++) self->rows[i] = rows[i];
  return OK;
}

void schedule_submit(schedule *self, verbatim_request *request) {
  request->next = NULL;
  if (self->queue_last) self->queue_last->next = request;
  else self->queue_first = request;
  self->queue_last = request;
}

bool schedule_idle(const schedule *self) { return !self->queue_first && self->active_count == 0; }

/* === Admission and release ================================================================================================== */

/* One is free: fewer than max_seqs are active. */
static uint32_t free_slot(const schedule *self) {
  uint32_t slots = self->plan->header->limits.max_seqs, tried = 0, slot = self->options.slot_offset % slots;
  while (self->sequences[slot].request) {
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
    *s = (sequence){.request = request, .generation = s->generation + 1, .page_count = page_count};
    pages_take(&self->pages, exec_block_row(self->machine, slot), page_count);
    self->changed_slots[self->changed_count++] = slot;
    self->order[self->active_count++] = slot;
  }
}

/* Slot and pages may be dealt again at once. A step in flight may still hold a row of this owner, which writes to its last page and
 * to the slot's token; it was submitted before any step of the next owner, and the device runs steps in that order. */
static void release(schedule *self, uint32_t slot) {
  sequence *s = &self->sequences[slot];
  exec_drop_pages(self->machine, exec_block_row(self->machine, slot), s->page_count);
  pages_give(&self->pages, exec_block_row(self->machine, slot), s->page_count);
  s->request = NULL;
  uint32_t at = 0;
  while (self->order[at] != slot) at++;
  self->active_count--;
  memmove(self->order + at, self->order + at + 1, (self->active_count - at) * sizeof *self->order);
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
static void add_logits(builder *b, uint32_t slot, uint32_t position, bool chooses) {
  sequence *s = &b->self->sequences[slot];
  b->in.logit_row[b->logits] = b->tokens - 1;
  b->in.sample[b->logits] = chooses ? request_sample(s->request, s->sampled, slot)
                                    : (sample_param){.top_p_fixed = 1ull << 32, .position = position + 1, .slot = slot};
  b->rows[b->logits] = (step_row){.slot = slot, .generation = s->generation, .position = position, .chooses = chooses};
  b->logits++;
  if (chooses) s->sampled++;
}

static void add_tiles(builder *b, uint32_t slot, uint32_t row, uint32_t count, uint32_t position) {
  uint32_t most = b->self->plan->header->limits.attn_tile_tokens;
  for (uint32_t done = 0; done < count; done += most)
    b->in.tiles[b->tiles++] =
        (attn_tile){.row = row + done, .count = min_u32(most, count - done), .seq = slot, .position = position + done};
}

/* One row for a sequence whose last token is on the device. */
static void add_decode(builder *b, uint32_t slot) {
  const plan_limits *limits = &b->self->plan->header->limits;
  sequence *s = &b->self->sequences[slot];
  if (s->fed < s->request->prompt_count || s->sampled == 0 || s->sampled == s->request->max_tokens) return;
  if (b->tokens == limits->max_batch_tokens || b->logits == limits->max_logit_rows) return;
  uint32_t position = s->request->prompt_count + s->sampled - 1;
  add_token(b, slot, -1 - (int32_t)slot, position);
  add_tiles(b, slot, b->tokens - 1, 1, position);
  add_logits(b, slot, position, true);
  b->seqs++;
}

/* How many prompt tokens of the sequence go into this step. With logits rows for the whole prompt the last token takes a step of its
 * own: rows that choose nothing still write the slot's token, in no order, and must not meet the row that does. What they wrote is
 * never read: the slot's token is first read in the step after the one that chooses. */
static uint32_t chunk_of(const builder *b, const sequence *s) {
  const plan_limits *limits = &b->self->plan->header->limits;
  uint32_t left = s->request->prompt_count - s->fed, logits_left = limits->max_logit_rows - b->logits;
  uint32_t count = min_u32(min_u32(left, b->self->options.chunk_tokens), limits->max_batch_tokens - b->tokens);
  if (s->request->on_logits) {
    count = min_u32(count, logits_left);
    return left > 1 && count == left ? left - 1 : count;
  }
  return count == left && logits_left == 0 ? count - 1 : count;
}

static void add_prompt(builder *b, uint32_t slot) {
  sequence *s = &b->self->sequences[slot];
  const verbatim_request *request = s->request;
  if (s->fed == request->prompt_count) return;
  uint32_t count = chunk_of(b, s), first_row = b->tokens;
  if (count == 0) return;
  add_tiles(b, slot, first_row, count, s->fed);
  for (uint32_t i = 0; i < count; i++, s->fed++) {
    bool last = s->fed + 1 == request->prompt_count;
    add_token(b, slot, request->prompt[s->fed], s->fed);
    if (last || request->on_logits) add_logits(b, slot, s->fed, last);
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
  exec_submit(self->machine, parity, decoding == b.tokens, self->changed_slots, self->changed_count);
  self->changed_count = 0;
  return true;
}

/* === Settling =============================================================================================================== */

void schedule_settle(schedule *self, uint32_t parity) {
  exec_results results = exec_wait(self->machine, parity);
  uint32_t vocab = self->plan->header->model.vocab;
  for (uint32_t i = 0; i < self->row_count[parity]; i++) {
    const step_row *row = &self->rows[parity][i];
    sequence *s = &self->sequences[row->slot];
    verbatim_request *request = s->request;
    if (!request || s->generation != row->generation) continue; /* the sequence finished a step ago */
    if (request->on_logits && row->position < request->prompt_count)
      request->on_logits(request, row->position, results.logits + (uint64_t)i * vocab);
    if (!row->chooses) continue;
    uint32_t before = request->token_count;
    request_push(self->plan, request, &results.result[i], results.digest[i]);
    bool done = request->finish != VERBATIM_RUNNING;
    if (done) release(self, row->slot); /* before the callback, after which the request may be gone */
    if (request->on_token && request->token_count > before) request->on_token(request, before);
  }
  self->row_count[parity] = 0;
}
