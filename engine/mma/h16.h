/* h16.h - the tensor-core chain of NUMERICS.md ("H16"): its definition in integers, and a fast matrix product with the same bits.
 *
 * h16_step_reference is the definition. The product packs w into panels of a few columns (by k, as fp32 with exponents), runs the chains of
 * a panel's columns in the lanes of a vector, and passes every lane outside the fast range of exponents to the definition. Each instruction
 * set has its own file (h16_core.h states its interface). Knows nothing of ops, pages or threads. Read next: h16.c, h16_core.h. */
#ifndef VERBATIM_H16_H
#define VERBATIM_H16_H
#include "kernels_src/abi.h"

#ifdef __cplusplus
extern "C" { /* for the tests' emulator, which is C++ */
#endif

#define H16_STEP 16u                 /* pairs of one step */
#define H16_ROWS 64u                 /* rows of x that share a packed panel */
#define H16_SCRATCH_BYTES (32u << 10)

/* One step: 16 pairs and an accumulator. NaN results are 0x7fffffff. */
f32 h16_step_reference(const bf16 a[H16_STEP], const bf16 b[H16_STEP], f32 c);

/* y[i][j] = the chain over k of row i of x and column j of w, started from y[i][j] or +0. y has rows x n elements. */
typedef struct h16_job {
  const bf16 *x;       /* row i is x + (x_row ? x_row[i] : i) * ldx, k contiguous */
  const u32 *x_row;    /* [rows], or NULL: row i is i                             */
  const u32 *k_valid;  /* [rows], or NULL: all k are pairs. Pairs from k_valid[i] on do not exist (they count as 0 * 0); x is +0 there. */
  const bf16 *w;       /* k_major 0: [n][ldw], element (k, j) at w[j * ldw + k]; 1: [k][ldw], at w[k * ldw + j] */
  f32 *y;              /* element (i, j) at y[i * ldy + j]                        */
  u64 ldx, ldw, ldy;   /* elements; ldw may be 0                                  */
  u32 rows, n, k;      /* k a multiple of 16                                      */
  u32 k_major;
  u32 k_rows;          /* k_major: rows k_rows .. k-1 of w are not read and count as zero; equal to k: all exist */
  u32 continues;       /* 1: the chain starts from y, 0: from +0                  */
} h16_job;

/* scratch: H16_SCRATCH_BYTES, 64-byte aligned. Reads nothing outside the rows and columns named. */
void h16_gemm(const h16_job *job, void *scratch);

#ifdef __cplusplus
}
#endif

#endif
