/* block_table.h - the row of each slot: the KV pages of its sequence and its token list, and which rows the device does not have yet.
 *
 * Rows and lists are host memory. The device has a copy of them for each side of a step, brought up to date with the steps of that side: a
 * row that has changed goes up with the next step of each. Copies are queued, and the device reads host memory later. So pages may be added
 * to a row, and entries to a list, at any time, but what they hold may be changed only when block_table_was_read says so, which it does at
 * the latest when no step is in flight.
 * Must not know pages, requests or backends. Read next: exec.h, requests/schedule_pages.h. */
#ifndef VERBATIM_EXEC_BLOCK_TABLE_H
#define VERBATIM_EXEC_BLOCK_TABLE_H
#include "base/arena.h"
#include "base/base.h"
#include "kernels_src/step.h"

typedef struct block_change { /* a row to send */
  uint32_t slot;
  uint32_t list_count; /* entries of its list to send, 0: none */
} block_change;

typedef struct block_table {
  uint32_t *rows;      /* [slots][row_pages] page numbers                                       */
  token_bias *lists;   /* [slots][TOKEN_LIST_MAX]                                               */
  uint32_t slots, row_pages;
  block_change *changed; /* [slots] since the last step, each slot once                         */
  bool *is_changed;      /* [slots] is there                                                    */
  uint32_t changed_count;
  block_change *unsent[2]; /* [slots] changed before, and not sent yet with a step of that side */
  uint32_t unsent_count[2];
  uint64_t *sent_with; /* [slots] number of the step with which the row last went up, 0: none   */
  uint64_t sent, done; /* steps: block_table_send, block_table_done                             */
} block_table;

/* Bytes of the rows and the lists of so many slots. */
static inline uint64_t block_table_row_bytes(uint32_t slots, uint32_t row_pages) { return sizeof(uint32_t) * (uint64_t)slots * row_pages; }
static inline uint64_t block_table_list_bytes(uint32_t slots) { return sizeof(token_bias) * TOKEN_LIST_MAX * (uint64_t)slots; }

/* Rows and lists are the caller's memory, and stay. [start-up] */
status block_table_open(block_table *self, uint32_t slots, uint32_t row_pages, uint32_t *rows, token_bias *lists, arena *host);

uint32_t *block_table_row(const block_table *self, uint32_t slot);   /* [row_pages]      */
token_bias *block_table_list(const block_table *self, uint32_t slot); /* [TOKEN_LIST_MAX] */

/* The slot's row goes up with the next step of each side, and list_count entries of its list; 0: what was asked of the list before. */
void block_table_change(block_table *self, uint32_t slot, uint32_t list_count);

/* Takes back a change since the last step: the slot is not in use any more. */
void block_table_withdraw(block_table *self, uint32_t slot);

/* The device has read the slot's row and list. */
bool block_table_was_read(const block_table *self, uint32_t slot);

/* Of exec. send: a step of that side is submitted; returns what goes up with it, valid until the next call. done: the oldest step that was
 * not done is. */
const block_change *block_table_send(block_table *self, uint32_t side, uint32_t *count);
void block_table_done(block_table *self);

#endif
