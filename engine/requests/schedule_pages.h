/* schedule_pages.h - the KV pages of a sequence: taken as it grows, found in the prefix cache, named when they are full, given back.
 *
 * The device runs steps in the order of submission, so a page may change hands as soon as the step that last uses it is submitted.
 * Must not know other sequences or steps. Read next: pages.h, exec/block_table.h. */
#ifndef VERBATIM_SCHEDULE_PAGES_H
#define VERBATIM_SCHEDULE_PAGES_H
#include "exec/exec.h"
#include "requests/pages.h"
#include "requests/request.h"
#include "requests/sequence.h"

typedef struct schedule_pages {
  pages *pool;
  exec *machine;         /* is told which pages hold nothing any more */
  block_table *table;    /* exec's                                    */
  bool no_prefix_cache;
  bool is_fast;          /* parity fast-prefill                       */
  uint64_t key_seed;     /* of the pages' keys                        */
  digest root;           /* the key of no tokens                      */
  verbatim_counters *counters; /* of which these are counted here: reused_tokens, evicted_pages */
} schedule_pages;

/* The members but for the last three say what it works on; they stay. Draws the seed of all keys, and makes the key of no tokens, by which
 * pages of other numerics and weights have other keys. The seed is new at every start and is told to nobody: two prompts whose keys are
 * equal cannot be made on purpose. ERR_IO: the system has no random numbers. [start-up] */
status schedule_pages_open(schedule_pages *self, const request_model *model);

/* Takes from the prefix cache the pages that hold the rows of its next tokens, as far as there are any, and moves `computed` after them.
 * Rows whose logits are awaited are not taken. */
void schedule_pages_adopt(schedule_pages *self, sequence *s);

/* Pages for its next `rows` rows; returns how many of these have one now. */
uint32_t schedule_pages_grow(schedule_pages *self, sequence *s, uint32_t rows);

/* Gives the pages that are full, and whose tokens are known, their keys. */
void schedule_pages_name(schedule_pages *self, sequence *s);

/* Gives all its pages back. */
void schedule_pages_release(schedule_pages *self, sequence *s);

/* Empties the prefix cache. Sequences keep their pages, which nobody else finds. */
void schedule_pages_forget(schedule_pages *self);

/* Pages for the tokens known of a request, and for the next one if there can be one. */
uint32_t schedule_pages_wanted(const verbatim_request *request, uint32_t known);

/* How many of the pages before the first awaited logits row are in the cache and in use: another user of them costs nothing. */
uint32_t schedule_pages_shared(const schedule_pages *self, const verbatim_request *request);

#endif
