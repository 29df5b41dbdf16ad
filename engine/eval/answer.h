/* eval/answer.h - judges a generated text: which part of it is the answer, how it is normalised, and whether it matches.
 *
 * EVALUATION.md, "Answers", is normative. Owns the regular expression: PCRE2 on the whole text. Knows no items or
 * files. Read next: eval/task.h, eval/results.h. */
#ifndef VERBATIM_EVAL_ANSWER_H
#define VERBATIM_EVAL_ANSWER_H
#include <jansson.h>
#include "base/base.h"
#include "eval/task.h"

typedef struct eval_answer eval_answer; /* a task's judge */

/* Checks that the pattern of this key compiles; ERR_FORMAT says where it does not. */
status eval_answer_check(const char *key, const char *pattern);

status eval_answer_open(eval_answer **out, const eval_task *task);
void eval_answer_close(eval_answer *self);

typedef struct eval_answer_verdict {
  json_t *extracted;  /* the part that was compared, as text, or null if there was none; owned by the caller */
  bool is_correct;
  bool is_unended;    /* the task has a think_end, and the text does not: there is no answer */
} eval_answer_verdict;

/* text: UTF-8, may contain NULs. answer: a text, a number, or a list of them, one of which suffices. ERR_LIMIT: no memory. */
status eval_answer_judge(const eval_answer *self, const char *text, size_t bytes, const json_t *answer, eval_answer_verdict *out);

/* The text in the form in which it is compared: after the task's `remove` and `normalize`. The caller frees *out, which has no NUL.
 * ERR_LIMIT: no memory; ERR_MISMATCH, which records no cause: a pattern takes too many steps, and the text has no such form. */
status eval_answer_form(const eval_answer *self, const char *text, size_t bytes, char **out, size_t *count);

/* Parses a decimal number; commas are allowed between digits of its whole part: "-1,234.5", "+3", ".5", "2e3". Blanks at both ends are
 * ignored. False: not a number. */
bool eval_answer_number(const char *text, size_t bytes, double *out);

#endif
