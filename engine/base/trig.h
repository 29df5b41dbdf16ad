/* trig.h - sin, cos, exp, log and pow of binary64 from IEEE additions, multiplications and divisions alone.
 *
 * Rotary tables and frequencies are part of the numerics, and the C library's functions differ in the last bit between machines, so they
 * come from these fixed sequences instead. Errors are below 1 ulp (tests/unit/base/test_trig.c measures them). Knows nothing of the
 * engine. */
#ifndef VERBATIM_TRIG_H
#define VERBATIM_TRIG_H

double trig_sin(double x); /* |x| <= 2^24; NaN beyond */
double trig_cos(double x); /* |x| <= 2^24; NaN beyond */
double trig_exp(double x); /* 0 below -745.2, Inf above 709.8; results below 2^-1022 are rounded twice */
double trig_log(double x); /* x > 0, normal; NaN otherwise */
double trig_pow(double x, double y); /* x > 0, normal, |y| <= 2^64; NaN otherwise */

#endif
