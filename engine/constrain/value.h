/* value.h - JSON values as blocks of a program: any value of a kind, numbers within bounds, and one given value.
 *
 * Digits, exponents and nesting are bounded, so that an answer ends. Knows no schema. Read next: string_points.h. */
#ifndef VERBATIM_CONSTRAIN_VALUE_H
#define VERBATIM_CONSTRAIN_VALUE_H
#include <jansson.h>
#include "constrain/program.h"

#define VALUE_NESTING_MAX 6u  /* objects and lists within each other, of any value */
#define VALUE_DIGITS_MAX 18u  /* of an integer, and before and after a decimal point  */
#define VALUE_INTEGER_MAX INT64_C(999999999999999999)
#define VALUE_DECIMALS_MAX 6u                      /* of a number within bounds: 15 digits in all, which a double keeps apart */
#define VALUE_DECIMAL_UNITS 1e6                    /* 10^VALUE_DECIMALS_MAX */
#define VALUE_DECIMAL_MAX INT64_C(999999999999999) /* in these units */

void value_add_string(program *p, uint32_t length_min, uint32_t length_max); /* in code points; length_max PROGRAM_ENDLESS: any */
void value_add_number(program *p);
void value_add_integer(program *p, int64_t least, int64_t most); /* within -VALUE_INTEGER_MAX .. VALUE_INTEGER_MAX; least <= most */

/* A number without exponent, of at most `decimals` digits after the point, within bounds in units of 10^-VALUE_DECIMALS_MAX, which are at
 * most VALUE_DECIMAL_MAX from 0; and whether there is any. */
void value_add_decimal(program *p, int64_t least, int64_t most, uint32_t decimals);
bool value_has_decimal(int64_t least, int64_t most, uint32_t decimals);

void value_add_any(program *p, uint32_t nesting);      /* with at most so many objects and lists within each other */
void value_add_object(program *p, uint32_t nesting);   /* any, itself counted: 1 or more */
void value_add_list(program *p, uint32_t nesting);
void value_add_comma(program *p);                      /* and a blank, or not */
void value_add_colon(program *p);

void value_add_text(program *p, const char *text, size_t bytes); /* a string: the text, UTF-8, in quotes */

/* This value, without blanks but where value_add_comma has them. */
void value_add_this(program *p, const json_t *value);

#endif
