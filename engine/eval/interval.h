/* eval/interval.h - standard errors of means, plain and clustered, and the 95 % intervals of shares and of sums of scores.
 *
 * EVALUATION.md, "Standard errors" and "Intervals", is normative: it has the formulas, their sources and the order of every sum. All is
 * binary64 with additions, products, quotients and square roots only, so the figures have the same bytes on every machine. Knows numbers;
 * not tasks, items or files. Read next: eval/metric.h. */
#ifndef VERBATIM_EVAL_INTERVAL_H
#define VERBATIM_EVAL_INTERVAL_H
#include "base/base.h"

#define EVAL_INTERVAL_Z 1.9599639845400543 /* the 97.5 % quantile of the normal distribution */

typedef struct eval_interval { /* not finite: there is none */
  double low, high;
} eval_interval;

typedef struct eval_interval_clusters { /* which cluster each of `count` items is in; of NULL: each is one of its own */
  const uint32_t *of;        /* [count], each below cluster_count */
  uint32_t count, cluster_count;
  double *sums;              /* [cluster_count], for the computation */
} eval_interval_clusters;

/* The standard error of the mean of `count` numbers, from their differences from that mean. NaN below two items or clusters. */
double eval_interval_error(const double *rest, const eval_interval_clusters *clusters);

/* How many independent answers would say as much: the answers given, divided by the design effect. variance: of one answer, if answers are
 * right or wrong and independent; error: of their mean, as above. */
double eval_interval_effective(double variance, double error, double answers, const eval_interval_clusters *clusters);

/* Wilson's score interval of a share of `count` items, which need not be whole. NaN for none. */
eval_interval eval_interval_wilson(double share, double count);

/* The interval of Bonett and Price of the difference of two shares of the same `count` items, which need not be whole: of `gained`, the
 * share right in the second alone, minus `lost`, the share right in the first alone. NaN for none. */
eval_interval eval_interval_paired(double lost, double gained, double count);

/* The exact McNemar test, two-sided: how likely is a division as uneven as this of lost + gained items, if each falls either way. */
double eval_interval_mcnemar(uint32_t lost, uint32_t gained);

/* The interval of a mean of independent scores from those of the scores: their distances from the score are added as squares. */
typedef struct eval_interval_mean { /* zeroed: of none */
  double value, below, above; /* sums: of the scores, of the squared distances to their bounds */
  uint32_t count;
} eval_interval_mean;

void eval_interval_mean_add(eval_interval_mean *self, double value, eval_interval interval);
eval_interval eval_interval_mean_of(const eval_interval_mean *self);

#endif
