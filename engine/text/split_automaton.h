/* split_automaton.h - finds the matches of a split program, one step of a table for each code point.
 *
 * The states are the ways that are still open, in the order in which they count; the table is filled where a text first needs it,
 * so that opening costs nothing and every later code point one look-up. What a match is does not depend on what the table holds.
 *   time      linear: a budget stops a pattern that looks at the same code points again and again
 *   memory    all at split_automaton_open, about 1.2 MB, most of it untouched; a full table is emptied
 *   threads   one split_automaton_find at a time for an automaton
 * Knows neither PCRE2 nor Unicode: its owner says which sets a code point is in. Read next: pretokenize.h. */
#ifndef VERBATIM_SPLIT_AUTOMATON_H
#define VERBATIM_SPLIT_AUTOMATON_H
#include "text/split_program.h"

typedef struct split_automaton split_automaton;

/* Bit i: the code point at point, bytes of UTF-8, is in set i of the program. Always the same for the same code point. */
typedef uint32_t split_automaton_sets(void *context, const char *point, size_t bytes);

/* Precondition: program->is_whole, and no match of it is empty. The program is copied. ERR_LIMIT: out of memory. */
status split_automaton_open(split_automaton **out, const split_program *program, split_automaton_sets *sets, void *context);
void split_automaton_close(split_automaton *a); /* NULL is allowed */

typedef struct split_search {
  const char *at;      /* where to search from; then the end of the match, or end when there is none */
  const char *end;     /* of the text, which is valid UTF-8 */
  const char *match;   /* start of the match, or end */
  size_t budget;       /* bytes that may be looked at; what was used is taken off */
} split_search;

/* The leftmost match at or behind s->at. ERR_LIMIT when the budget does not reach. */
status split_automaton_find(split_automaton *a, split_search *s);

#endif
