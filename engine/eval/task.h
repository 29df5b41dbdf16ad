/* eval/task.h - a task file: what is asked of a model, of which items, and how its answers are judged.
 *
 * EVALUATION.md, "Task files", is normative for the keys. A task is data: the file's text says all of it, and the effective parameters are
 * the same with every default written out. Knows no items, engine or files: names of other files stay names. Read next: eval/prompt.h,
 * eval/answer.h, eval/items.h. */
#ifndef VERBATIM_EVAL_TASK_H
#define VERBATIM_EVAL_TASK_H
#include <jansson.h>
#include "base/base.h"

#define EVAL_TASK_NAME_BYTES_MAX 128u
#define EVAL_TASK_TEXT_BYTES_MAX 65536u /* of templates and descriptions */
#define EVAL_TASK_SHOTS_MAX 1024u
#define EVAL_TASK_WINDOW 1024u       /* the default: not the plan's max_len, which is no part of the task */

typedef enum eval_kind { EVAL_GENERATE, EVAL_CHOICE, EVAL_PERPLEXITY } eval_kind;
typedef enum eval_match { EVAL_MATCH_EXACT, EVAL_MATCH_NUMBER } eval_match;

typedef struct eval_task { /* zeroed: empty. Texts belong to `effective` */
  eval_kind kind;
  eval_match match;
  const char *name, *description, *group, *subsets; /* the last three: null without */
  const char *items, *shots;  /* names of files; shots null: the items' own file, or no examples */
  const char *prompt, *answer, *text, *shot; /* templates; prompt null for perplexity, text for the others */
  const char *answer_field;   /* what `answer` is a template of, if that alone: its value is taken as it is, a list too; null: rendered */
  const char *separator, *extract; /* extract null: none */
  const json_t *choices;      /* text: the field that holds them; a list: templates */
  const json_t *where;        /* null, or an object: only items whose fields have these values */
  const json_t *generation;   /* the keys of items.h; an object */
  bool strip, lower, collapse;
  bool chat;                  /* the prompt is a user's message to the model's chat template */
  double tolerance;
  uint32_t shot_count, limit; /* limit 0: none */
  uint32_t window;            /* perplexity: most tokens that are looked at together */
  uint64_t shot_seed;
  bool has_shot_seed;         /* examples are drawn; else the first ones */
  json_t *effective;          /* every parameter, with its default */
} eval_task;

const char *eval_task_kind_name(eval_kind kind);

/* Judges the whole file. Errors name the key; of an unknown one the nearest. The caller puts the file's name before them. ERR_FORMAT,
 * ERR_LIMIT, ERR_UNSUPPORTED. */
status eval_task_parse(const char *text, size_t bytes, eval_task *out);
void eval_task_close(eval_task *self);

#endif
