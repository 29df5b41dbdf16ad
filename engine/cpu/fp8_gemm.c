/* fp8_gemm.c - the CPU reference of fp8_gemm. Items are (rows, columns) tiles of the product. NUMERICS.md "fp8_gemm". Read next:
 * scaled.h. */
#include "cpu/cpu.h"
#include "mma/h16_core.h"
#include "cpu/rows.h"
#include "mma/scaled.h"

typedef struct fp8_run {
  fp8_gemm_args a;
  u32 columns; /* of y */
  u32 rows, row_tiles, column_tiles;
  const h16_core *core;
} fp8_run;

/* Multiplies `rows` rows from i0 on by n weight rows from j on. */
static void multiply(const fp8_gemm_args *a, u32 i0, u32 j, u32 rows, u32 n, f32 *tile) {
  const u32 blocks = a->k / SCALE_COLUMNS;
  scaled_job job = {.x = a->x + (u64)i0 * a->k, .x_scale = a->x_scale + (u64)i0 * blocks, .w = a->w + (u64)j * a->k,
                    .w_scale = a->w_scale + (u64)(j / SCALE_COLUMNS) * blocks, .y = tile, .rows = rows, .n = n, .k = a->k};
  scaled_gemm(&job);
}

static void run_tile(void *context, uint32_t index, void *scratch) {
  const fp8_run *run = context;
  const fp8_gemm_args *a = &run->a;
  u32 j0 = index % run->column_tiles * SCALED_COLUMNS, i0 = index / run->column_tiles * SCALED_ROWS;
  u32 rows = min_u32(SCALED_ROWS, run->rows - i0), n = min_u32(SCALED_COLUMNS, run->columns - j0);
  f32 *tile = scratch, *up = tile + SCALED_TILE;
  multiply(a, i0, j0, rows, n, tile);
  if (a->y_kind == Y_SILU) multiply(a, i0, run->columns + j0, rows, n, up);
  for (u32 i = 0; i < rows; i++) {
    u64 target = (u64)(i0 + i) * a->ldy + j0;
    if (a->y_kind == Y_SILU) { /* R5.1 to R5.5 */
      run->core->silu_mul(tile + i * SCALED_COLUMNS, up + i * SCALED_COLUMNS, n, (bf16 *)a->y + target);
      continue;
    }
    for (u32 j = 0; j < n; j++) {
      f32 v = tile[i * SCALED_COLUMNS + j];
      if (a->y_kind == Y_F32) ((f32 *)a->y)[target + j] = v;
      else ((bf16 *)a->y)[target + j] = num_to_bf16(v); /* R2.1 */
    }
  }
}

void cpu_fp8_gemm(const fp8_gemm_args *args, cpu_pool *pool) {
  fp8_run run = {.a = *args, .columns = args->y_kind == Y_SILU ? args->n / 2 : args->n, .rows = rows_count(args->step, args->rows_kind)};
  ASSERT(args->y_kind != Y_SILU || run.columns % SCALE_COLUMNS == 0);
  run.core = cpu_isa_core();
  run.row_tiles = (u32)div_up(run.rows, SCALED_ROWS);
  run.column_tiles = (u32)div_up(run.columns, SCALED_COLUMNS);
  cpu_pool_run(pool, run.row_tiles * run.column_tiles, run_tile, &run);
}
