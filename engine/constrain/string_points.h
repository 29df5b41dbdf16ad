/* string_points.h - code points inside a JSON string, as blocks of a program. RFC 8259, section 7.
 *
 * Allocates in the program only. Read next: program.h. */
#ifndef VERBATIM_CONSTRAIN_STRING_POINTS_H
#define VERBATIM_CONSTRAIN_STRING_POINTS_H
#include "constrain/program.h"

/* Appends one code point of these ranges, ascending and apart, as it is written within quotes: itself, or where JSON does not take it the
 * shortest escape. */
void string_points_add(program *p, const program_range *ranges, uint32_t count);

/* Appends any code point, by itself or by any escape. A pair of surrogates is one code point. */
void string_points_add_any(program *p);

/* The text as it is written within quotes, in the one form of string_points_add. */
void string_points_text(program *p, const char *text, size_t bytes);

#endif
