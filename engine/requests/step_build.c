/* step_build.c - see step_build.h. Allocates nothing. */
#include "requests/step_build.h"
#include "plan/format_masks.h"
#include "plan/format_widen.h"
#include "requests/request.h"

#define NO_STATE UINT32_MAX

step_build step_build_begin(const request_model *model, exec_input in, step_row *rows, step_drafted *drafted, watch_row *watched) {
  return (step_build){.header = model->plan->header, .model = model, .in = in, .rows = rows, .drafted = drafted, .watched = watched};
}

/* === Rows =================================================================================================================== */

/* The token after this position, or -1: the step chooses it. */
static int32_t token_after(const verbatim_request *request, uint32_t position) {
  const bool is_known = position + 1 < request->prompt_count + request->token_count;
  return is_known ? request_token(request, position + 1) : -1;
}

static void add_token(step_build *self, const sequence *s, int32_t token, uint32_t position) {
  self->in.token[self->tokens] = token;
  self->in.position[self->tokens] = position;
  self->in.seq[self->tokens] = s->slot;
  if (self->in.next) self->in.next[self->tokens] = token_after(s->request, position);
  self->watched[self->tokens] = (watch_row){.request = s->request, .position = position, .slot = s->slot, .logit = UINT32_MAX,
                                            .is_prompt = self->is_prompt};
  self->tokens++;
}

/* The mask of what may follow in this state of the request's constraint. */
static void add_mask(step_build *self, const verbatim_request *request, uint32_t state, sample_param *param) {
  int32_t stops[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  masks *all = self->model->masks;
  ASSERT(self->masks < plan_mask_rows(&self->header->limits));
  const masks_row mask = masks_find(all, request->constraint, state, stops, request_stop_ids(self->model->plan, request, stops));
  self->in.masks[self->masks++] = (exec_mask){.row = mask.row, .made = mask.made};
  param->mask = 1 + mask.row;
  param->adjusted = 1;
}

/* A logits row for the token row added last. state: of the request's constraint after it, if the row chooses a token that is kept. */
static void add_logits(step_build *self, const sequence *s, uint32_t position, uint32_t state) {
  sample_param *param = &self->in.sample[self->logits];
  self->in.logit_row[self->logits] = self->tokens - 1;
  *param = request_sample(s->request, position + 1, s->slot);
  if (s->request->constraint && param->target < 0 && state != NO_STATE) add_mask(self, s->request, state, param);
  self->rows[self->logits] = (step_row){.slot = s->slot, .generation = s->generation, .position = position, .draft = -1};
  self->watched[self->tokens - 1].logit = self->logits;
  self->logits++;
}

/* Asks for drafts after the rows of a sequence, whose logits rows begin at `first`, unless none of them chooses a token, or one of the
 * drafts' positions has no page. */
static void add_drafts(step_build *self, const sequence *s, uint32_t first) {
  const plan_limits *limits = &self->header->limits;
  while (first < self->logits && self->in.sample[first].target >= 0) first++;
  if (!self->in.drafts || first == self->logits) return;
  const uint64_t places = min_u64((uint64_t)s->page_count * PAGE_TOKENS, limits->max_len);
  if ((uint64_t)self->rows[self->logits - 1].position + limits->draft_tokens > places) return;
  self->drafted[self->drafts] = (step_drafted){.slot = s->slot, .generation = s->generation};
  self->in.drafts[self->drafts++] = (step_draft){.first = first, .count = self->logits - first, .slot = s->slot};
}

/* === Tiles ================================================================================================================== */

/* A tile ends where a page does, or where a pair of pages does of which each has warps of its own. Within a page a NaN in the KV row of one
 * token may reach the rows before it, and the rest of a page of healthy tokens may be shared with another request. */
static void add_tiles(step_build *self, const sequence *s, uint32_t count, uint32_t position, uint32_t most) {
  attn_tile all = {.row = self->tokens, .count = count, .seq = s->slot, .position = position};
  self->tiles += exec_cut_tiles(self->in.tiles + self->tiles, all, most, plan_tile_edge(&self->header->limits));
  self->ordinary_rows += count;
}

/* The context that these prompt tokens see, and tiles that end where a pair of pages does: each page pair is one operand of the product. */
static void add_prompt_tiles(step_build *self, const sequence *s, uint32_t count, uint32_t position, uint32_t most) {
  attn_tile all = {.row = self->tokens, .count = count, .seq = self->contexts, .position = position};
  self->prompt_tiles += exec_cut_tiles(self->in.prompt_tiles + self->prompt_tiles, all, most, PROMPT_TILE_TOKENS);
  exec_add_context(&self->in, self->contexts++, s->slot, position + count);
}

/* Whether the step dequantizes the KV rows that these rows read: it costs less, and there is room for them. No bit depends on it. */
static bool widens(const step_build *self, uint32_t count, uint32_t position) {
  return plan_widens_rows(self->header, self->widened_pages, count, position);
}

/* The context whose rows are dequantized, and tiles that name its first page there. */
static void add_widened_tiles(step_build *self, const sequence *s, uint32_t count, uint32_t position) {
  attn_tile all = {.row = self->tokens, .count = count, .seq = self->widened_pages, .position = position};
  attn_tile *tiles = self->in.prompt_tiles + self->prompt_tiles;
  exec_add_context(&self->in, self->contexts++, s->slot, position + count);
  self->widened_pages += (uint32_t)div_up(position + count, PAGE_TOKENS);
  self->prompt_tiles += exec_cut_tiles(tiles, all, self->header->limits.attn_tile_tokens, PAGE_TOKENS);
}

/* === What the scheduler adds ================================================================================================ */

bool step_build_is_prompt(const step_build *self, const verbatim_request *request, uint32_t position) {
  return self->header->limits.parity == PARITY_FAST_PREFILL && position < request->prompt_count;
}

uint32_t step_build_room(const step_build *self, const verbatim_request *request, uint32_t position, uint32_t count) {
  const plan_limits *limits = &self->header->limits;
  if (step_build_is_prompt(self, request, position)) count = min_u32(count, request->prompt_count - position);
  uint32_t bare = max_u32(request_state_of(request)->row_next, position) - position; /* rows without logits come first */
  return min_u32(min_u32(count, limits->max_batch_tokens - self->tokens), bare + (limits->max_logit_rows - self->logits));
}

void step_build_decode(step_build *self, const sequence *s) {
  const bool is_known = s->draft.taken || s->draft.was_taken; /* else the slot on the device has it */
  const uint32_t first = self->logits;
  self->is_prompt = false;
  add_tiles(self, s, 1 + s->draft.taken, s->computed, self->header->limits.attn_tile_tokens);
  add_token(self, s, is_known ? request_token(s->request, s->computed) : -1 - (int32_t)s->slot, s->computed);
  uint32_t state = s->constrained;
  add_logits(self, s, s->computed, state);
  for (uint32_t i = 0; i < s->draft.taken; i++) {
    if (s->request->constraint)
      state = vocabulary_advance(&self->model->masks->vocabulary, &s->request->constraint->automaton, state, s->draft.ids[i]);
    add_token(self, s, s->draft.ids[i], s->computed + 1 + i);
    add_logits(self, s, s->computed + 1 + i, state);
    self->rows[self->logits - 1].draft = s->draft.ids[i];
  }
  add_drafts(self, s, first);
  self->seqs++;
}

void step_build_known(step_build *self, const sequence *s, uint32_t position, uint32_t count, bool alone) {
  const verbatim_request *request = s->request;
  const bool is_widened = !alone && widens(self, count, position);
  const uint32_t logits = self->logits;
  self->is_prompt = is_widened || step_build_is_prompt(self, request, position);
  if (is_widened) add_widened_tiles(self, s, count, position);
  else if (self->is_prompt) add_prompt_tiles(self, s, count, position, alone ? 1 : PROMPT_TILE_TOKENS);
  else add_tiles(self, s, count, position, alone ? 1 : self->header->limits.attn_tile_tokens);
  for (uint32_t i = 0; i < count; i++) {
    add_token(self, s, request_token(request, position + i), position + i);
    if (position + i >= request_state_of(request)->row_next)
      add_logits(self, s, position + i, alone ? NO_STATE : s->constrained);
  }
  add_drafts(self, s, logits);
  self->seqs++;
}

void step_build_end(const step_build *self) {
  step_in ordinary = {.token_count = self->ordinary_rows, .tile_count = self->tiles, .seq_count = self->seqs - self->contexts};
  step_in prompt = {.token_count = self->tokens - self->ordinary_rows, .tile_count = self->prompt_tiles, .seq_count = self->contexts};
  exec_set_counts(&self->in, self->logits, ordinary, prompt);
  if (self->in.drafts) exec_set_drafts(&self->in, self->drafts);
}
