/* eval/compare.h - two evaluations of the same items: the difference of their scores with its interval, and the items that flipped.
 *
 * EVALUATION.md, "Compare", is normative. Both manifests and both lists of results are hostile input. Knows no files and no page: the
 * result is one object. Read next: eval/interval.h, eval/metric.h. */
#ifndef VERBATIM_EVAL_COMPARE_H
#define VERBATIM_EVAL_COMPARE_H
#include <jansson.h>
#include "base/base.h"

#define EVAL_COMPARE_DIFFER_MAX 32u

typedef struct eval_compare_side {
  const json_t *manifest, *results; /* parsed; the lines as an array */
} eval_compare_side;

typedef struct eval_compare_terms { /* parameters of tasks, "items" or "shots", that may differ */
  const char *differ[EVAL_COMPARE_DIFFER_MAX];
  uint32_t count;
} eval_compare_terms;

/* The comparison, owned by the caller. sides: A, then B. ERR_MISMATCH: they are no runs of the same questions; the message names the first
 * task and what differs. ERR_FORMAT: a line of results. */
status eval_compare_make(const eval_compare_side sides[2], const eval_compare_terms *terms, json_t **out);

#endif
