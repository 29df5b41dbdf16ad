/* answer/thought.h - splits the thought off the beginning of an answer.
 *
 * A thought is there only if the prompt opens it or the answer begins with its mark, after white space at most. It ends at the closing
 * mark, or where a grammar's section of calls begins if that ends thoughts. Marks after it are content. Knows no calls. Read next:
 * answer/answer.c. */
#ifndef VERBATIM_ANSWER_THOUGHT_H
#define VERBATIM_ANSWER_THOUGHT_H
#include "answer/answer.h"

/* Shows thought and content; the marks too, as thought, if it is not apart. sink->call is not used. */
void answer_thought_push(answer_thought *self, const answer_form *form, const char *text, size_t bytes, const answer_sink *sink);
void answer_thought_finish(answer_thought *self, const answer_sink *sink);
bool answer_thought_is_inside(const answer_thought *self, const answer_form *form);
bool answer_thought_is_past(const answer_thought *self, const answer_form *form);

#endif
