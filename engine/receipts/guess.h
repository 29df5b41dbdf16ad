/* receipts/guess.h - the tokens of a recorded request as drafts for the same request: what was recorded is checked many tokens at a time.
 *
 * Read next: verbatim.h, on_draft; receipts/read.h. */
#ifndef VERBATIM_RECEIPT_GUESS_H
#define VERBATIM_RECEIPT_GUESS_H
#include "base/base.h"
#include "verbatim.h"

/* Guesses what follows the tokens of `now`: those of the record, as long as the newest token is the recorded one. ids: [most]. Returns how
 * many. */
static inline uint32_t receipt_guess(const verbatim_request *recorded, const verbatim_request *now, int32_t *ids, uint32_t most) {
  const uint32_t made = now->token_count;
  if (made >= recorded->token_count || (made && now->tokens[made - 1].id != recorded->tokens[made - 1].id)) return 0;
  const uint32_t count = min_u32(most, recorded->token_count - made);
  for (uint32_t i = 0; i < count; i++) ids[i] = recorded->tokens[made + i].id;
  return count;
}

#endif
