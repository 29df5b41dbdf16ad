/* scaled.c - see scaled.h: h32_gemm multiplies blocks of 128 k, and this file adds them up. Read next: h32.c, fp8_gemm.c. */
#include "mma/scaled.h"
#include "base/base.h"
#include "kernels_src/num.h"
#include <string.h>

void scaled_gemm(const scaled_job *job) {
  f32 part[SCALED_TILE];
  const u32 blocks = job->k / SCALE_COLUMNS;
  ASSERT(job->rows <= SCALED_ROWS && job->n <= SCALED_COLUMNS && job->k % SCALE_COLUMNS == 0);
  h32_job block = {.x_row = job->x_row, .y = part, .ldx = job->k, .ldw = job->k, .ldy = SCALED_COLUMNS, .rows = job->rows, .n = job->n,
                   .k = SCALE_COLUMNS};
  memset(job->y, 0, SCALED_TILE * sizeof *job->y);
  for (u32 b = 0; b < blocks; b++) {
    block.x = job->x + b * SCALE_COLUMNS;
    block.w = job->w + b * SCALE_COLUMNS;
    h32_gemm(&block);
    for (u32 i = 0; i < job->rows; i++) {
      f32 scale = num_mul(job->x_scale[(u64)(job->x_row ? job->x_row[i] : i) * blocks + b], job->w_scale[b]); /* R13.1 */
      for (u32 j = i * SCALED_COLUMNS; j < i * SCALED_COLUMNS + job->n; j++) job->y[j] = num_fma(part[j], scale, job->y[j]); /* R13.2 */
    }
  }
}
