/* gemm.c - the CPU reference of gemm. Items are (batch, rows, columns) tiles of the product. NUMERICS.md "gemm". Read next: h16.h. */
#include "cpu/gemm.h"
#include "mma/h16_core.h"
#include "cpu/rows.h"

#define TILE_COLUMNS 32u /* as wide as the widest panel, to give the threads more items */

typedef struct gemm_run {
  gemm_args a;
  const bf16 *bias; /* [n], or null */
  u32 columns;      /* of y */
  u32 rows, row_tiles, column_tiles;
  const h16_core *core;
} gemm_run;

static void multiply(h16_job job, f32 *tile, void *scratch) {
  job.y = tile;
  h16_gemm(&job, scratch);
}

static void add_bias(f32 *tile, const bf16 *bias, u32 rows, u32 n) {
  for (u32 i = 0; i < rows; i++)
    for (u32 j = 0; j < n; j++) tile[i * TILE_COLUMNS + j] = num_add(tile[i * TILE_COLUMNS + j], num_from_bf16(bias[j])); /* R2.2 */
}

static void run_tile(void *context, uint32_t index, void *scratch) {
  const gemm_run *run = context;
  const gemm_args *a = &run->a;
  u32 j0 = index % run->column_tiles * TILE_COLUMNS, rest = index / run->column_tiles;
  u32 i0 = rest % run->row_tiles * H16_ROWS, batch = rest / run->row_tiles;
  f32 *tile = (f32 *)((char *)scratch + H16_SCRATCH_BYTES), *up = tile + H16_ROWS * TILE_COLUMNS;
  h16_job job = {.x = a->x + batch * a->x_batch + (u64)i0 * a->ldx, .ldx = a->ldx, .ldw = a->k, .ldy = TILE_COLUMNS, .k = a->k};
  job.w = a->w + batch * a->w_batch + (u64)j0 * a->k;
  job.rows = min_u32(H16_ROWS, run->rows - i0);
  job.n = min_u32(TILE_COLUMNS, run->columns - j0);
  multiply(job, tile, scratch);
  job.w += (u64)run->columns * a->k;
  if (a->y_kind == Y_SILU) multiply(job, up, scratch);
  if (run->bias) add_bias(tile, run->bias + j0, job.rows, job.n);
  if (run->bias && a->y_kind == Y_SILU) add_bias(up, run->bias + run->columns + j0, job.rows, job.n);
  for (u32 i = 0; i < job.rows; i++) {
    u64 target = batch * a->y_batch + (u64)(i0 + i) * a->ldy + j0;
    if (a->y_kind == Y_SILU) { /* R5.1 to R5.5 */
      run->core->silu_mul(tile + i * TILE_COLUMNS, up + i * TILE_COLUMNS, job.n, (bf16 *)a->y + target);
      continue;
    }
    for (u32 j = 0; j < job.n; j++) {
      f32 v = tile[i * TILE_COLUMNS + j];
      if (a->y_kind == Y_F32) ((f32 *)a->y)[target + j] = v;
      else ((bf16 *)a->y)[target + j] = num_to_bf16(v); /* R2.1 */
    }
  }
}

void cpu_gemm_run(const gemm_args *args, const bf16 *bias, cpu_pool *pool) {
  gemm_run run = {.a = *args, .bias = bias, .columns = args->y_kind == Y_SILU ? args->n / 2 : args->n};
  run.rows = rows_count(args->step, args->rows_kind);
  run.core = cpu_isa_core();
  run.row_tiles = (u32)div_up(run.rows, H16_ROWS);
  run.column_tiles = (u32)div_up(run.columns, TILE_COLUMNS);
  cpu_pool_run(pool, run.row_tiles * run.column_tiles * args->batches, run_tile, &run);
}

void cpu_gemm(const gemm_args *args, cpu_pool *pool) { cpu_gemm_run(args, NULL, pool); }
