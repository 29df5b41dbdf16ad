/* pretokenize.h - splits text into the pieces that byte-pair merging may not cross.
 *
 * A pre-tokenizer is a sequence of splits. Each splits every piece of the previous one at its matches: a match is a piece, the text
 * between two matches is a piece, nothing is dropped ("Isolated"). PCRE2 defines what a pattern matches; patterns come from
 * split_pattern.c, so that PCRE2 reads them as the tokenizers library does. Where a pattern allows it (all known ones but \s+$ do), PCRE2
 * only tells which code points are in its sets, and split_automaton.c finds the matches, several times as fast.
 *   time      linear in the text with an automaton, else every match is bounded by PRETOKENIZE_MATCH_LIMIT
 *   memory    all at pretokenize_open. (PCRE2's interpreter, used only without machine code, may grow its own.)
 *   threads   one pretokenize_run at a time per pretokenizer
 * Knows neither vocabulary nor JSON. Read next: bpe.h. */
#ifndef VERBATIM_PRETOKENIZE_H
#define VERBATIM_PRETOKENIZE_H
#include "base/base.h"

#define PRETOKENIZE_SPLITS_MAX 8u
/* A greedy class may backtrack one code point at a time, once per alternative: more than the longest text has bytes. */
#define PRETOKENIZE_MATCH_LIMIT (16u << 20)
/* How many times an automaton may look at a text; known patterns need up to three. */
#define PRETOKENIZE_LOOKS_MAX 32u

typedef enum pretokenize_kind {
  PRETOKENIZE_PATTERN,   /* "Split" by a regular expression, behavior "Isolated" */
  PRETOKENIZE_DIGITS,    /* "Digits", individual_digits false: runs of digits */
  PRETOKENIZE_DIGIT      /* "Digits", individual_digits true: one digit each */
} pretokenize_kind;

typedef struct pretokenize_split {
  pretokenize_kind kind;
  const char *pattern;   /* valid UTF-8 as in tokenizer.json; NULL unless PRETOKENIZE_PATTERN; owned by the caller */
  size_t pattern_bytes;
} pretokenize_split;

typedef enum pretokenize_matcher {
  PRETOKENIZE_AUTOMATON,   /* where the pattern allows it, else PCRE2 */
  PRETOKENIZE_PCRE2,       /* compiled to machine code where possible; same pieces, about eight times slower */
  PRETOKENIZE_INTERPRETER  /* PCRE2 without machine code; same pieces, about eighty times slower */
} pretokenize_matcher;

typedef struct pretokenizer pretokenizer;

/* Receives the pieces in order; a status other than OK ends the run. bytes > 0. */
typedef status pretokenize_emit(void *context, const char *piece, size_t bytes);

/* The pattern of the "ByteLevel" pre-tokenizer when its use_regex is true. */
extern const char pretokenize_gpt2_pattern[];

/* count <= PRETOKENIZE_SPLITS_MAX. ERR_UNSUPPORTED for a pattern outside the grammar, one that matches the empty string, or a PCRE2 whose
 * Unicode is not 14 to 16. */
status pretokenize_open(pretokenizer **out, const pretokenize_split *splits, size_t count, pretokenize_matcher matcher);
void pretokenize_close(pretokenizer *p); /* NULL is allowed */

/* text: valid UTF-8. The pieces cover it. ERR_LIMIT if PRETOKENIZE_MATCH_LIMIT or PRETOKENIZE_LOOKS_MAX is exceeded. */
status pretokenize_run(const pretokenizer *p, const char *text, size_t bytes, pretokenize_emit *emit, void *context);

#endif
