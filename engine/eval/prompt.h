/* eval/prompt.h - texts made from templates and the fields of an item.
 *
 * "{{field}}" becomes the item's field of that name, blanks beside the name not counting; all else stays as it is. There is nothing more:
 * no conditions, no loops, no escapes. Knows no tasks. Read next: eval/items.h. */
#ifndef VERBATIM_EVAL_PROMPT_H
#define VERBATIM_EVAL_PROMPT_H
#include <jansson.h>
#include "base/base.h"

#define EVAL_PROMPT_BYTES_MAX (4u << 20) /* what a tokenizer takes */

typedef struct eval_text { /* growing; zeroed: empty. bytes, with a NUL behind them, is the owner's to free */
  char *bytes;
  size_t count, room;
} eval_text;

/* ERR_LIMIT: no memory, or longer than EVAL_PROMPT_BYTES_MAX. */
status eval_prompt_append(eval_text *self, const char *bytes, size_t count);

/* Appends the template with item's fields: texts as they are, whole numbers in decimal. ERR_FORMAT: a field that is not there or is another
 * kind of value, or braces that do not end. */
status eval_prompt_render(eval_text *self, const char *template, const json_t *item);

#endif
