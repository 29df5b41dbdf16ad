/* schedule_pages.h - the KV pages of a sequence: taken as it grows, found in the prefix cache, named when they are full, given back.
 *
 * The device runs steps in the order of submission, so a page may change hands as soon as the step that last uses it is submitted. */
#ifndef VERBATIM_SCHEDULE_PAGES_H
#define VERBATIM_SCHEDULE_PAGES_H
#include "requests/schedule.h"

/* Makes the seed of all keys, and the key of no tokens, by which pages of other numerics and weights have other keys. The seed is drawn at
 * every start and is told to nobody: two prompts whose keys are equal cannot be made on purpose. ERR_IO: the system has no random numbers.
 * [start-up] */
status schedule_pages_open(schedule *self);

/* Takes the pages that hold the rows of its next tokens from others with the same tokens, as far as there are any, and moves `fed` behind
 * them. Rows that give awaited logits stay to be fed. */
void schedule_pages_adopt(schedule *self, uint32_t slot);

/* Pages for its next `rows` rows; returns for how many there are some now. */
uint32_t schedule_pages_grow(schedule *self, uint32_t slot, uint32_t rows);

/* Gives the pages that are full, and whose tokens are known, their keys. */
void schedule_pages_name(schedule *self, uint32_t slot);

/* Gives all its pages back. */
void schedule_pages_release(schedule *self, uint32_t slot);

/* Pages for the tokens known of a request, and for the next one if there can be one. */
uint32_t schedule_pages_wanted(const verbatim_request *request, uint32_t known);

/* Of the pages before the first awaited logits row, how many are there and in use: more users of them cost nothing. */
uint32_t schedule_pages_shared(const schedule *self, const verbatim_request *request);

/* What admitted sequences want and do not have yet. */
uint64_t schedule_pages_promised(const schedule *self);

#endif
