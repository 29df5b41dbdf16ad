/* spelling.h - edit distance, to name the known key nearest to an unknown one.
 *
 * Works on bytes; knows no keys and no files. Read next: planner/flat_yaml.h, eval/task.h. */
#ifndef VERBATIM_SPELLING_H
#define VERBATIM_SPELLING_H
#include "base/base.h"

#define SPELLING_BYTES_MAX 64u

/* Edit distance: insertions, deletions, replacements. known: at most SPELLING_BYTES_MAX bytes; word may be any text. */
uint32_t spelling_distance(const char *word, const char *known);

#endif
