/* eval/margin.h - how close a decision was: the gap to what would have been chosen instead, and how much of a score hangs on small gaps.
 *
 * EVALUATION.md, "Flip risk", is normative. All is binary64 in a written order, with the engine's own exp: the same bits everywhere.
 * Knows requests and numbers; not tasks, files or what is right. Allocates nothing but the objects it makes. Read next: verbatim.h,
 * eval/report/report.h. */
#ifndef VERBATIM_EVAL_MARGIN_H
#define VERBATIM_EVAL_MARGIN_H
#include <jansson.h>
#include "base/base.h"
#include "verbatim.h"

#define EVAL_MARGIN_FRAGILE 2.0 /* ulps: a decision with less is fragile */

typedef struct eval_margin {
  bool known;         /* false: nothing was decided, or it cannot be told; the rest means nothing */
  uint32_t at;        /* generate: index of the made token; choice: index of the second best */
  double logprob;     /* 0: a tie; choice per byte: in nats per byte */
  double probability; /* 0 .. 1 */
  double ulps;        /* bf16 */
} eval_margin;

/* bf16 spacing at a number: 2^(e - 7) for |x| in [2^e, 2^(e + 1)), 2^-133 below 2^-126. x: finite. */
double eval_margin_ulp(float x);

/* The made token whose first and second alternative are nearest, the first such token. Known of a finished greedy request whose logits are
 * not adjusted, with top_logprobs at least 2. */
eval_margin eval_margin_request(const verbatim_request *request);

typedef struct eval_margin_part { /* one choice */
  double logprob;   /* of all its tokens */
  uint64_t bytes;   /* its log-probability is divided by them; 1: by tokens' sum alone */
  float logit_most; /* largest |logit| of its scored tokens */
  bool failed;
} eval_margin_part;

/* Of the finished request that scored one choice. */
eval_margin_part eval_margin_part_of(const verbatim_request *request, uint64_t bytes);

/* The best against the second best, each the first such one. Known of two or more choices, none failed, bytes at least 1. */
eval_margin eval_margin_choice(const eval_margin_part *parts, uint32_t part_count);

/* {"logprob", "probability", "ulps", "at"}, the caller's. Null: not known, or no memory. */
json_t *eval_margin_json(const eval_margin *self);

/* Back from that object, which is hostile; what is not such a one, or null, is not known. */
eval_margin eval_margin_read(const json_t *object);

/* Bins of ulps: 0, a tie; 1: below 2^EVAL_MARGIN_LEAST; then one for each power of two; the last: 2^EVAL_MARGIN_MOST and more. */
#define EVAL_MARGIN_LEAST (-4)
#define EVAL_MARGIN_MOST 12
#define EVAL_MARGIN_BINS 19u

typedef struct eval_margin_risk { /* of a task, running; zeroed: of no item */
  uint64_t items, right;    /* all, also those whose margin is not known */
  uint64_t known;
  uint64_t fragile[2];      /* [wrong, right] of those known with less than EVAL_MARGIN_FRAGILE */
  uint64_t bins[2][EVAL_MARGIN_BINS];
} eval_margin_risk;

void eval_margin_add(eval_margin_risk *self, const eval_margin *margin, bool right);
uint32_t eval_margin_bin(double ulps);

/* The least ulps in a bin, exclusive for bin 1, where it is 0. */
double eval_margin_bin_from(uint32_t bin);

/* Share of the items with a known margin that are fragile; and the share of all items that would be right if every fragile right one became
 * wrong, and if every fragile wrong one became right. 0 without items. */
double eval_margin_share(const eval_margin_risk *self);
double eval_margin_lowest(const eval_margin_risk *self);
double eval_margin_highest(const eval_margin_risk *self);

/* EVALUATION.md, "Flip risk", has the keys. The caller's; null: no memory. */
json_t *eval_margin_risk_json(const eval_margin_risk *self);

#endif
