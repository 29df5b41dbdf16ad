/* trig.c - binary64 sin, cos, exp, log and pow from fixed sequences of IEEE operations (see trig.h).
 *
 * Where one binary64 is too narrow (the reduced angle, the logarithm inside a power), a value is a sum of two: the high part and what
 * rounding lost. Series are Taylor series, long enough that the remainder is below 2^-60. */
#include "base/trig.h"
#include <stdint.h>
#include <string.h>

typedef struct pair { /* the value high + low, |low| at most half a unit of high's last place */
  double high, low;
} pair;

#define ROUND_INTEGER 0x1.8p52 /* adding and subtracting it rounds |x| < 2^51 to the nearest integer */
#define LN2_HIGH 0x1.62e42feep-1 /* 32 bits: its product with an exponent is exact */
#define LN2_LOW 0x1.a39ef35793c76p-33

static uint64_t bits_of(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static double from_bits(uint64_t u) {
  double x;
  memcpy(&x, &u, sizeof x);
  return x;
}

static double not_a_number(void) { return from_bits(0x7ff8000000000000u); }
static double infinity(void) { return from_bits(0x7ff0000000000000u); }
static double power_of_two(int exponent) { return from_bits((uint64_t)(exponent + 1023) << 52); } /* -1022 .. 1023 */

static pair add_exactly(double a, double b) {
  double sum = a + b, part = sum - a;
  return (pair){sum, (a - (sum - part)) + (b - part)};
}

static pair multiply_exactly(double a, double b) {
  double p = a * b, x = a * 134217729.0, y = b * 134217729.0; /* 2^27 + 1 splits 53 bits in halves */
  double a_high = x - (x - a), b_high = y - (y - b), a_low = a - a_high, b_low = b - b_high;
  return (pair){p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

/* c[0] + c[1] z + ... + c[n-1] z^(n-1) */
static double polynomial(const double *c, int n, double z) {
  double sum = c[n - 1];
  for (int i = n - 2; i >= 0; i--) sum = sum * z + c[i];
  return sum;
}

/* x - n * pi/2 for the integer n nearest to x * 2/pi; *quadrant = n modulo 4. The first three parts of pi/2 have 29 bits:
 * their products with n are exact. */
static pair reduce_angle(double x, int *quadrant) {
  double n = (x * 0x1.45f306dc9c883p-1 + ROUND_INTEGER) - ROUND_INTEGER;
  pair a = add_exactly(x, -n * 0x1.921fb54p+0);
  pair b = add_exactly(a.high, -n * 0x1.10b4611p-30);
  pair c = add_exactly(b.high, -n * 0x1.4c4c662p-59);
  double low = ((a.low + b.low) + c.low) - n * 0x1.1701b839a2520p-88;
  *quadrant = (int)((int64_t)n & 3);
  return add_exactly(c.high, low);
}

static double sin_reduced(pair r) { /* |r| <= pi/4 */
  static const double c[] = {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0,
                             -1.0 / 1307674368000.0, 1.0 / 355687428096000.0};
  double z = r.high * r.high;
  return r.high + (r.high * z * polynomial(c, 8, z) + r.low * (1.0 - 0.5 * z));
}

static double cos_reduced(pair r) {
  static const double c[] = {1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200.0,
                             1.0 / 20922789888000.0, -1.0 / 6402373705728000.0};
  double z = r.high * r.high, half = 0.5 * z, w = 1.0 - half;
  return w + (((1.0 - w) - half) + (z * z * polynomial(c, 8, z) - r.high * r.low));
}

static double sin_shifted(double x, int shift) { /* sin(x + shift * pi/2) */
  if (!(x >= -0x1p24 && x <= 0x1p24)) return not_a_number();
  int quadrant;
  pair r = reduce_angle(x, &quadrant);
  quadrant = (quadrant + shift) & 3;
  double value = quadrant & 1 ? cos_reduced(r) : sin_reduced(r);
  return quadrant & 2 ? -value : value;
}

double trig_sin(double x) { return x == 0.0 ? x : sin_shifted(x, 0); }
double trig_cos(double x) { return sin_shifted(x, 1); }

/* e^(x.high + x.low) */
static double exp_of_pair(pair x) {
  static const double c[] = {1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
                             1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0, 1.0 / 87178291200.0};
  if (!(x.high == x.high)) return not_a_number();
  if (x.high > 709.8) return infinity();
  if (x.high < -745.2) return 0.0;
  double n = (x.high * 0x1.71547652b82fep+0 + ROUND_INTEGER) - ROUND_INTEGER;
  pair r = add_exactly(x.high - n * LN2_HIGH, x.low - n * LN2_LOW);
  double value = 1.0 + (r.high + (r.low + r.low * r.high + r.high * r.high * polynomial(c, 13, r.high)));
  int exponent = (int)n, half = exponent / 2; /* two factors, because 2^1024 and 2^-1075 are not binary64 numbers */
  return value * power_of_two(half) * power_of_two(exponent - half);
}

double trig_exp(double x) { return exp_of_pair((pair){x, 0.0}); }

/* ln x for a positive normal x: with x = m * 2^e, ln m = 2 artanh(s), s = (m - 1) / (m + 1). */
static pair log_pair(double x) {
  static const double c[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                             2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23, 2.0 / 25};
  uint64_t u = bits_of(x);
  int64_t e = (int64_t)(u - 0x3fe6a09e667f3bcdu) >> 52; /* m in [sqrt(1/2), sqrt(2)) */
  double f = from_bits(u - ((uint64_t)e << 52)) - 1.0, n = (double)e;
  pair denominator = add_exactly(2.0, f);
  double s = f / denominator.high;
  pair back = multiply_exactly(s, denominator.high);
  double s_low = (((f - back.high) - back.low) - s * denominator.low) / denominator.high;
  double z = s * s, tail = s * z * polynomial(c, 12, z);
  pair sum = add_exactly(n * LN2_HIGH, 2.0 * s);
  return add_exactly(sum.high, sum.low + (n * LN2_LOW + (2.0 * s_low + tail)));
}

static int is_positive_normal(double x) { return x >= 0x1p-1022 && x < infinity(); }

double trig_log(double x) { return is_positive_normal(x) ? log_pair(x).high : not_a_number(); }

double trig_pow(double x, double y) {
  if (!is_positive_normal(x) || !(y >= -0x1p64 && y <= 0x1p64)) return not_a_number();
  pair l = log_pair(x), p = multiply_exactly(y, l.high);
  return exp_of_pair((pair){p.high, p.low + y * l.low});
}
