/* jinja/text.h - Python's operations on texts: positions are code points, white space is what str.isspace says.
 *
 * Letters change case in ASCII only: the mapping of other letters differs between versions of Unicode, so texts with them are refused.
 * Read next: text.c. */
#ifndef VERBATIM_JINJA_TEXT_H
#define VERBATIM_JINJA_TEXT_H
#include "jinja/value.h"

/* str.strip(set), lstrip, rstrip: the ends that are not to be kept. set: code points, or NULL for white space. */
jinja_text jinja_text_strip(jinja_text text, const jinja_text *set, bool start, bool end);

size_t jinja_text_length(jinja_text text);                    /* in code points */
size_t jinja_text_offset(jinja_text text, size_t code_point); /* in bytes; text.count past the end */
size_t jinja_text_step(jinja_text text, size_t at);           /* bytes of the code point at this offset */

/* Offset of the first or the last occurrence, at or after `from`; -1: none. An empty piece is found at once. */
ptrdiff_t jinja_text_find(jinja_text text, jinja_text piece, size_t from);
ptrdiff_t jinja_text_find_last(jinja_text text, jinja_text piece);

bool jinja_text_starts(jinja_text text, jinja_text piece);
bool jinja_text_ends(jinja_text text, jinja_text piece);

/* str.split and rsplit: a list. separator: NULL for runs of white space. most: splits at most, or -1. */
status jinja_text_split(jinja_memory *memory, jinja_text text, const jinja_text *separator, int64_t most, bool from_end, jinja_value *out);
status jinja_text_lines(jinja_memory *memory, jinja_text text, bool keeps_ends, jinja_value *out); /* str.splitlines */

/* str.replace. most: -1 for all. */
status jinja_text_replace(jinja_memory *memory, jinja_text text, jinja_text old, jinja_text new, int64_t most, jinja_value *out);

typedef enum jinja_case { JINJA_LOWER, JINJA_UPPER, JINJA_TITLE, JINJA_CAPITAL, JINJA_WORDS } jinja_case; /* WORDS: the filter title */
status jinja_text_change(jinja_memory *memory, jinja_text text, jinja_case to, jinja_value *out); /* ERR_UNSUPPORTED: not ASCII */

#endif
