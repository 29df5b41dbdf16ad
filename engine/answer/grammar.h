/* answer/grammar.h - how models mark thoughts and calls of tools: one row for each manner.
 *
 * The names are vLLM's, but for harmony, which is `openai` there. SERVING.md has a table of the grammars with an example each. All data is
 * constant. Knows no answer. Read next: answer/calls.h. */
#ifndef VERBATIM_ANSWER_GRAMMAR_H
#define VERBATIM_ANSWER_GRAMMAR_H
#include "base/base.h"

typedef struct answer_marks { /* around a thought */
  const char *name, *open, *close;
  bool are_messages; /* a thought is a message of harmony */
} answer_marks;

typedef enum answer_body {
  ANSWER_BODY_ARGUMENTS, /* a name, then the arguments as an object      */
  ANSWER_BODY_CALL,      /* an object with name and arguments            */
  ANSWER_BODY_PAIRS,     /* a name, then keys and values between marks   */
  ANSWER_BODY_MESSAGES   /* a message of harmony, answer/harmony.h       */
} answer_body;

typedef struct answer_grammar {
  const char *name;
  const char *section_open, *section_close; /* around all calls; NULL: each stands alone */
  const char *call_open, *call_close;
  answer_body body;
  const char *name_close;    /* after the name; NULL: the name is in the object, or ends at a line feed or a "<" */
  const char *arguments_key; /* of ANSWER_BODY_CALL */
  const char *key_open, *key_close, *value_open, *value_close; /* of ANSWER_BODY_PAIRS; value_open NULL: see tells_text */
  bool tells_text;    /* a value opens with true"> if it is text as it stands, with false"> if it is JSON */
  bool has_ids;       /* in place of the name stands the call's id, functions.NAME:NUMBER */
  bool starts_answer; /* calls are the whole answer: objects with a ";" between; call_open is optional, nothing closes a call */
  bool ends_thought;  /* section_open ends a thought, too */
} answer_grammar;

/* By name, or NULL. */
const answer_grammar *answer_grammar_find(const char *name);
const answer_marks *answer_grammar_find_marks(const char *name);

/* The one that the text of a chat template uses; NULL: none that is known. */
const answer_grammar *answer_grammar_of(const char *template);
const answer_marks *answer_grammar_marks_of(const char *template);

/* All names with ", " between, for messages. */
const char *answer_grammar_names(void);
const char *answer_grammar_marks_names(void);

/* Whether a mark contains this text, which is a special token's. Either may be NULL. */
bool answer_grammar_has(const answer_grammar *grammar, const answer_marks *marks, const char *text, size_t bytes);

#endif
