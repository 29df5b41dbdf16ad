/* regex.h - a regular expression as blocks of a program. SERVING.md lists the syntax.
 *
 * The expression is the whole string: ^ at its start and $ at its end may stand there and mean nothing. Of what Perl's syntax has beyond
 * regular languages, and of what depends on Unicode's tables, nothing is offered; it is refused by name. Allocates in the program
 * only. Knows no tokens. Read next: program.h. */
#ifndef VERBATIM_CONSTRAIN_REGEX_H
#define VERBATIM_CONSTRAIN_REGEX_H
#include "constrain/program.h"

#define REGEX_REPEAT_MAX 10000u
#define REGEX_DEPTH_MAX 64u /* groups within groups */

typedef struct regex_source {
  const char *text; /* [bytes] UTF-8 */
  size_t bytes;
  bool in_json;     /* what is written is the inside of a JSON string that stands for the text: see json_text.h */
  bool is_found;    /* it may be found anywhere in the text, unless ^ or $ bind it to an end */
} regex_source;

/* Appends it. ERR_USAGE: no such expression; ERR_UNSUPPORTED: not offered; ERR_LIMIT: too deep. The text names the place in bytes. */
status regex_add(program *p, const regex_source *source);

#endif
