/* jinja/printable.h - what repr() of a text writes as it is: str.isprintable of one code point.
 *
 * Unicode's categories C (other) and Z (separator) but for the space are written as escapes. The categories are PCRE2's, as everywhere in
 * the program, so a code point that Unicode has assigned since may differ from a newer Python. */
#ifndef VERBATIM_JINJA_PRINTABLE_H
#define VERBATIM_JINJA_PRINTABLE_H
#include "base/base.h"

typedef struct jinja_printable { /* zeroed: not needed yet */
  void *pattern, *match;
} jinja_printable;

status jinja_printable_ask(jinja_printable *self, uint32_t code, bool *out); /* ERR_LIMIT: no memory */
void jinja_printable_close(jinja_printable *self);

#endif
