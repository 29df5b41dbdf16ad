/* schema.h - a JSON schema as blocks of a program: the texts of JSON values that the schema accepts, in one form. SERVING.md lists the
 * keywords.
 *
 * The form: members in the order of `properties`, no blank but one that may follow a comma or a colon. What is offered is exact: every text
 * of the program is valid under the schema. Any other keyword is refused, with the JSON pointer to it. Allocates in the program
 * only. Read next: value.h. */
#ifndef VERBATIM_CONSTRAIN_SCHEMA_H
#define VERBATIM_CONSTRAIN_SCHEMA_H
#include <jansson.h>
#include "constrain/program.h"

#define SCHEMA_DEPTH_MAX 72u /* schemas within schemas */

/* ERR_USAGE: no such schema; ERR_UNSUPPORTED: a keyword or a value of one that is not offered; ERR_LIMIT: too deep. */
status schema_add(program *p, const json_t *schema);

/* Any JSON object. */
void schema_add_object(program *p);

#endif
