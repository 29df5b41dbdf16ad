/* eval/margin.h - how close a decision was: the gap to the runner-up, and how much of a score depends on small gaps.
 *
 * EVALUATION.md, "Flip risk", is normative. All arithmetic is binary64 in a stated order, with the engine's own exp, so the bits are the
 * same everywhere. Knows requests and numbers; not tasks, files or which answer is right. Allocates only the objects it returns. Read next:
 * verbatim.h, eval/report/report.h. */
#ifndef VERBATIM_EVAL_MARGIN_H
#define VERBATIM_EVAL_MARGIN_H
#include <jansson.h>
#include "base/base.h"
#include "verbatim.h"

#define EVAL_MARGIN_FRAGILE 2.0 /* ulps; a decision with a smaller margin is fragile */

typedef struct eval_margin {
  bool known;         /* false: nothing was decided, or the margin cannot be determined; the other fields mean nothing */
  uint32_t at;        /* generate: index of the generated token; choice: index of the second best */
  double logprob;     /* 0: a tie; for choice per byte: in nats per byte */
  double probability; /* 0 .. 1 */
  double ulps;        /* of bf16 */
} eval_margin;

/* Spacing of bf16 at x: 2^(e - 7) for |x| in [2^e, 2^(e + 1)), 2^-133 below 2^-126. x: finite. */
double eval_margin_ulp(float x);

/* The smallest margin among the generated tokens, between first and second alternative; the first such token. Known for a finished greedy
 * request with unadjusted logits and top_logprobs of at least 2. */
eval_margin eval_margin_request(const verbatim_request *request);

typedef struct eval_margin_part { /* one choice */
  double logprob;   /* sum over all its tokens */
  uint64_t bytes;   /* the log-probability is divided by this; 1: not normalised */
  float logit_most; /* largest |logit| of its scored tokens */
  bool failed;
} eval_margin_part;

/* From the finished request that scored one choice. */
eval_margin_part eval_margin_part_of(const verbatim_request *request, uint64_t bytes);

/* The best against the second best; among equals the first. Known for two or more choices, none failed, bytes at least 1. */
eval_margin eval_margin_choice(const eval_margin_part *parts, uint32_t part_count);

/* {"logprob", "probability", "ulps", "at"}, owned by the caller. NULL: not known, or no memory. */
json_t *eval_margin_json(const eval_margin *self);

/* Reads that object, which is hostile input; anything else, or null, gives a margin that is not known. */
eval_margin eval_margin_read(const json_t *object);

/* Bins of ulps. 0: a tie; 1: below 2^EVAL_MARGIN_LEAST; then one for each power of two; the last: 2^EVAL_MARGIN_MOST and above. */
#define EVAL_MARGIN_LEAST (-4)
#define EVAL_MARGIN_MOST 12
#define EVAL_MARGIN_BINS 19u

typedef struct eval_margin_risk { /* running totals of a task; zeroed: no items */
  uint64_t items, right;    /* of all items, including those whose margin is not known */
  uint64_t known;
  uint64_t fragile[2];      /* [wrong, right]: items with a known margin below EVAL_MARGIN_FRAGILE */
  uint64_t bins[2][EVAL_MARGIN_BINS];
} eval_margin_risk;

void eval_margin_add(eval_margin_risk *self, const eval_margin *margin, bool right);
uint32_t eval_margin_bin(double ulps);

/* The lower bound of a bin in ulps; 0 for bin 1, where it is exclusive. */
double eval_margin_bin_from(uint32_t bin);

/* The share of fragile items among those with a known margin; and the shares of all items that would be right if every fragile right item
 * became wrong, and if every fragile wrong item became right. 0 without items. */
double eval_margin_share(const eval_margin_risk *self);
double eval_margin_lowest(const eval_margin_risk *self);
double eval_margin_highest(const eval_margin_risk *self);

/* The keys are in EVALUATION.md, "Flip risk". Owned by the caller; NULL: no memory. */
json_t *eval_margin_risk_json(const eval_margin_risk *self);

#endif
