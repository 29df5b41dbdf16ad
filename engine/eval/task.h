/* eval/task.h - a task file: what is asked of a model, on which items, and how answers are judged.
 *
 * EVALUATION.md, "Task files", is normative for the keys. A task is data: its file says everything, and the effective parameters are the
 * same object with every default written out. Knows no items, engine or files: names of other files stay names. Read next: eval/prompt.h,
 * eval/answer.h, eval/items.h. */
#ifndef VERBATIM_EVAL_TASK_H
#define VERBATIM_EVAL_TASK_H
#include <jansson.h>
#include "base/base.h"

#define EVAL_TASK_NAME_BYTES_MAX 128u
#define EVAL_TASK_TEXT_BYTES_MAX 65536u /* of templates and descriptions */
#define EVAL_TASK_SHOTS_MAX 1024u
#define EVAL_TASK_REMOVE_MAX 16u     /* patterns */
#define EVAL_TASK_WINDOW 1024u       /* the default; not the plan's max_len, which is not part of the task */

typedef enum eval_kind { EVAL_GENERATE, EVAL_CHOICE, EVAL_PERPLEXITY } eval_kind;
typedef enum eval_too_long { EVAL_TOO_LONG_REFUSE, EVAL_TOO_LONG_SKIP, EVAL_TOO_LONG_TRUNCATE_LEFT } eval_too_long;
typedef enum eval_match { EVAL_MATCH_EXACT, EVAL_MATCH_NUMBER } eval_match;

typedef struct eval_task { /* zeroed: empty. Texts belong to `effective` */
  eval_kind kind;
  eval_match match;
  eval_too_long too_long;     /* what becomes of an item that does not fit in a sequence */
  const char *name, *description, *group, *subsets, *cluster; /* all but the first: NULL if absent */
  const char *items, *shots;  /* file names; shots NULL: the items' own file, or no examples */
  const char *prompt, *answer, *text, *shot; /* templates; prompt is NULL for perplexity, text for the others */
  const char *answer_field;   /* the field that the template `answer` consists of, if it is nothing else: the value is used unchanged, lists
                               * included; NULL: rendered */
  const char *separator, *extract; /* extract NULL: none */
  const json_t *remove;       /* patterns, what they match is taken out of answer and right answer; NULL: none */
  const char *think_end;      /* the answer is what follows the last occurrence of this text; NULL: all of it */
  const json_t *choices;      /* text: the field that holds them; a list: templates */
  const json_t *where;        /* NULL, or an object: only items whose fields have these values */
  const json_t *generation;   /* an object with keys of items.h */
  bool strip, lower, collapse, drop_punctuation;
  bool takes_last;            /* match of `extract`; else the first */
  bool strips_extracted;      /* white space as Python's str.strip() knows it */
  bool by_characters;         /* acc_norm divides by the characters of a choice, not its bytes */
  bool chat;                  /* the prompt is a user's message in the model's chat template */
  double tolerance;
  uint32_t shot_count, limit; /* limit 0: none */
  uint32_t window;            /* perplexity: maximum tokens per window */
  uint64_t shot_seed;
  bool has_shot_seed;         /* examples are drawn at random; else the first ones are used */
  json_t *effective;          /* every parameter, defaults included */
} eval_task;

const char *eval_task_kind_name(eval_kind kind);

/* Parses and checks the whole file. Errors name the key, and for an unknown key the nearest known one. The caller prefixes the file's name.
 * ERR_FORMAT, ERR_LIMIT, ERR_UNSUPPORTED. */
status eval_task_parse(const char *text, size_t bytes, eval_task *out);
void eval_task_close(eval_task *self);

#endif
