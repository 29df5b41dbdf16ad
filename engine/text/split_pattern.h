/* split_pattern.h - translates a tokenizer's split pattern into an equivalent PCRE2 pattern.
 *
 * A tokenizer.json states its patterns in Oniguruma's dialect with Unicode 16 properties. PCRE2 reads almost the same text with slightly
 * different meanings, so nothing is passed through: the pattern is parsed by a small grammar whose every construct is known to mean the
 * same in both, and written out again in an unambiguous form. Everything outside the grammar is refused by name.
 *   grammar   literals; escapes \r \n \t and of punctuation; \s \S; \p{..} \P{..} of the properties below; classes without
 *             nesting or POSIX names; [..&&[^\p{..}]], the one intersection; (..) (?:..) (?=..) (?!..); (?i:..) around ASCII literals; |;
 *             * + ? {n} {n,} {n,m}, lazy or possessive for the first three; a group may be repeated by ? only, so that no
 *             repeat nests in another; the whole pattern \s+$
 *   \s \S     become the 25 White_Space code points (PCRE2 adds U+180E)
 *   \p{..}    becomes PCRE2's property plus the code points that Unicode 15 to 16 added to it
 *   \p{Han}   becomes the code points of script Han (PCRE2 means script extensions)
 *   &&        becomes (?:[..](?<![..])), which may be repeated
 * Read next: split_program.h, pretokenize.h. */
#ifndef VERBATIM_SPLIT_PATTERN_H
#define VERBATIM_SPLIT_PATTERN_H
#include "text/split_program.h"

#define SPLIT_PATTERN_BYTES_MAX 4096u              /* of a pattern in tokenizer.json; the longest known has 400 */
#define SPLIT_PATTERN_OUTPUT_BYTES_MAX (256u << 10)

/* Translates source (size bytes of valid UTF-8) into output, a NUL-terminated string of at most output_max bytes including the NUL, and
 * into program. ERR_UNSUPPORTED names the construct and its byte offset; ERR_LIMIT if a size is too large. */
status split_pattern_translate(const char *source, size_t size, char *output, size_t output_max, split_program *program);

/* The pattern of the "Digits" pre-tokenizer: one code point of category N (individual), or a run of them. This pre-tokenizer follows
 * Unicode 17; the patterns follow 16. */
status split_pattern_digits(bool individual, char *output, size_t output_max, split_program *program);

/* The pattern that matches before every code point and captures it once for each set of program that contains it: set i in group i + 1.
 * written: the output that came with program. */
status split_pattern_members(const char *written, const split_program *program, char *output, size_t output_max);

#endif
