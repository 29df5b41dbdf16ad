/* eval/answer.h - whether a text that a model made is the answer: what of it counts, in which form, and the comparison.
 *
 * EVALUATION.md, "Answers", is normative. Owns the regular expression (PCRE2, on the whole text, its first match and of that the first
 * group). Knows no items or files. Read next: eval/task.h, eval/results.h. */
#ifndef VERBATIM_EVAL_ANSWER_H
#define VERBATIM_EVAL_ANSWER_H
#include <jansson.h>
#include "base/base.h"
#include "eval/task.h"

typedef struct eval_answer eval_answer; /* a task's way to judge */

/* The pattern can be compiled. ERR_FORMAT says where not. */
status eval_answer_check(const char *pattern);

status eval_answer_open(eval_answer **out, const eval_task *task);
void eval_answer_close(eval_answer *self);

/* text: UTF-8, may hold NULs. answer: a text, a number, or a list of such, of which one is enough. *extracted: what counted, as text, or
 * null where there was nothing; the caller's. ERR_LIMIT: no memory. */
status eval_answer_judge(const eval_answer *self, const char *text, size_t bytes, const json_t *answer, json_t **extracted, bool *correct);

/* A decimal number, with commas between digits of its whole part allowed: "-1,234.5", "+3", ".5", "2e3". Blanks at both ends are not
 * looked at. False: it is none. */
bool eval_answer_number(const char *text, size_t bytes, double *out);

#endif
