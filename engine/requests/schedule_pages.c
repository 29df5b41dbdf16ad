/* schedule_pages.c - see schedule_pages.h. */
#define _DEFAULT_SOURCE /* getentropy */
#include "requests/schedule_pages.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

status schedule_pages_open(schedule *self) {
  uint8_t both[2 * DIGEST_BYTES];
  if (getentropy(&self->key_seed, sizeof self->key_seed) != 0) return FAIL(ERR_IO, "prefix cache: no random numbers: %s", strerror(errno));
  memcpy(both, self->model->plan->header->numerics_id, DIGEST_BYTES);
  memcpy(both + DIGEST_BYTES, self->model->weights_digest, DIGEST_BYTES);
  self->root = digest_of_seeded(both, sizeof both, self->key_seed);
  return OK;
}

/* The key of the page behind those of key `before`, from its 64 token ids; under fast-prefill also from how many of these are of the
 * prompt, as a token's KV rows are others when it was made. */
static digest next_key(const schedule *self, const digest *before, const verbatim_request *request, uint32_t page_index) {
  struct { digest before; int32_t ids[PAGE_TOKENS]; uint32_t prompt_tokens; } content = {.before = *before};
  for (uint32_t i = 0; i < PAGE_TOKENS; i++) content.ids[i] = request_token(request, page_index * PAGE_TOKENS + i);
  if (self->model->plan->header->limits.parity == PARITY_FAST_PREFILL) {
    uint32_t before_page = min_u32(request->prompt_count, page_index * PAGE_TOKENS);
    content.prompt_tokens = min_u32(request->prompt_count - before_page, PAGE_TOKENS);
  }
  return digest_of_seeded(&content, sizeof content, self->key_seed);
}

static void append(schedule *self, uint32_t slot, uint32_t number) {
  sequence *s = &self->sequences[slot];
  block_table_row(self->table, slot)[s->page_count++] = number;
  block_table_change(self->table, slot, 0);
}

/* Only at the end of a page, behind which it has none yet. */
void schedule_pages_adopt(schedule *self, uint32_t slot) {
  sequence *s = &self->sequences[slot];
  if (self->options.no_prefix_cache) return;
  while (s->fed == s->page_count * PAGE_TOKENS && s->named == s->page_count && s->fed + PAGE_TOKENS <= s->request->row_next) {
    digest key = next_key(self, &s->key, s->request, s->page_count);
    uint32_t number = pages_find(&self->pages, &key);
    if (number == PAGES_NONE) return;
    append(self, slot, number);
    s->key = key;
    s->named++;
    s->fed += PAGE_TOKENS;
    self->counters.reused_tokens += PAGE_TOKENS;
  }
}

uint32_t schedule_pages_grow(schedule *self, uint32_t slot, uint32_t rows) {
  sequence *s = &self->sequences[slot];
  while (s->page_count * PAGE_TOKENS < s->fed + rows && pages_available(&self->pages) > 0) {
    bool evicted;
    uint32_t number = pages_take(&self->pages, &evicted);
    self->counters.evicted_pages += evicted;
    if (evicted) exec_drop_pages(self->machine, &number, 1);
    append(self, slot, number);
  }
  return min_u32(rows, s->page_count * PAGE_TOKENS - s->fed);
}

void schedule_pages_name(schedule *self, uint32_t slot) {
  sequence *s = &self->sequences[slot];
  if (self->options.no_prefix_cache) return;
  uint32_t full = min_u32(s->fed, s->request->prompt_count + s->request->token_count) / PAGE_TOKENS;
  for (; s->named < full; s->named++) {
    s->key = next_key(self, &s->key, s->request, s->named);
    pages_name(&self->pages, block_table_row(self->table, slot)[s->named], &s->key);
  }
}

/* The last one first: it is of use only while those before it are kept, and is to be evicted before them. */
void schedule_pages_release(schedule *self, uint32_t slot) {
  sequence *s = &self->sequences[slot];
  const uint32_t *row = block_table_row(self->table, slot);
  for (; s->page_count > 0; s->page_count--)
    if (pages_give(&self->pages, row[s->page_count - 1])) exec_drop_pages(self->machine, &row[s->page_count - 1], 1);
}

uint32_t schedule_pages_shared(const schedule *self, const verbatim_request *request) {
  uint32_t shared = 0, full = self->options.no_prefix_cache ? 0 : request->row_next / PAGE_TOKENS;
  digest key = self->root;
  for (uint32_t i = 0; i < full; i++) {
    key = next_key(self, &key, request, i);
    uint32_t number = pages_peek(&self->pages, &key);
    if (number == PAGES_NONE) break;
    shared += self->pages.list[number].users > 0;
  }
  return shared;
}

uint32_t schedule_pages_wanted(const verbatim_request *request, uint32_t known) {
  return min_u32((uint32_t)div_up(known + 1u, PAGE_TOKENS), request_pages(request));
}

uint64_t schedule_pages_promised(const schedule *self) {
  uint64_t promised = 0;
  for (uint32_t i = 0; i < self->active_count; i++) {
    const sequence *s = &self->sequences[self->order[i]];
    uint32_t wanted = s->request ? schedule_pages_wanted(s->request, s->known) : 0;
    if (wanted > s->page_count) promised += wanted - s->page_count;
  }
  return promised;
}
