/* spelling.h - the known word nearest to an unknown one: options, commands, keys and fields.
 *
 *   spelling_search search = spelling_begin(word, UINT32_MAX);
 *   for (each known word) spelling_try(&search, known);
 *   search.nearest is the word to name, or NULL
 *
 * Works on bytes; knows no words and no files. Read next: common/options.c, planner/deploy_config.c. */
#ifndef VERBATIM_SPELLING_H
#define VERBATIM_SPELLING_H
#include "base/base.h"

#define SPELLING_BYTES_MAX 64u

typedef struct spelling_search {
  const char *word, *nearest; /* nearest: of those tried; the first of several; NULL: none is near enough */
  uint32_t distance;          /* of nearest, or one more than what is near enough */
} spelling_search;

/* Edit distance (insertions, deletions, replacements) of letters and digits, whatever their case; other bytes are left out. known: at most
 * SPELLING_BYTES_MAX bytes; word may be any text, of which a long one is only known to be far. */
uint32_t spelling_distance(const char *word, const char *known);

/* most: the distance up to which a word is near enough; UINT32_MAX: any is. */
spelling_search spelling_begin(const char *word, uint32_t most);

/* A word that begins with the one searched for, of at least three letters, is at a distance of 1. */
void spelling_try(spelling_search *self, const char *known);

#endif
