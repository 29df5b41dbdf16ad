/* json_form.h - the forms in which users ask for a constraint in JSON: OpenAI's response_format, and vLLM's structured_outputs with the
 * guided_choice, guided_regex and guided_json that came before it.
 *
 * Compiles what it reads, on the reader's thread. Read next: constraint.h. */
#ifndef VERBATIM_CONSTRAIN_JSON_FORM_H
#define VERBATIM_CONSTRAIN_JSON_FORM_H
#include <jansson.h>
#include "constrain/constraint.h"

/* One of these names. */
bool json_form_has(const char *name);

/* Reads the value of such a name. *out: NULL where no constraint is asked for; else the caller closes it. Errors begin with the name; their
 * kinds are those of verbatim_constraint_open. */
status json_form_read(const char *name, const json_t *value, verbatim_constraint **out);

#endif
