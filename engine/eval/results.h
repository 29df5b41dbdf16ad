/* eval/results.h - lines of results.jsonl: the result of an item as a JSON object, and the samples that scores are computed from.
 *
 * EVALUATION.md, "Results", is normative for keys and their order. Scores are computed from the lines alone, whether just written or read
 * back. Read next: eval/request.h, eval/metric.h. */
#ifndef VERBATIM_EVAL_RESULTS_H
#define VERBATIM_EVAL_RESULTS_H
#include <jansson.h>
#include "base/base.h"
#include "eval/answer.h"
#include "eval/request.h"
#include "eval/metric.h"
#include "text/tokenizer.h"

#define EVAL_RESULTS_LINE_BYTES_MAX (32u << 20)
#define EVAL_RESULTS_PROMPT_BYTES_MAX 4096u /* a longer prompt is shown by its end, where the question is */

typedef struct eval_results_item { /* a finished item */
  const eval_task *task;
  const eval_item *item;
  const eval_request *request;       /* all its requests have ended */
  const eval_answer *judge;  /* NULL unless the task generates */
  const tokenizer *tokenizer;
  uint32_t index;
  bool without_text;         /* no prompt, no answer, no choice: only what was found about them */
} eval_results_item;

/* The line as an object, owned by the caller. */
status eval_results_make(const eval_results_item *from, json_t **out);

/* The object as a line: compact, keys in their order, with a line feed and a NUL after it; the caller frees it. */
status eval_results_text(const json_t *line, char **text, size_t *bytes);

/* The line's contribution to the scores of its task, whose subsets and clusters it may extend. The line is hostile input. ERR_FORMAT names
 * the key. */
status eval_results_sample(const json_t *line, eval_score *score, eval_sample *out);

/* Whether the answer changed: the extracted text, or the choice; without texts whether it is right. */
bool eval_results_flipped(const json_t *a, const json_t *b, eval_kind kind);

/* The first key, in the order of a, whose values differ or that only one of the two has; NULL: none. */
const char *eval_results_difference(const json_t *a, const json_t *b);

#endif
