/* eval/import/literal.h - Python literals as ast.literal_eval reads them: lists and tuples of texts, numbers, True, False and None.
 *
 * Templates of lm-evaluation-harness print lists, which it reads back this way. Hand-written because no C library reads Python. Knows
 * nothing of tasks. Read next: fields.h. */
#ifndef VERBATIM_EVAL_IMPORT_LITERAL_H
#define VERBATIM_EVAL_IMPORT_LITERAL_H
#include <jansson.h>
#include "base/base.h"

#define EVAL_IMPORT_LITERAL_DEPTH_MAX 16u

/* text: UTF-8. *out: lists and tuples become lists. ERR_FORMAT: Python would refuse it; ERR_UNSUPPORTED: Python may accept it (dicts, sets,
 * prefixed texts, arithmetic); ERR_LIMIT. */
status eval_import_literal_parse(const char *text, size_t bytes, json_t **out);

#endif
