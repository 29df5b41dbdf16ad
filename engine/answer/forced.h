/* answer/forced.h - what an answer must look like so that it is a call: for whoever can constrain an answer.
 *
 * A pattern is the list of parts that verbatim_constraint_open takes as VERBATIM_PARTS. What matches is read as one call
 * (answer/calls.h), with a thought before it where the form allows one. Read next: answer/grammar.h. */
#ifndef VERBATIM_ANSWER_FORCED_H
#define VERBATIM_ANSWER_FORCED_H
#include "answer/answer.h"

/* A call of the tool with this name, or of any tool if it is NULL. form: with grammar and tools. The caller releases the pattern; NULL: no
 * such tool, or no memory. */
json_t *answer_forced(const answer_form *form, const char *name);

#endif
