/* spelling.c - see spelling.h. One row of the table of distances, updated for each letter of the word.
 *
 * Read next: planner/deploy_config.c. */
#include "base/spelling.h"
#include <string.h>

#define PREFIX_LETTERS_MIN 3u

/* The letter in lower case, or 0: it does not count. */
static char letter_of(char c) {
  if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : 0;
}

static uint32_t take_letters(const char *known, char letters[SPELLING_BYTES_MAX]) {
  uint32_t length = 0;
  ASSERT(strlen(known) <= SPELLING_BYTES_MAX);
  for (; *known; known++)
    if (letter_of(*known)) letters[length++] = letter_of(*known);
  return length;
}

uint32_t spelling_distance(const char *word, const char *known) {
  char letters[SPELLING_BYTES_MAX];
  uint32_t row[SPELLING_BYTES_MAX + 1], length = take_letters(known, letters), count = 0;
  for (uint32_t j = 0; j <= length; j++) row[j] = j;
  for (; *word && count <= 2 * SPELLING_BYTES_MAX; word++) {
    const char letter = letter_of(*word);
    if (!letter) continue;
    uint32_t diagonal = row[0];
    row[0] = ++count;
    for (uint32_t j = 0; j < length; j++) {
      uint32_t replaced = diagonal + (letter != letters[j]);
      diagonal = row[j + 1];
      row[j + 1] = min_u32(replaced, min_u32(row[j], row[j + 1]) + 1);
    }
  }
  return row[length];
}

static bool begins_with(const char *known, const char *word) {
  char letters[SPELLING_BYTES_MAX];
  uint32_t length = take_letters(known, letters), count = 0;
  for (; *word; word++) {
    const char letter = letter_of(*word);
    if (letter && (count == length || letters[count++] != letter)) return false;
  }
  return count >= PREFIX_LETTERS_MIN;
}

spelling_search spelling_begin(const char *word, uint32_t most) {
  return (spelling_search){.word = word, .distance = most == UINT32_MAX ? most : most + 1};
}

void spelling_try(spelling_search *self, const char *known) {
  uint32_t distance = spelling_distance(self->word, known);
  if (distance > 1 && begins_with(known, self->word)) distance = 1;
  if (distance >= self->distance) return;
  self->nearest = known;
  self->distance = distance;
}
