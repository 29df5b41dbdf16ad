/* ptx/numbers.cuh - conversions of bf16 and e4m3 numbers, one instruction each. A part of ptx.cuh.
 *
 * Each gives the bits of a function of num.h, which the emulator of the tests uses in its place. */
#ifndef VERBATIM_PTX_NUMBERS_CUH
#define VERBATIM_PTX_NUMBERS_CUH
#include "ptx/ptx.cuh"

/* Two fp32 numbers rounded to bf16 as num_to_bf16 does; lo in the low half. */
NUM u32 ptx_pack_bf16(f32 lo, f32 hi) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}

/* The maxima of two pairs of 16-bit integers. */
NUM u32 ptx_max_halves(u32 x, u32 y) {
  u32 d;
  asm("max.u16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  return d;
}

/* Two fp32 numbers as e4m3, as num_to_e4m3 makes them; lo in bits 0 to 7, hi in 8 to 15. */
NUM u32 ptx_pack_e4m3(f32 lo, f32 hi) {
  u16 d;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
  return d;
}

/* Four e4m3 numbers, the first in the lowest byte, as num_from_e4m3 converts them. */
NUM void ptx_from_e4m3(u32 codes, f32 (&x)[4]) {
  asm("{\n.reg .b16 low, high, h0, h1, h2, h3;\n.reg .b32 w0, w1;\nmov.b32 {low, high}, %4;\n"
      "cvt.rn.f16x2.e4m3x2 w0, low;\ncvt.rn.f16x2.e4m3x2 w1, high;\nmov.b32 {h0, h1}, w0;\nmov.b32 {h2, h3}, w1;\n"
      "cvt.f32.f16 %0, h0;\ncvt.f32.f16 %1, h1;\ncvt.f32.f16 %2, h2;\ncvt.f32.f16 %3, h3;\n}"
      : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(codes));
}

#endif
