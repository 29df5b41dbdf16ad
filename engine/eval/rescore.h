/* eval/rescore.h - judges the answer of a line of results again, by a task whose rules have changed, without a model.
 *
 * EVALUATION.md, "Rescore", is normative. The line is hostile input. Knows no files. Read next: eval/results.h, eval/answer.h. */
#ifndef VERBATIM_EVAL_RESCORE_H
#define VERBATIM_EVAL_RESCORE_H
#include <jansson.h>
#include "base/base.h"
#include "eval/answer.h"
#include "eval/items.h"
#include "eval/task.h"

/* Whether answers to the recorded parameters are answers to the task. ERR_MISMATCH names the parameter of which other answers would come.
 * */
status eval_rescore_check(const json_t *parameters, const eval_task *task);

/* The line as an evaluation with this task would write it, without its results under other numerics; owned by the caller. judge: NULL
 * unless the task generates. ERR_MISMATCH: the line is another item's, or the item asks something else now. ERR_FORMAT names the key. */
status eval_rescore_line(const json_t *line, const eval_task *task, const eval_item *item, const eval_answer *judge, json_t **out);

#endif
