/* eval/import/fields.h - doc_to_text, doc_to_choice and doc_to_target of a record, as lm-evaluation-harness 0.4 computes them.
 *
 * Each is the name of a field, a template of Jinja, a number or a list. Results are JSON: texts, whole numbers, lists. Owns the compiled
 * templates. Must not know examples or metrics. Read next: prompts.h. */
#ifndef VERBATIM_EVAL_IMPORT_FIELDS_H
#define VERBATIM_EVAL_IMPORT_FIELDS_H
#include <jansson.h>
#include "base/base.h"
#include "jinja/jinja.h"

typedef struct eval_import_field { /* zeroed: not given */
  const char *key;          /* for messages */
  const json_t *given;      /* borrowed: text, integer or list; NULL: not given */
  jinja_template *template; /* of a text that no field is named */
} eval_import_field;

/* given: NULL or null, a text, an integer, a list of texts or an object whose values are taken. record: any one of the data, for the names
 * of its fields. ERR_FORMAT, ERR_UNSUPPORTED: functions, tojson. */
status eval_import_fields_open(eval_import_field *out, const char *key, const json_t *given, const json_t *record);
void eval_import_fields_close(eval_import_field *self);

typedef struct eval_import_record { /* a record as templates see it */
  const json_t *object;
  jinja_memory memory;
  jinja_variable *variables;
  size_t count;
} eval_import_record;

status eval_import_fields_record(const json_t *object, eval_import_record *out); /* object: borrowed */
void eval_import_fields_record_close(eval_import_record *self);

/* *out: a text. ERR_FORMAT: the field holds something else, or the template fails. */
status eval_import_fields_text(const eval_import_field *self, eval_import_record *record, json_t **out);

/* *out: a list of texts that are not empty. */
status eval_import_fields_choices(const eval_import_field *self, eval_import_record *record, json_t **out);

/* *out: a text, an integer, a list, or whatever a field holds. has_choices: a text of digits is a number. */
status eval_import_fields_target(const eval_import_field *self, eval_import_record *record, bool has_choices, json_t **out);

/* str() of a value, as a text. */
status eval_import_fields_print(const json_t *value, json_t **out);

#endif
