/* h16.h - the tensor-core chain of NUMERICS.md ("H16"): its definition in integers, and a fast matrix product of the same bits.
 *
 * The definition is h16_step_reference. The product packs w into panels of a few columns (k by k, as fp32 with exponents),
 * runs the chain for a panel's columns in the lanes of a vector, and hands every lane outside the comfortable range of
 * exponents to the definition. Each instruction set has its file (h16_core.h says what it must give).
 * Knows nothing of ops, pages or threads. Read next: h16.c, h16_core.h. */
#ifndef VERBATIM_H16_H
#define VERBATIM_H16_H
#include "kernels_src/abi.h"

#ifdef __cplusplus
extern "C" { /* the emulator of the tests */
#endif

#define H16_STEP 16u                 /* pairs of one step */
#define H16_ROWS 64u                 /* rows of x that share one packed panel */
#define H16_SCRATCH_BYTES (32u << 10)

/* One step: 16 pairs and an accumulator. NaN results are 0x7fffffff. */
f32 h16_step_reference(const bf16 a[H16_STEP], const bf16 b[H16_STEP], f32 c);

/* y[i][j] = chain over k of x row i and w column j, started from y[i][j] or +0. y is rows x n, x and w are as described. */
typedef struct h16_job {
  const bf16 *x;       /* row i is x + (x_row ? x_row[i] : i) * ldx, k contiguous */
  const u32 *x_row;    /* [rows] or null                                          */
  const u32 *k_valid;  /* [rows] pairs from k_valid[i] on are no pairs (0 * 0), or null: all are pairs. x is +0 there. */
  const bf16 *w;       /* k_major 0: [n][ldw], element (k, j) at w[j * ldw + k]; 1: [k][ldw], at w[k * ldw + j] */
  f32 *y;              /* element (i, j) at y[i * ldy + j]                        */
  u64 ldx, ldw, ldy;   /* elements; ldw may be 0                                  */
  u32 rows, n, k;      /* k a multiple of 16                                      */
  u32 k_major;
  u32 k_rows;          /* k_major: rows k_rows .. k-1 of w are not read and count as zero; k: all exist */
  u32 continues;       /* 1: the chain starts from y, 0: from +0                  */
} h16_job;

/* scratch: H16_SCRATCH_BYTES, 64-byte aligned. Reads nothing outside the rows and columns named. */
void h16_gemm(const h16_job *job, void *scratch);

#ifdef __cplusplus
}
#endif

#endif
