/* eval/yaml.h - a YAML text from anywhere as a JSON value, so that one kind of value is judged further on.
 *
 * Anchors, aliases, tags, directives and several documents are refused, so that the text says what it means. A plain scalar that is spelled
 * as JSON spells a number, true, false or null is that; every other one is text, as is a quoted one.
 * Owns bounds on size and depth; knows no keys. Read next: eval/task.h. */
#ifndef VERBATIM_EVAL_YAML_H
#define VERBATIM_EVAL_YAML_H
#include <jansson.h>
#include "base/base.h"

#define EVAL_YAML_BYTES_MAX (1u << 20)
#define EVAL_YAML_DEPTH_MAX 8u

/* The text's one value, to be released with json_decref. ERR_FORMAT with line and column, ERR_LIMIT. */
status eval_yaml_parse(const char *text, size_t bytes, json_t **out);

#endif
