/* eval/prompt.h - renders templates with the fields of an item.
 *
 * "{{field}}" becomes the value of that field; blanks around the name are ignored; all other text is copied. There are no conditions, loops
 * or escapes, so a template engine would add nothing. Knows no tasks. Read next: eval/items.h. */
#ifndef VERBATIM_EVAL_PROMPT_H
#define VERBATIM_EVAL_PROMPT_H
#include <jansson.h>
#include "base/base.h"

#define EVAL_PROMPT_BYTES_MAX (4u << 20) /* the tokenizer's limit */

typedef struct eval_text { /* growing text; zeroed: empty. The owner frees bytes, which a NUL follows */
  char *bytes;
  size_t count, room;
} eval_text;

/* ERR_LIMIT: no memory, or longer than EVAL_PROMPT_BYTES_MAX. */
status eval_prompt_append(eval_text *self, const char *bytes, size_t count);

/* Appends the template rendered with the item's fields: texts unchanged, integers in decimal. ERR_FORMAT: a missing field, a value of
 * another type, or unclosed braces. */
status eval_prompt_render(eval_text *self, const char *template, const json_t *item);

#endif
