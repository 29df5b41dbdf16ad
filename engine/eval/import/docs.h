/* eval/import/docs.h - the records of a data file, as the harness's loader of data sets shows them to templates.
 *
 * A file holds a JSON list of objects, or an object per line. Every record gets every field, null where it had none; a field that holds
 * whole numbers and fractions has fractions only. Fields whose texts are all dates become times there, and are refused here. Knows nothing
 * of tasks. Read next: fields.h. */
#ifndef VERBATIM_EVAL_IMPORT_DOCS_H
#define VERBATIM_EVAL_IMPORT_DOCS_H
#include "eval/import/import.h"

/* *out: a list of objects, at least one. ERR_FORMAT, ERR_LIMIT; ERR_UNSUPPORTED: "dates". */
status eval_import_docs_parse(eval_import_accept *accept, const char *text, size_t bytes, json_t **out);

/* The same for objects that were parsed already, in place. */
status eval_import_docs_complete(eval_import_accept *accept, json_t *list);

#endif
