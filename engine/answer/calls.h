/* answer/calls.h - reads the calls of tools in the content of an answer, by a grammar.
 *
 * Everything from the first byte of what may be a call is held until the call is closed; then it comes out as a call, or all of it as
 * content. A call that is well-formed and not valid does not end the reading; after one that is not well-formed the rest is content. White
 * space around calls belongs to them. Knows no thoughts. Read next: answer/grammar.h, answer/judge.h. */
#ifndef VERBATIM_ANSWER_CALLS_H
#define VERBATIM_ANSWER_CALLS_H
#include "answer/answer.h"

void answer_calls_push(answer_calls *self, const answer_form *form, const char *text, size_t bytes, const answer_sink *sink);
void answer_calls_finish(answer_calls *self, const answer_form *form, const answer_sink *sink);

#endif
