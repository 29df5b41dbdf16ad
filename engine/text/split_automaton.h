/* split_automaton.h - finds the matches of a split program with one table step per code point.
 *
 * A state is the list of alternatives still open, in order of priority. The table is filled when a text first needs an entry, so opening
 * costs nothing and every later code point one look-up. Matches do not depend on what the table holds.
 * Written by hand because PCRE2 cannot give the same: pcre2_match backtracks, and pcre2_dfa_match returns the longest match where
 * these patterns mean the first alternative. Here the time is linear on hostile text, and several times shorter.
 *   time      linear: a budget stops a pattern that looks at the same code points again and again
 *   memory    all at split_automaton_open, about 1.2 MB, most of it untouched; a full table is emptied
 *   threads   one split_automaton_find at a time per automaton
 * Knows neither PCRE2 nor Unicode: its owner tells which sets contain a code point. Read next: pretokenize.h. */
#ifndef VERBATIM_SPLIT_AUTOMATON_H
#define VERBATIM_SPLIT_AUTOMATON_H
#include "text/split_program.h"

typedef struct split_automaton split_automaton;

/* Bit i: set i of the program contains the code point at `point`, `bytes` of UTF-8. Must always return the same for a code point. */
typedef uint32_t split_automaton_sets(void *context, const char *point, size_t bytes);

/* Precondition: program->is_whole, and no match of it is empty. The program is copied. ERR_LIMIT: out of memory. */
status split_automaton_open(split_automaton **out, const split_program *program, split_automaton_sets *sets, void *context);
void split_automaton_close(split_automaton *a); /* NULL is allowed */

typedef struct split_search {
  const char *at;      /* where the search starts; then the end of the match, or end if there is none */
  const char *end;     /* of the text, which is valid UTF-8 */
  const char *match;   /* start of the match, or end */
  size_t budget;       /* bytes that may be looked at; the search subtracts what it used */
} split_search;

/* The leftmost match at or after s->at. ERR_LIMIT if the budget is used up. */
status split_automaton_find(split_automaton *a, split_search *s);

#endif
