/* yaml.h - parses a YAML text into a JSON value. The only user of libfyaml.
 *
 * The text is treated as hostile: it is bounded in bytes and depth, holds one document, and has no anchors, aliases, tags or directives;
 * a mapping has each key once. It knows no keys and no schema: callers check the JSON value.
 * Read next: planner/flat_yaml.h, engine/eval/task.c. */
#ifndef VERBATIM_YAML_H
#define VERBATIM_YAML_H
#include <jansson.h>
#include "base/base.h"

#define YAML_DEPTH_MAX 8u
#define YAML_KEY_BYTES_MAX 256u

#define YAML_FUNCTION "!function"

typedef struct yaml_options {
  const char *name; /* of the file, put before every message; NULL: the caller names it */
  size_t bytes_max;
  bool is_text;  /* every scalar is a string, and one that is not written at all is null. Otherwise a plain scalar spelled like a JSON
                  * number, true, false or null is that value, and every other scalar is a string */
  bool is_python; /* for files written for PyYAML, which knows more spellings of true, false and null; a plain scalar that it would take
                   * for a number, a date or a switch of another spelling than these is refused. A value with the tag !function becomes
                   * {"!function": text} */
} yaml_options;

/* text: not NUL-terminated. *out: released with json_decref; NULL when the text holds no document. Strings may hold any character,
 * NUL included; keys hold no control characters. ERR_FORMAT with line and column where libfyaml reports them, ERR_LIMIT. */
status yaml_parse(const yaml_options *options, const char *text, size_t bytes, json_t **out);

#endif
