/* block_table.c - see block_table.h. A clock of steps says what the device has read: a row that went up with step n has been read when n
 * steps are done.
 *
 * Allocates at open only. Lists of slots are short: of the sequences that got a page since the last step. */
#include "exec/block_table.h"

status block_table_open(block_table *self, uint32_t slots, uint32_t row_pages, uint32_t *rows, token_bias *lists, arena *host) {
  void *changed, *is_changed, *unsent[2], *sent_with;
  TRY(arena_take(host, sizeof(block_change) * slots, &changed));
  TRY(arena_take(host, sizeof(bool) * slots, &is_changed));
  for (int i = 0; i < 2; i++) TRY(arena_take(host, sizeof(block_change) * slots, &unsent[i]));
  TRY(arena_take(host, sizeof(uint64_t) * slots, &sent_with));
  *self = (block_table){.rows = rows, .lists = lists, .slots = slots, .row_pages = row_pages, .changed = changed,
                        .is_changed = is_changed, .unsent = {unsent[0], unsent[1]}, .sent_with = sent_with};
  return OK;
}

uint32_t *block_table_row(const block_table *self, uint32_t slot) {
  ASSERT(slot < self->slots);
  return self->rows + (uint64_t)slot * self->row_pages;
}

token_bias *block_table_list(const block_table *self, uint32_t slot) {
  ASSERT(slot < self->slots);
  return self->lists + (uint64_t)slot * TOKEN_LIST_MAX;
}

/* Adds the slot to a list of them, or finds it there. */
static void add(block_change *list, uint32_t *count, block_change change) {
  uint32_t at = 0;
  while (at < *count && list[at].slot != change.slot) at++;
  if (at == *count) list[(*count)++] = change;
  else list[at].list_count = max_u32(list[at].list_count, change.list_count);
}

void block_table_change(block_table *self, uint32_t slot, uint32_t list_count) {
  ASSERT(slot < self->slots && list_count <= TOKEN_LIST_MAX);
  if (self->is_changed[slot] && list_count == 0) return;
  self->is_changed[slot] = true;
  add(self->changed, &self->changed_count, (block_change){.slot = slot, .list_count = list_count});
}

void block_table_withdraw(block_table *self, uint32_t slot) {
  uint32_t at = 0;
  ASSERT(slot < self->slots);
  if (!self->is_changed[slot]) return;
  while (self->changed[at].slot != slot) at++;
  self->changed[at] = self->changed[--self->changed_count];
  self->is_changed[slot] = false;
}

bool block_table_was_read(const block_table *self, uint32_t slot) {
  ASSERT(slot < self->slots);
  return self->sent_with[slot] <= self->done;
}

const block_change *block_table_send(block_table *self, uint32_t side, uint32_t *count) {
  block_change *unsent = self->unsent[side];
  ASSERT(side < 2);
  for (uint32_t i = 0; i < self->changed_count; i++) {
    for (uint32_t other = 0; other < 2; other++) add(self->unsent[other], &self->unsent_count[other], self->changed[i]);
    self->is_changed[self->changed[i].slot] = false;
  }
  self->changed_count = 0;
  self->sent++;
  *count = self->unsent_count[side];
  for (uint32_t i = 0; i < *count; i++) self->sent_with[unsent[i].slot] = self->sent;
  self->unsent_count[side] = 0;
  return unsent;
}

void block_table_done(block_table *self) {
  ASSERT(self->done < self->sent);
  self->done++;
}
