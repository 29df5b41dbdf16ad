/* alternatives.h - whether two schemas exclude each other, and what a $ref names: oneOf is offered where no value fits two of its schemas.
 *
 * The test is one that a reader of a schema can make: no type in common, no value of const or enum in common, or objects that differ in a
 * required property. What it does not see counts as common. Knows no program. Read next: schema.h. */
#ifndef VERBATIM_CONSTRAIN_ALTERNATIVES_H
#define VERBATIM_CONSTRAIN_ALTERNATIVES_H
#include <jansson.h>
#include "base/base.h"

/* What "#", "#/$defs/NAME" or "#/definitions/NAME" names in the schema; NULL: nothing. */
const json_t *alternatives_resolve(const json_t *root, const char *text);

bool alternatives_are_apart(const json_t *root, const json_t *a, const json_t *b);

#endif
