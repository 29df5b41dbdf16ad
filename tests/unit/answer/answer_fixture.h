/* answer_fixture.h - an answer read in pieces, and what came out of it.
 *
 * Each piece is a block of memory of its own, so that the sanitizers notice a read after its end. */
#ifndef VERBATIM_ANSWER_FIXTURE_H
#define VERBATIM_ANSWER_FIXTURE_H
#include "engine/answer/answer.h"

typedef struct answer_read {
  strbuf thought, content, calls; /* calls: a line "id name arguments" for each */
  uint32_t call_count;
  char error[ANSWER_ERROR_BYTES];
  bool is_inside, failed;
} answer_read;

/* Reads text[0..bytes) in pieces of 1 to most bytes, as random numbers say; most 0: whole. */
answer_read answer_fixture_read(const answer_form *form, const char *text, size_t bytes, size_t most, uint64_t random);
void answer_fixture_close(answer_read *self);

bool answer_fixture_is(const strbuf *found, const char *expected);
bool answer_fixture_is_same(const answer_read *a, const answer_read *b);

#endif
