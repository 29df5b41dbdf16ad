/* config_field.h - reads one field of config.json at a time: typed, bounded, refused by name.
 *
 * An absent field takes a fallback, which is noted, or is an error. JSON null counts as absent, except for a flag: Python takes None for
 * false, and so does HF. Knows no field. Read next: config_rope.h, model_config.h. */
#ifndef VERBATIM_CONFIG_FIELD_H
#define VERBATIM_CONFIG_FIELD_H
#include <jansson.h>
#include "engine/base/base.h"

#define CONFIG_FIELD_NOTE_BYTES 4000u /* more than all names that may be noted need; a string of a plan holds 4096 */

typedef struct config_notes {
  char ignored[CONFIG_FIELD_NOTE_BYTES]; /* "name, name": fields that do not change inference; "" if none */
  char assumed[CONFIG_FIELD_NOTE_BYTES]; /* "name = value, ...": absent fields and the value used        */
  char chosen[CONFIG_FIELD_NOTE_BYTES];  /* what a field does here, where other programs differ about it */
} config_notes;

typedef struct config_reader { /* an object of the file */
  const json_t *object;
  const char *prefix;  /* of its fields' names in messages: "", "rope_scaling." */
  config_notes *notes;
} config_reader;

bool config_field_is_among(const char *name, const char *const *names, size_t count);

/* Appends an item to one of the notes; an item that does not fit is left out. */
__attribute__((format(printf, 2, 3))) void config_field_note(char *list, const char *format, ...);

/* The field, or NULL if it is absent or JSON null; and whether it is present at all. */
const json_t *config_field_find(const config_reader *r, const char *name);
bool config_field_exists(const config_reader *r, const char *name);

/* The kind of a value for messages, like "an integer". */
const char *config_field_kind(const json_t *value);
status config_field_missing(const config_reader *r, const char *name);

/* An integer of [low, high] that is a multiple of `multiple`: kernels' limits, so that another is ERR_UNSUPPORTED; ERR_FORMAT if no model
 * can have it. fallback < 0: required. */
status config_field_count(const config_reader *r, const char *name, uint32_t low, uint32_t high, uint32_t multiple, int64_t fallback,
                          uint32_t *out);

/* A number of [low, high]. fallback NaN: required. A fallback of zero is not noted. */
status config_field_real(const config_reader *r, const char *name, double low, double high, double fallback, double *out);
status config_field_flag(const config_reader *r, const char *name, bool fallback, bool *out);

/* A string; fallback NULL: required. */
status config_field_text(const config_reader *r, const char *name, const char *fallback, const char **out);

/* `count` numbers of [low, high]; required. */
status config_field_reals(const config_reader *r, const char *name, double low, double high, uint32_t count, double *out);

/* ERR_UNSUPPORTED if the field is present with another value; the last one: if it is present and not null. */
status config_field_require_flag(const config_reader *r, const char *name, bool wanted);
status config_field_require_text(const config_reader *r, const char *name, const char *wanted);
status config_field_require_absent(const config_reader *r, const char *name);

#endif
