/* h32.h - the tensor-core chain of e4m3 numbers, NUMERICS.md ("H32"): its definition in integers, and a matrix product with the same bits.
 *
 * h32_step_reference is the definition. Each instruction set has its own file (h32_core.h states its interface). It does not know scales:
 * scaled.c and index_score.c combine blocks of 128. Knows nothing of ops, pages or threads. Read next: h32.c. */
#ifndef VERBATIM_H32_H
#define VERBATIM_H32_H
#include "kernels_src/abi.h"

#ifdef __cplusplus
extern "C" { /* for the tests' emulator, which is C++ */
#endif

#define H32_STEP 32u /* pairs of one step */

/* One step: 32 pairs and an accumulator. NaN results are 0x7fffffff. */
f32 h32_step_reference(const u8 a[H32_STEP], const u8 b[H32_STEP], f32 c);

/* y[i][j] = the chain over k of row i of x and row j of w, started from y[i][j] or +0. */
typedef struct h32_job {
  const u8 *x;         /* row i is x + (x_row ? x_row[i] : i) * ldx, k contiguous */
  const u32 *x_row;    /* [rows], or NULL: row i is i                             */
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
