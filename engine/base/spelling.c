/* spelling.c - see spelling.h. One row of the table of distances, updated for each letter of the word.
 *
 * Read next: planner/deploy_config.c. */
#include "base/spelling.h"
#include <string.h>

uint32_t spelling_distance(const char *word, const char *known) {
  uint32_t row[SPELLING_BYTES_MAX + 1], length = (uint32_t)strlen(known);
  ASSERT(length <= SPELLING_BYTES_MAX);
  for (uint32_t j = 0; j <= length; j++) row[j] = j;
  for (uint32_t i = 0; word[i]; i++) {
    uint32_t diagonal = row[0];
    row[0] = i + 1;
    for (uint32_t j = 0; j < length; j++) {
      uint32_t replaced = diagonal + (word[i] != known[j]);
      diagonal = row[j + 1];
      row[j + 1] = min_u32(replaced, min_u32(row[j], row[j + 1]) + 1);
    }
  }
  return row[length];
}
