/* schedule_pages.c - see schedule_pages.h. Allocates nothing. */
#define _DEFAULT_SOURCE /* getentropy */
#include "requests/schedule_pages.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>

status schedule_pages_open(schedule_pages *self, const request_model *model) {
  uint8_t both[2 * DIGEST_BYTES];
  if (getentropy(&self->key_seed, sizeof self->key_seed) != 0) return FAIL(ERR_IO, "prefix cache: no random numbers: %s", strerror(errno));
  memcpy(both, model->plan->header->numerics_id, DIGEST_BYTES);
  memcpy(both + DIGEST_BYTES, model->weights_digest, DIGEST_BYTES);
  self->is_fast = model->plan->header->limits.parity == PARITY_FAST_PREFILL;
  self->root = digest_of_seeded(both, sizeof both, self->key_seed);
  return OK;
}

/* The key of the page after those of key `before`, from its 64 token ids; under fast-prefill also from how many of these are of the prompt,
 * since a generated token has other KV rows there than the same token of a prompt. */
static digest next_key(const schedule_pages *self, const digest *before, const verbatim_request *request, uint32_t page_index) {
  struct { digest before; int32_t ids[PAGE_TOKENS]; uint32_t prompt_tokens; } content = {.before = *before};
  for (uint32_t i = 0; i < PAGE_TOKENS; i++) content.ids[i] = request_token(request, page_index * PAGE_TOKENS + i);
  if (self->is_fast) {
    uint32_t before_page = min_u32(request->prompt_count, page_index * PAGE_TOKENS);
    content.prompt_tokens = min_u32(request->prompt_count - before_page, PAGE_TOKENS);
  }
  return digest_of_seeded(&content, sizeof content, self->key_seed);
}

static void append(schedule_pages *self, sequence *s, uint32_t number) {
  block_table_row(self->table, s->slot)[s->page_count++] = number;
  block_table_change(self->table, s->slot, 0);
}

/* Only where a page ends and the sequence has no page after it yet. */
void schedule_pages_adopt(schedule_pages *self, sequence *s) {
  if (self->no_prefix_cache) return;
  while (s->computed == s->page_count * PAGE_TOKENS && s->named == s->page_count &&
         s->computed + PAGE_TOKENS <= request_state_of(s->request)->row_next) {
    digest key = next_key(self, &s->key, s->request, s->page_count);
    uint32_t number = pages_find(self->pool, &key);
    if (number == PAGES_NONE) return;
    append(self, s, number);
    s->key = key;
    s->named++;
    s->computed += PAGE_TOKENS;
    self->counters->reused_tokens += PAGE_TOKENS;
  }
}

uint32_t schedule_pages_grow(schedule_pages *self, sequence *s, uint32_t rows) {
  while (s->page_count * PAGE_TOKENS < s->computed + rows && pages_available(self->pool) > 0) {
    bool evicted;
    uint32_t number = pages_take(self->pool, &evicted);
    self->counters->evicted_pages += evicted;
    if (evicted) exec_drop_pages(self->machine, &number, 1);
    append(self, s, number);
  }
  return min_u32(rows, s->page_count * PAGE_TOKENS - s->computed);
}

void schedule_pages_name(schedule_pages *self, sequence *s) {
  if (self->no_prefix_cache) return;
  uint32_t full = min_u32(s->computed, s->request->prompt_count + s->request->token_count) / PAGE_TOKENS;
  for (; s->named < full; s->named++) {
    s->key = next_key(self, &s->key, s->request, s->named);
    pages_name(self->pool, block_table_row(self->table, s->slot)[s->named], &s->key);
  }
}

/* The last one first: a page is of use only while those before it are kept, so it is to be evicted before them. */
void schedule_pages_release(schedule_pages *self, sequence *s) {
  const uint32_t *row = block_table_row(self->table, s->slot);
  for (; s->page_count > 0; s->page_count--)
    if (pages_give(self->pool, row[s->page_count - 1])) exec_drop_pages(self->machine, &row[s->page_count - 1], 1);
}

void schedule_pages_forget(schedule_pages *self) {
  uint32_t count = pages_forget(self->pool);
  exec_drop_pages(self->machine, &self->pool->free[self->pool->free_count - count], count);
}

uint32_t schedule_pages_shared(const schedule_pages *self, const verbatim_request *request) {
  uint32_t shared = 0, full = self->no_prefix_cache ? 0 : request_state_of(request)->row_next / PAGE_TOKENS;
  digest key = self->root;
  for (uint32_t i = 0; i < full; i++) {
    key = next_key(self, &key, request, i);
    uint32_t number = pages_peek(self->pool, &key);
    if (number == PAGES_NONE) break;
    shared += self->pool->list[number].users > 0;
  }
  return shared;
}

uint32_t schedule_pages_wanted(const verbatim_request *request, uint32_t known) {
  return min_u32((uint32_t)div_up(known + 1u, PAGE_TOKENS), request_pages(request));
}
