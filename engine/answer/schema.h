/* answer/schema.h - the part of JSON Schema that the arguments of calls are checked by.
 *
 * Checked: type, enum, const, properties, required, additionalProperties, items, minItems, maxItems, minLength, maxLength, minimum,
 * maximum, exclusiveMinimum, exclusiveMaximum, anyOf, oneOf, allOf, and $ref to a place in the same schema ("#/$defs/NAME"). What else a
 * schema says is not checked. A schema is hostile: depth and work are bounded, and beyond the bounds a value is not allowed. Read next:
 * answer/judge.c. */
#ifndef VERBATIM_ANSWER_SCHEMA_H
#define VERBATIM_ANSWER_SCHEMA_H
#include <jansson.h>
#include "base/base.h"

/* schema: NULL allows everything. False: `why` says where and what; path names the value. */
bool answer_schema_check(const json_t *schema, const json_t *value, const char *path, char *why, size_t why_bytes);

/* Whether the schema of an object allows this value for a property, by the property's own schema; without one everything is allowed. */
bool answer_schema_allows(const json_t *schema, const char *key, size_t key_bytes, const json_t *value);

#endif
