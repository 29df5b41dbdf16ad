/* eval/interval.c - see eval/interval.h. */
#include "eval/interval.h"
#include <math.h>

static const eval_interval NONE = {(double)NAN, (double)NAN};

double eval_interval_error(const double *rest, const eval_interval_clusters *clusters) {
  double squares = 0, between = 0, count = clusters->count;
  if (clusters->count < 2 || (clusters->of && clusters->cluster_count < 2)) return (double)NAN;
  for (uint32_t i = 0; i < clusters->count; i++) squares += rest[i] * rest[i];
  double variance = squares / (count - 1) / count;
  if (!clusters->of) return sqrt(variance);
  for (uint32_t c = 0; c < clusters->cluster_count; c++) clusters->sums[c] = 0;
  for (uint32_t i = 0; i < clusters->count; i++) clusters->sums[clusters->of[i]] += rest[i];
  for (uint32_t c = 0; c < clusters->cluster_count; c++) between += clusters->sums[c] * clusters->sums[c];
  variance += (between - squares) / (count * count);
  return variance > 0 ? sqrt(variance) : 0; /* rounding may leave less than nothing of it */
}

double eval_interval_effective(double variance, double error, double answers, const eval_interval_clusters *clusters) {
  double count = clusters->count, plain = variance / (count - 1);
  if (!clusters->of && answers == count) return count;
  if (!(error > 0 && plain > 0)) return clusters->of ? clusters->cluster_count : count;
  double effective = count * (plain / (error * error));
  return effective < answers ? effective : answers;
}

eval_interval eval_interval_wilson(double share, double count) {
  const double z = EVAL_INTERVAL_Z;
  if (!(count > 0)) return NONE;
  double centre = share + z * z / (2 * count), scale = 1 + z * z / count;
  double half = z * sqrt((share * (1 - share) + z * z / (4 * count)) / count);
  double low = (centre - half) / scale, high = (centre + half) / scale;
  return (eval_interval){share <= 0 || low < 0 ? 0 : low, share >= 1 || high > 1 ? 1 : high};
}

eval_interval eval_interval_paired(double lost, double gained, double count) {
  if (!(count > 0)) return NONE;
  double p = (lost * count + 1) / (count + 2), q = (gained * count + 1) / (count + 2), centre = q - p;
  double half = EVAL_INTERVAL_Z * sqrt((p + q - centre * centre) / (count + 2));
  return (eval_interval){centre - half < -1 ? -1 : centre - half, centre + half > 1 ? 1 : centre + half};
}

/* The largest term, C(n, k) / 2^n with the smaller number as k, is a fraction and a power of two: it may be far below the least binary64.
 * The others follow from it downwards. */
double eval_interval_mcnemar(uint32_t lost, uint32_t gained) {
  uint32_t least = min_u32(lost, gained);
  double n = (double)lost + gained, term = 1, sum = 0;
  int64_t power = -((int64_t)lost + gained);
  for (uint32_t k = 1; k <= least; k++) {
    int shift;
    term = frexp(term * ((n - k + 1) / k), &shift);
    power += shift;
  }
  double ratio = 1;
  for (uint32_t k = least; ratio > 0; k--) {
    sum += ratio;
    ratio = k == 0 || ratio < 0x1p-60 ? 0 : ratio * (k / (n - k + 1));
  }
  double p = 2 * ldexp(term * sum, power < -2000 ? -2000 : (int)power);
  return p < 1 ? p : 1;
}

void eval_interval_mean_add(eval_interval_mean *self, double value, eval_interval interval) {
  double below = value - interval.low, above = interval.high - value;
  self->value += value;
  self->below += below * below;
  self->above += above * above;
  self->count++;
}

eval_interval eval_interval_mean_of(const eval_interval_mean *self) {
  if (self->count == 0) return NONE;
  return (eval_interval){(self->value - sqrt(self->below)) / self->count, (self->value + sqrt(self->above)) / self->count};
}
