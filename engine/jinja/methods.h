/* jinja/methods.h - methods of Python's texts, lists and dicts.
 *
 * A name that Python has and this program does not is bound all the same, as templates ask whether it is defined; calling it is refused.
 * What changes a list or a dict is refused, as in transformers' sandbox. Read next: eval.h. */
#ifndef VERBATIM_JINJA_METHODS_H
#define VERBATIM_JINJA_METHODS_H
#include "jinja/eval.h"

typedef struct jinja_bound {
  const struct jinja_method *method;
  jinja_value self;
} jinja_bound;

status jinja_methods_bind(jinja_state *state, jinja_value self, jinja_text name, jinja_value *out, bool *is_found);
status jinja_methods_call(jinja_state *state, const jinja_bound *bound, const jinja_arguments *arguments, jinja_value *out);

#endif
