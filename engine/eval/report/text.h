/* eval/report/text.h - what was not written here, made safe for a page: escaped, shortened, with the invisible made visible.
 *
 * A text from a model or a task file may hold markup, control characters, NUL, or marks that turn the order of what stands around it.
 * Nothing of it reaches the page as anything but letters. What comes out is well-formed XML. Knows nothing of the page. Read next:
 * eval/report/report.h. */
#ifndef VERBATIM_EVAL_REPORT_TEXT_H
#define VERBATIM_EVAL_REPORT_TEXT_H
#include <jansson.h>
#include <stdio.h>
#include "base/base.h"

/* At most `most` code points of UTF-8, then how many bytes more there are. What cannot be seen, or turns the order of letters, becomes
 * its name, as <U+202E>; what is no UTF-8 becomes U+FFFD. lines: ends of lines and tabs are kept. */
void eval_report_text_put(FILE *to, const char *text, size_t bytes, size_t most, bool lines);

/* Of a JSON value: a string's text, a number or a truth as JSON writes it, anything else as compact JSON. Null or absent: a dash. */
void eval_report_text_value(FILE *to, const json_t *value, size_t most);

/* A text as one word of a POSIX shell. false, and nothing is written: it holds what would not survive a page, or is no string. */
bool eval_report_text_word(FILE *to, const json_t *text);

/* 98.6 %, 100 %; and a number with as many digits as a reader wants. Not finite: a dash. */
void eval_report_text_share(FILE *to, double share);
void eval_report_text_number(FILE *to, double value);

#endif
