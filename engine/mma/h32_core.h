/* h32_core.h - the interface of one instruction set to h32.c: the chains of a block of rows and columns.
 *
 * A number is stored as a significand of four bits, an exponent and a sign. The truncated product of two is (significands << 7) >> (E - e),
 * where e is the sum of their exponents; it is below 2^15, so 32 of them and the truncated c add up in 32 bits. Zeros have the exponent
 * H32_NONE, so low that its sum with any other is below that of two nonzero numbers; NaN has H32_WILD, so high that its sum is above
 * theirs. Lanes whose E exceeds H32_E_MAX, or that met a NaN, take the definition, h32_exact. Internal to engine/cpu. Read next:
 * h32_portable.c, the simplest of the three. */
#ifndef VERBATIM_H32_CORE_H
#define VERBATIM_H32_CORE_H
#include "base/base.h"
#include "mma/h32.h"
#include "kernels_src/num.h"

#define H32_ROWS 64u
#define H32_BLOCK_K 128u
#define H32_COLUMNS_MAX 16u
#define H32_NONE (-30)  /* plus the largest exponent, 8: -22; two nonzero numbers give at least -12 */
#define H32_WILD 90     /* plus H32_NONE: 60; sums saturate at 127 */
#define H32_LEAST (-12) /* smallest exponent of a nonzero product */
#define H32_E_MAX 50

typedef struct h32_block {
  const u8 *w;             /* [n][ldw], this block's first k                         */
  u64 ldw;
  const u8 *x[H32_ROWS];   /* each row's first element of this block                 */
  f32 *c;                  /* [rows][columns of the core] accumulators, 64-byte aligned */
  u32 rows, n, k;          /* n at most the core's columns, k at most H32_BLOCK_K    */
} h32_block;

typedef struct h32_core {
  u32 columns;
  void (*run)(const h32_block *block);
} h32_core;

extern const h32_core h32_avx512, h32_avx2, h32_neon, h32_portable;

/* The definition for one lane: row i, column j, the step that starts at k. */
static inline f32 h32_exact(const h32_block *block, u32 i, u32 j, u32 k, f32 c) {
  return h32_step_reference(block->x[i] + k, block->w + j * block->ldw + k, c);
}

static inline i32 h32_significand(u8 x) { return (x & 0x78) ? (x & 7) | 8 : x & 7; }
static inline i32 h32_exponent(u8 x) {
  return (x & 0x7f) == 0 ? H32_NONE : (x & 0x7f) == 0x7f ? H32_WILD : (x & 0x78) ? (x >> 3 & 15) - 7 : -6;
}

#endif
