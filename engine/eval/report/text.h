/* eval/report/text.h - makes foreign text safe for a page: escaped, shortened, with invisible characters made visible.
 *
 * A text from a model or a task file may contain markup, control characters, NUL, or marks that change the direction of nearby text. On the
 * page all of it is plain characters. The output is well-formed XML. Knows nothing of the page. Read next: eval/report/report.h. */
#ifndef VERBATIM_EVAL_REPORT_TEXT_H
#define VERBATIM_EVAL_REPORT_TEXT_H
#include <jansson.h>
#include <stdio.h>
#include "base/base.h"

/* Writes at most `most` code points of UTF-8, then the number of bytes left out. A character that is invisible or reorders letters becomes
 * its name, as <U+202E>; bytes that are not UTF-8 become U+FFFD. lines: keeps line feeds and tabs. */
void eval_report_text_put(FILE *to, const char *text, size_t bytes, size_t most, bool lines);

/* A JSON value: a string's text, a number or boolean as JSON writes it, anything else as compact JSON. Null or missing: a dash. */
void eval_report_text_value(FILE *to, const json_t *value, size_t most);

/* Writes a text as one word of a POSIX shell. False: nothing was written, because it is not a string or contains characters that a page
 * would not preserve. */
bool eval_report_text_word(FILE *to, const json_t *text);

/* Writes 98.6 % or 100 %; a number with as many digits as a reader needs. Not finite: a dash. */
void eval_report_text_share(FILE *to, double share);
void eval_report_text_number(FILE *to, double value);

#endif
