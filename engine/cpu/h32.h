/* h32.h - the tensor-core chain of e4m3 numbers, NUMERICS.md ("H32"): its definition in integers, and a matrix product of the same bits.
 *
 * The definition is h32_step_reference. Each instruction set has its file (h32_core.h says what it must give). Scales are
 * not its business: scaled.c and index_score.c put blocks of 128 together.
 * Knows nothing of ops, pages or threads. Read next: h32.c. */
#ifndef VERBATIM_H32_H
#define VERBATIM_H32_H
#include "kernels_src/abi.h"

#ifdef __cplusplus
extern "C" { /* the emulator of the tests */
#endif

#define H32_STEP 32u /* pairs of one step */

/* One step: 32 pairs and an accumulator. NaN results are 0x7fffffff. */
f32 h32_step_reference(const u8 a[H32_STEP], const u8 b[H32_STEP], f32 c);

/* y[i][j] = chain over k of x row i and w row j, started from y[i][j] or +0. */
typedef struct h32_job {
  const u8 *x;         /* row i is x + (x_row ? x_row[i] : i) * ldx, k contiguous */
  const u32 *x_row;    /* [rows] or null                                          */
  const u8 *w;         /* [n][ldw], k contiguous                                  */
  f32 *y;              /* element (i, j) at y[i * ldy + j]                        */
  u64 ldx, ldw, ldy;   /* elements                                                */
  u32 rows, n, k;      /* k a multiple of 32                                      */
  u32 continues;       /* 1: the chain starts from y, 0: from +0                  */
} h32_job;

/* Reads nothing outside the rows and columns named. */
void h32_gemm(const h32_job *job);

#ifdef __cplusplus
}
#endif

#endif
