/* pretokenize.h - cuts text into the pieces that byte-pair merging may not cross.
 *
 * A pre-tokenizer is a sequence of splits. Each cuts every piece of the one before at its matches: a match is a piece, the
 * text between two matches is a piece, nothing is dropped ("Isolated"). PCRE2 finds the matches, compiled to machine
 * code where it can; patterns come from split_pattern.c, so that PCRE2's reading of them equals the tokenizers library's.
 *   time      every match is bounded by PRETOKENIZE_MATCH_LIMIT; the known patterns (DeepSeek, GPT-2, Llama 3, GPT-4o) take
 *             time linear in the text, whatever the text
 *   memory    all at pretokenize_open. (PCRE2's interpreter, used only where it has no machine code, may grow its own.)
 *   threads   one pretokenize_run at a time for a pretokenizer
 * Knows neither vocabulary nor JSON. Read next: bpe.h. */
#ifndef VERBATIM_PRETOKENIZE_H
#define VERBATIM_PRETOKENIZE_H
#include "base.h"

#define PRETOKENIZE_SPLITS_MAX 8u
/* A greedy class may be given back one code point at a time, once per alternative: more than the longest text has bytes. */
#define PRETOKENIZE_MATCH_LIMIT (16u << 20)

typedef enum pretokenize_kind {
  PRETOKENIZE_PATTERN,   /* "Split" by a regular expression, behavior "Isolated" */
  PRETOKENIZE_DIGITS,    /* "Digits", individual_digits false: runs of digits */
  PRETOKENIZE_DIGIT      /* "Digits", individual_digits true: one digit each */
} pretokenize_kind;

typedef struct pretokenize_split {
  pretokenize_kind kind;
  const char *pattern;   /* valid UTF-8 as it stands in tokenizer.json; NULL unless PRETOKENIZE_PATTERN; caller's */
  size_t pattern_bytes;
} pretokenize_split;

typedef struct pretokenizer pretokenizer;

/* Receives the pieces in order; a status other than OK ends the run. bytes > 0. */
typedef status pretokenize_emit(void *context, const char *piece, size_t bytes);

/* The pattern of the "ByteLevel" pre-tokenizer when its use_regex is true. */
extern const char pretokenize_gpt2_pattern[];

/* count <= PRETOKENIZE_SPLITS_MAX. use_jit false keeps PCRE2's interpreter (same pieces, about ten times slower). ERR_UNSUPPORTED for
 * a pattern outside the grammar, one that matches the empty string, or a PCRE2 whose Unicode is not 14 to 16. */
status pretokenize_open(pretokenizer **out, const pretokenize_split *splits, size_t count, bool use_jit);
void pretokenize_close(pretokenizer *p); /* NULL is allowed */

/* text: valid UTF-8. Pieces cover it. ERR_LIMIT when one match would need more than PRETOKENIZE_MATCH_LIMIT. */
status pretokenize_run(const pretokenizer *p, const char *text, size_t bytes, pretokenize_emit *emit, void *context);

#endif
