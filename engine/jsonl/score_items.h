/* score_items.h - what is to be scored: a line of JSONL becomes a context with continuations, or a text that is scored whole.
 *
 *   {"context": text, "continuation": text}    {"context_ids": [ids], "continuation_ids": [ids]}
 *   {"context": text, "continuations": [text, ...]}    {"context_ids": [ids], "continuations_ids": [[ids], ...]}
 *   {"text": text}    {"ids": [ids]}
 * Optionally "id" and "task"; with several continuations "answer", the index of the correct one; and values that replace the
 * defaults: "deadline_seconds" and "require" (a list of axes of the plan's guarantees). Other keys are echoed into the output;
 * names of parameters that scoring does not have are refused. Knows nothing of tokenizers and engines. Read next: score_tokens.h. */
#ifndef VERBATIM_SCORE_ITEMS_H
#define VERBATIM_SCORE_ITEMS_H
#include "base/base.h"

#define SCORE_ITEMS_MAX (1u << 22)
#define SCORE_ITEMS_PARTS_MAX 65536u

typedef struct score_part { /* text or ids; neither: the part is absent */
  char *text;         /* [bytes], followed by a NUL; it may contain NULs */
  size_t bytes;
  int32_t *ids;       /* [id_count] */
  uint32_t id_count;
  bool by_characters; /* its log-probability is normalised by the text's characters, not its bytes */
} score_part;

typedef struct score_conditions { /* as in verbatim_request; for each request of the item */
  const char *const *required;
  uint32_t required_count;
  double deadline_seconds;
} score_conditions;

typedef struct score_item {
  uint32_t line;
  char *id;           /* never NULL */
  char *task, *echo;  /* NULL: none; echo: compact JSON object of the other keys */
  score_part context; /* absent: the single part is scored whole, except its first token */
  score_part *parts;  /* [part_count], at least one; all text or all ids, like the context */
  uint32_t part_count;
  bool is_list;       /* the line had a list of continuations */
  int32_t answer;     /* index in parts; -1: none */
  score_conditions conditions;
  const char **required; /* memory of the item's own required axes; NULL: the defaults' */
} score_item;

typedef struct score_items { /* a growing list; zeroed: empty */
  score_item *list;
  uint32_t count, room;
} score_items;

/* Adds an item from one line. The defaults' list of axes stays the caller's and is not copied. Errors name the line. */
status score_items_add(score_items *self, const char *line, size_t bytes, uint32_t line_number, const score_conditions *defaults);
void score_items_close(score_items *self);

#endif
