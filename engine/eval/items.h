/* eval/items.h - a task's items: the lines of its JSONL as finished texts, with examples before them, and their answers.
 *
 * EVALUATION.md, "Items" and "Examples", is normative. The lines are hostile input: bounded, each an object, and every field that a
 * template names must exist. Knows no tokenizer and no engine. Read next: eval/task.h, eval/prompt.h. */
#ifndef VERBATIM_EVAL_ITEMS_H
#define VERBATIM_EVAL_ITEMS_H
#include <jansson.h>
#include "base/base.h"
#include "eval/prompt.h"
#include "eval/task.h"

#define EVAL_ITEMS_MAX (1u << 22)

typedef struct eval_item {
  char *id;           /* unique within the task */
  char *subset, *cluster; /* NULL: none */
  eval_text prompt;   /* for a perplexity task the whole text */
  json_t *answer;     /* generate: a text, a number, or a list of them */
  json_t *choices;    /* choice: a list of texts */
  uint32_t answer_index;
} eval_item;

typedef struct eval_items { /* zeroed: empty */
  eval_item *list;
  uint32_t count, room;
} eval_items;

typedef struct eval_source { /* bytes of a JSONL file; text NULL: no such file */
  const char *text;
  size_t bytes;
} eval_source;

/* shots: the file that the task names as the source of examples. Errors name the line, prefixed by "examples: " for lines of shots. */
status eval_items_make(const eval_task *task, eval_source lines, eval_source shots, eval_items *out);
void eval_items_close(eval_items *self);

#endif
