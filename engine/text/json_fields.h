/* text/json_fields.h - the fields of an object in a tokenizer's files, read with error messages that name them.
 *
 * where: what the object is called in messages. Read next: tokenizer_json.c. */
#ifndef VERBATIM_JSON_FIELDS_H
#define VERBATIM_JSON_FIELDS_H
#include <jansson.h>
#include "base/base.h"

status json_fields_wrong(const char *where, const char *key, const char *want, const json_t *found); /* records that the type is wrong */

/* keys: NULL-terminated; all keys that the object may have. */
status json_fields_check(json_t *object, const char *where, const char *const *keys);
status json_fields_string(const json_t *object, const char *where, const char *key, const char **out);
status json_fields_bool(const json_t *object, const char *where, const char *key, bool *out);
status json_fields_array(const json_t *object, const char *where, const char *key, json_t **out);

/* Absent means null: the tokenizers library reads both alike. off: "" and false also mean null. */
status json_fields_null(const json_t *object, const char *where, const char *key);
status json_fields_off(const json_t *object, const char *where, const char *key);

status json_fields_type(const json_t *object, const char *where, const char *type); /* its field "type" must be this */
bool json_fields_is(const json_t *object, const char *type);

#endif
