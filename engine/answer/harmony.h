/* answer/harmony.h - reads an answer in harmony, the format of gpt-oss: messages, each with a header that says what it is.
 *
 *   <|start|>assistant<|channel|>analysis<|message|>TEXT<|end|>                                              a thought
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>      a call
 *   <|start|>assistant<|channel|>final<|message|>TEXT<|return|>                                              content
 *
 * The prompt has the first role. The recipient may stand in the role's place, too; commentary without one is content. A message that is
 * none of these stays content, with its marks. Knows no prompt. Read next: answer/grammar.h, answer/judge.h. */
#ifndef VERBATIM_ANSWER_HARMONY_H
#define VERBATIM_ANSWER_HARMONY_H
#include "answer/answer.h"

#define ANSWER_HARMONY_START "<|start|>"
#define ANSWER_HARMONY_CHANNEL "<|channel|>"
#define ANSWER_HARMONY_CONSTRAIN "<|constrain|>"
#define ANSWER_HARMONY_MESSAGE "<|message|>"
#define ANSWER_HARMONY_END "<|end|>"
#define ANSWER_HARMONY_CALL "<|call|>"
#define ANSWER_HARMONY_RETURN "<|return|>"

bool answer_harmony_is(const answer_form *form); /* whether the answer is read as harmony */
void answer_harmony_push(answer_harmony *self, const answer_form *form, const char *text, size_t bytes, const answer_sink *sink);
void answer_harmony_finish(answer_harmony *self, const answer_form *form, const answer_sink *sink);
bool answer_harmony_is_inside(const answer_harmony *self, const answer_form *form); /* a thought is open */

#endif
