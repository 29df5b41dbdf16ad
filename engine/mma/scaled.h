/* scaled.h - products of scaled e4m3 numbers, NUMERICS.md ("fp8_gemm"): an H32 chain for every 128 pairs, times both scales, added in
 * order.
 *
 * Knows nothing of ops or threads. Read next: h32.h. */
#ifndef VERBATIM_SCALED_H
#define VERBATIM_SCALED_H
#include "mma/h32.h"

#define SCALED_ROWS 64u    /* of a tile, at most */
#define SCALED_COLUMNS 32u /* of a tile, at most; its columns share their scales */
#define SCALED_TILE (SCALED_ROWS * SCALED_COLUMNS)

typedef struct scaled_job {
  const u8 *x;        /* row i is x + (x_row ? x_row[i] : i) * k                        */
  const f32 *x_scale; /* of that row: [k / 128]                                         */
  const u32 *x_row;   /* [rows], or NULL: row i is i                                    */
  const u8 *w;        /* [n][k]                                                         */
  const f32 *w_scale; /* [k / 128], shared by all n                                     */
  f32 *y;             /* [SCALED_ROWS][SCALED_COLUMNS]                                  */
  u32 rows, n, k;     /* at most SCALED_ROWS, SCALED_COLUMNS; k a multiple of 128       */
} scaled_job;

void scaled_gemm(const scaled_job *job);

#endif
