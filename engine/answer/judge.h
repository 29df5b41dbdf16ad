/* answer/judge.h - whether a call that is well-formed calls one of the request's tools with arguments that its schema allows.
 *
 * Knows no grammars. Read next: answer/schema.h. */
#ifndef VERBATIM_ANSWER_JUDGE_H
#define VERBATIM_ANSWER_JUDGE_H
#include "answer/answer.h"

/* Of a tool, {"type":"function","function":{...}} or the function alone: its name; null if it has none. */
const json_t *answer_judge_name(const json_t *tool);

/* The schema of the arguments of the tool with this name; NULL: no such tool, or none is stated. */
const json_t *answer_judge_parameters(const json_t *tools, const char *name);

/* The name in the text of an object, and where in it the arguments stand. False: `why` says what is wrong. */
bool answer_judge_object(const char *object, size_t bytes, const char *arguments_key, char name[ANSWER_NAME_BYTES_MAX + 1],
                         const char **arguments, size_t *arguments_bytes, char why[ANSWER_ERROR_BYTES]);

/* Name and arguments against the tools. False: `why` says what is wrong. */
bool answer_judge_call(const json_t *tools, const char *name, const char *arguments, size_t bytes, char why[ANSWER_ERROR_BYTES]);

/* Whether the form allows one more call than this count. False: `why` says that it does not. */
bool answer_judge_count(const answer_form *form, uint32_t count, char why[ANSWER_ERROR_BYTES]);

/* The id of a call for which the model writes none: it follows from the form's seed and the call's index. */
void answer_judge_id(const answer_form *form, uint32_t index, char id[ANSWER_ID_BYTES]);

#endif
